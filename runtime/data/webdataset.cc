// WebDataset: tar archives in which the members of a sample are adjacent and share their name up to
// its first dot: key.jpg, key.txt. libarchive reads the headers. Images are not read: their offsets
// are noted, so that any item can be read at any time.

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/numbers.h"
#include "base/quantities.h"
#include "base/text.h"
#include "runtime/data/manifest_readers.h"

namespace lockstep::runtime {
namespace {

using Reader = std::unique_ptr<archive, int (*)(archive*)>;
constexpr std::size_t kBlock = std::size_t{64} << 10U;  // read size for archives that cannot seek

struct MemberName {
  std::string_view key;        // including folders
  std::string_view extension;  // after the first dot of the last part
};

// "a/000017.left.jpg" → key "a/000017", extension "left.jpg", as WebDataset splits names.
MemberName split_name(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t dot = name.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

class ShardIndexer {
 public:
  explicit ShardIndexer(ManifestContent& content) : content_(content) {}

  Status read(const std::string& shard) {
    const Reader reader(archive_read_new(), archive_read_free);
    LOCKSTEP_CHECK(reader != nullptr, "libarchive does not start");
    archive_read_support_format_tar(reader.get());
    if (archive_read_open_filename(reader.get(), shard.c_str(), kBlock) != ARCHIVE_OK) {
      return unreadable(reader.get(), shard);
    }
    sample_open_ = false;
    archive_entry* entry = nullptr;
    int status = ARCHIVE_OK;
    while ((status = archive_read_next_header(reader.get(), &entry)) >= ARCHIVE_WARN &&
           status != ARCHIVE_EOF) {
      if (archive_entry_filetype(entry) == AE_IFREG) take(reader.get(), entry, shard);
    }
    if (status == ARCHIVE_EOF) return Status::ok();
    // Samples before the damage count. The missing rest becomes one bad item, so that it is
    // noticed.
    ManifestItem rest;
    rest.location = {shard};
    rest.problem =
        fmt::format("the archive is cut off or damaged after \"{}\"", printable(last_member_));
    if (last_member_.empty()) return unreadable(reader.get(), shard);
    content_.items.push_back(std::move(rest));
    return Status::ok();
  }

 private:
  static Error unreadable(archive* reader, const std::string& shard) {
    const char* const why = archive_error_string(reader);
    return {fmt::format("not a readable tar archive{}",
                        why == nullptr ? "" : fmt::format(": {}", printable(why))),
            {shard},
            "shards are plain tar files; unpack those that are compressed"};
  }

  void take(archive* reader, archive_entry* entry, const std::string& shard) {
    const char* const path = archive_entry_pathname(entry);
    last_member_ = path == nullptr ? "" : path;
    const MemberName name = split_name(last_member_);
    const bool is_image =
        name.extension == "jpg" || name.extension == "jpeg" || name.extension == "png";
    const bool is_text = name.extension == "txt" || name.extension == "json";
    if (!is_image && !is_text) return;
    ManifestItem& item = sample(std::string(name.key), shard);
    if (archive_entry_sparse_count(entry) > 0) {
      complain(item, fmt::format("the member \"{}\" is sparse", printable(last_member_)));
    } else if (is_image) {
      if (item.image) complain(item, fmt::format("two images: \"{}\"", printable(last_member_)));
      item.image = ImageSource{last_member_, shard, archive_filter_bytes(reader, 0),
                               archive_entry_size(entry)};
    } else {
      take_text(reader, entry, name.extension == "json", item);
    }
  }

  // The item of this key: the current one, or a new one. Members of a sample are adjacent: 17.jpg,
  // 17.txt, 18.jpg, 18.txt.
  ManifestItem& sample(const std::string& key, const std::string& shard) {
    if (sample_open_ && content_.items.back().id == key) return content_.items.back();
    ManifestItem item;
    item.id = key;
    item.location = {shard};
    const auto [first, is_new] = shards_.emplace(key, shard);
    if (!is_new) {
      item.problem =
          fmt::format("the key \"{}\" is in {} already{}", printable(key), printable(first->second),
                      first->second == shard ? ", but not next to this member" : "");
    }
    content_.items.push_back(std::move(item));
    sample_open_ = true;
    return content_.items.back();
  }

  static void complain(ManifestItem& item, const std::string& problem) {
    if (item.problem.empty()) item.problem = problem;
  }

  void take_text(archive* reader, archive_entry* entry, bool is_json, ManifestItem& item) {
    const la_int64_t size = archive_entry_size(entry);
    if (size < 0 || static_cast<std::size_t>(size) > kLongestText) {
      return complain(item, fmt::format("the text is longer than {}", bytes_text(kLongestText)));
    }
    std::string bytes(static_cast<std::size_t>(size), '\0');
    if (archive_read_data(reader, bytes.data(), bytes.size()) != size) {
      return complain(item, "the text is cut off");
    }
    if (!is_json) {
      if (bytes.ends_with('\n')) bytes.pop_back();
      item.text = std::move(bytes);
      return;
    }
    const auto object = nlohmann::json::parse(to_utf8(bytes), nullptr, false);
    if (!object.is_object()) return complain(item, "its .json member is not a JSON object");
    for (const char* key : {"text", "caption"}) {
      const auto text = object.find(key);
      // A .txt member takes precedence.
      if (text != object.end() && text->is_string() && !item.text) {
        item.text = text->get<std::string>();
      }
    }
  }

  ManifestContent& content_;
  std::unordered_map<std::string, std::string> shards_;  // the shard of each key
  std::string last_member_;
  bool sample_open_ = false;  // the last item is from this shard, and may get more members
};

}  // namespace

Result<ManifestContent> read_webdataset(const std::vector<std::string>& shards) {
  ManifestContent content;
  ShardIndexer indexer(content);
  for (const std::string& shard : shards) {
    if (const Status read = indexer.read(shard); !read) return read.error();
  }
  for (ManifestItem& item : content.items) {
    if (item.problem.empty() && !item.image && !item.text) {
      item.problem = "neither an image nor a text";
    }
  }
  return content;
}

namespace {

constexpr const char* kFix = "write a group as {000..007} or {a,b}";

// A number of at most nine digits; -1 for anything else.
int number(std::string_view digits) {
  if (digits.size() > 9 || digits.starts_with('-')) return -1;
  return parse_number<int>(digits).value_or(-1);
}

Result<std::vector<std::string>> alternatives(std::string_view group) {
  std::vector<std::string> out;
  const std::size_t dots = group.find("..");
  if (dots == std::string_view::npos) {
    const std::vector<std::string_view> listed = split(group, ',');
    return std::vector<std::string>(listed.begin(), listed.end());
  }
  const std::string_view low = group.substr(0, dots);
  const int first = number(low);
  const int last = number(group.substr(dots + 2));
  if (first < 0 || last < first || static_cast<std::size_t>(last - first) >= kMaxShards) {
    return Error{fmt::format("{{{}}} is not a range of shards", printable(group)), {}, kFix};
  }
  for (int value = first; value <= last; ++value) {
    std::string text = std::to_string(value);
    // Leading zeros as in the lower bound: {000..007}.
    if (text.size() < low.size()) text.insert(0, low.size() - text.size(), '0');
    out.push_back(std::move(text));
  }
  return out;
}

}  // namespace

Result<std::vector<std::string>> expand_braces(const std::string& pattern) {
  std::vector<std::string> out = {""};
  std::string_view rest = pattern;
  while (true) {
    const std::size_t open = rest.find('{');
    for (std::string& name : out) name += rest.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = rest.find('}', open);
    if (close == std::string_view::npos) {
      return Error{"a brace that is not closed", {pattern}, kFix};
    }
    const auto group = alternatives(rest.substr(open + 1, close - open - 1));
    if (!group) return group.error();
    if (group->size() > kMaxShards / out.size()) {
      return Error{fmt::format("more than {} shards", kMaxShards), {pattern}, kFix};
    }
    std::vector<std::string> longer;
    for (const std::string& name : out) {
      for (const std::string& middle : *group) longer.push_back(name + middle);
    }
    out = std::move(longer);
    rest.remove_prefix(close + 1);
  }
}

}  // namespace lockstep::runtime
