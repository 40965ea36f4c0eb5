// A JSONL manifest: an object a line, {"image": path or null, "text": text or null} and, if wanted,
// "id" and "index". Other keys are passed over.
#include <filesystem>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "base/quantities.h"
#include "base/text.h"
#include "runtime/data/manifest_readers.h"

namespace lockstep::runtime {
namespace {

using Json = nlohmann::json;

// The string under `key`; nothing where it is missing or null. False: something else is there.
bool take_text(const Json& object, const char* key, std::optional<std::string>& to) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return true;
  if (!at->is_string()) return false;
  to = at->get<std::string>();
  return true;
}

// "id" may be a string or an integer, "index" must be an integer. False: something else.
bool take_names(const Json& object, ManifestItem& item) {
  if (const auto id = object.find("id"); id != object.end() && !id->is_null()) {
    if (!id->is_string() && !id->is_number_integer()) return false;
    item.id = id->is_string() ? id->get<std::string>() : id->dump();
  }
  if (const auto index = object.find("index"); index != object.end() && !index->is_null()) {
    if (!index->is_number_integer()) return false;
    item.declared_index = index->get<std::int64_t>();
  }
  return true;
}

//   {"id": "17", "image": "img/17.jpg", "text": "a red circle", "index": 17}
ManifestItem item_of_line(std::string_view line, Location location, ImageFolder& images) {
  ManifestItem item;
  item.location = std::move(location);
  if (line.size() > kLongestLine) {  // parsed JSON takes a multiple of its bytes
    item.problem = fmt::format("the line is longer than {}", bytes_text(kLongestLine));
    return item;
  }
  // Invalid UTF-8 becomes U+FFFD, which the tokenizer drops.
  const Json object = Json::parse(to_utf8(line), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    item.problem = kNotAnObject;
    return item;
  }
  std::optional<std::string> image;
  if (!take_text(object, "image", image) || !take_text(object, "text", item.text)) {
    item.problem = "\"image\" and \"text\" are a string or null";
  } else if (!take_names(object, item)) {
    item.problem = "\"id\" is a string or a whole number, \"index\" a whole number";
  } else if (!image && !item.text) {
    item.problem = "neither an image nor a text";
  } else if (image) {
    images.locate(*image, item);
  }
  return item;
}

// Reports names that occur twice, with the line of the first.
class Names {
 public:
  void check(const char* what, const std::string& name, ManifestItem& item) {
    const auto [first, is_new] = lines_.emplace(name, item.location.line);
    if (is_new || !item.problem.empty()) return;
    item.problem =
        fmt::format("the {} {} stands on line {} already", what, printable(name), first->second);
  }

 private:
  std::unordered_map<std::string, int> lines_;
};

}  // namespace

Result<ManifestContent> read_jsonl(const std::string& file) {
  const Result<std::string> text = read_file(file, kLargestManifest);
  if (!text) return text.error();
  ManifestContent content;
  ImageFolder images(std::filesystem::path(file).parent_path().string());
  Names ids;
  Names indices;
  std::string_view rest = *text;
  for (int line = 1; !rest.empty(); ++line) {
    const std::string_view row = take_until(rest, '\n');
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ManifestItem item = item_of_line(row, {file, line}, images);
    if (!item.id.empty()) ids.check("id", item.id, item);
    if (item.declared_index) indices.check("index", std::to_string(*item.declared_index), item);
    // Without an id the item is named after its image. Several texts for one image are common, so
    // this is after the check for duplicate ids.
    if (item.id.empty() && item.image) item.id = item.image->name;
    content.items.push_back(std::move(item));
  }
  return content;
}

}  // namespace lockstep::runtime
