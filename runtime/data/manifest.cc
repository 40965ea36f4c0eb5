#include "runtime/data/manifest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "base/files/read_file.h"
#include "base/quantities.h"
#include "base/result.h"
#include "base/text.h"
#include "runtime/data/manifest_readers.h"

namespace lockstep::runtime {

namespace fs = std::filesystem;

namespace {

bool is_tar_name(const std::string& name) { return name.ends_with(".tar"); }

Result<std::vector<std::string>> expand(const std::vector<std::string>& sources) {
  std::vector<std::string> out;
  for (const std::string& source : sources) {
    std::error_code failed;
    if (fs::exists(source, failed)) {
      out.push_back(source);  // braces may be part of a name
      continue;
    }
    auto names = expand_braces(source);
    if (!names) return names.error();
    out.insert(out.end(), std::make_move_iterator(names->begin()),
               std::make_move_iterator(names->end()));
  }
  return out;
}

Error shorter_than_declared(const ImageSource& image) {
  return {fmt::format("the archive ends within \"{}\"", printable(image.name)),
          {image.file},
          "copy it again from its source, and do not change a data set while it is read"};
}

Result<std::string> read_part(const ImageSource& image) {
  const auto size = static_cast<std::size_t>(image.size);
  const int file = ::open(image.file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return system_error("cannot open the archive", errno, image.file);
  // A header of a few bytes may declare any size: memory is taken for what is there.
  struct stat info {};
  if (::fstat(file, &info) != 0 || info.st_size < image.offset ||
      info.st_size - image.offset < image.size) {
    ::close(file);
    return shorter_than_declared(image);
  }
  std::string bytes(size, '\0');
  std::size_t done = 0;
  ssize_t got = 0;
  while (done < size) {
    got = ::pread(file, bytes.data() + done, size - done,
                  static_cast<off_t>(image.offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  const int cause = errno;
  ::close(file);
  if (got < 0) return system_error("cannot read the archive", cause, image.file);
  if (done < size) return shorter_than_declared(image);
  return bytes;
}

std::uint64_t image_key(const ManifestItem& item) {
  if (!item.image) return 0;
  return std::max<std::uint64_t>(hash_bytes(item.image->name), 1);
}

std::uint64_t text_key(const ManifestItem& item) {
  if (!item.text) return 0;
  return std::max<std::uint64_t>(hash_bytes(*item.text, hash_bytes(item.id + '\0')), 1);
}

}  // namespace

Result<Manifest> Manifest::open(const std::vector<std::string>& sources) {
  const Result<std::vector<std::string>> files = expand(sources);
  if (!files) return files.error();
  if (files->empty()) return Error{"no data set is named", {}, "name a folder or a file"};
  const std::string& first = files->front();
  const bool shards = std::any_of(files->begin(), files->end(), is_tar_name);
  if (files->size() > 1 && !std::all_of(files->begin(), files->end(), is_tar_name)) {
    return Error{"several files, and not all are tar shards",
                 {first},
                 "name one folder, one JSONL file, or tar shards only"};
  }
  Manifest out;
  std::error_code failed;
  const bool folder = fs::is_directory(first, failed);
  Result<ManifestContent> content = folder   ? read_captions_folder(first)
                                    : shards ? read_webdataset(*files)
                                             : read_jsonl(first);
  if (!content) return content.error();
  if (content->items.empty()) {
    return Error{"a data set without items", {first}, "see docs/data.md for what it may be"};
  }
  out.items_ = std::move(content->items);
  out.notes_ = std::move(content->notes);
  // One bad line is an item that is left out; only such lines are a file of another format.
  const bool is_another_format =
      !folder && !shards &&
      std::all_of(out.items_.begin(), out.items_.end(),
                  [](const ManifestItem& item) { return item.problem == kNotAnObject; });
  if (is_another_format) {
    return Error{"not a manifest: no line is a JSON object",
                 {first, out.items_.front().location.line},
                 "name a folder with captions.csv, a JSONL file, or tar shards (*.tar)"};
  }
  for (ManifestItem& item : out.items_) {
    if (item.text && item.text->size() > kLongestText && item.problem.empty()) {
      item.problem = fmt::format("the text is longer than {}", bytes_text(kLongestText));
    }
    out.map_.add(image_key(item), text_key(item));
  }
  return out;
}

std::string Manifest::misalignment() const {
  for (std::int64_t index = 0; index < size(); ++index) {
    const ManifestItem& one = item(index);
    if (!one.declared_index || *one.declared_index == index) continue;
    return fmt::format("{} declares index {}, but is item {}", one.location.str(),
                       *one.declared_index, index);
  }
  return {};
}

Result<std::string> Manifest::read_image(std::int64_t index) const {
  const std::optional<ImageSource>& image = item(index).image;
  LOCKSTEP_CHECK(image.has_value(), "an item with an image");
  if (image->size < 0) return read_file(image->file, kLargestImageFile);
  if (static_cast<std::size_t>(image->size) > kLargestImageFile) {
    return Error{fmt::format("the member \"{}\" is larger than {}", printable(image->name),
                             bytes_text(kLargestImageFile)),
                 {image->file},
                 "leave it out"};
  }
  return read_part(*image);
}

namespace {

std::uint64_t hash_number(std::uint64_t value, std::uint64_t start) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>((value >> shift) & 0xffU);
  }
  return hash_bytes(bytes, start);
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t start) {
  std::uint64_t hash = start;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  }
  return hash;
}

void IndexMap::add(std::uint64_t image, std::uint64_t text) {
  const auto index = static_cast<std::int64_t>(keys_.size());
  keys_.push_back({index, image, text});
  digest_ = hash_number(static_cast<std::uint64_t>(index), digest_);
  digest_ = hash_number(image, digest_);
  digest_ = hash_number(text, digest_);
}

}  // namespace lockstep::runtime
