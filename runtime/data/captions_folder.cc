// A folder with images and captions.csv, whose header names the columns "image" and "caption".
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/text.h"
#include "runtime/data/manifest_readers.h"

namespace lockstep::runtime {

namespace fs = std::filesystem;

namespace {

// Directory entries that are listed in the search for images without a caption.
constexpr std::size_t kMaxFilesListed = 1'000'000;

struct Columns {
  std::size_t image = 0;
  std::size_t caption = 0;
  std::size_t count = 0;
};

Result<Columns> find_columns(CsvReader& reader, const std::string& file) {
  const Error missing{"the first line does not name the columns image and caption",
                      {file, 1},
                      "begin the file with the line: image,caption"};
  const Result<std::optional<CsvRow>> header = reader.next();
  if (!header) return header.error();
  if (!*header) return missing;
  const std::vector<std::string>& names = (*header)->fields;
  const auto image = std::find(names.begin(), names.end(), "image");
  const auto caption = std::find(names.begin(), names.end(), "caption");
  if (image == names.end() || caption == names.end()) return missing;
  return Columns{static_cast<std::size_t>(image - names.begin()),
                 static_cast<std::size_t>(caption - names.begin()), names.size()};
}

bool is_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

// Adds a note about images in the folder (not below it) that no row names.
void note_images_without_caption(const std::string& folder, const std::set<std::string>& named,
                                 std::vector<std::string>& notes) {
  std::error_code failed;
  std::size_t count = 0;
  std::size_t listed = 0;
  std::string first;
  for (fs::directory_iterator at(folder, failed), end;
       !failed && at != end && listed < kMaxFilesListed; at.increment(failed), ++listed) {
    const std::string name = at->path().filename().string();
    if (!is_image_name(name) || named.contains(name)) continue;
    if (count++ == 0 || name < first) first = name;
  }
  if (count == 0) return;
  notes.push_back(fmt::format("{} in the folder without a row in {}, \"{}\" first",
                              plural(count, "image"), kCaptionsFile, printable(first)));
}

ManifestItem item_of_row(CsvRow& row, const Columns& columns, const std::string& file,
                         ImageFolder& images) {
  ManifestItem item;
  item.location = {file, row.line};
  if (row.fields.size() != columns.count) {
    item.problem = fmt::format("the row has {} and the header {}",
                               plural(row.fields.size(), "field"), columns.count);
    return item;
  }
  const std::string& image = row.fields[columns.image];
  std::string& caption = row.fields[columns.caption];
  item.id = image;
  if (!caption.empty()) item.text = std::move(caption);
  if (!image.empty()) images.locate(image, item);
  if (image.empty() && !item.text) item.problem = "neither an image nor a text";
  return item;
}

}  // namespace

Result<ManifestContent> read_captions_folder(const std::string& folder) {
  const std::string file = (fs::path(folder) / kCaptionsFile).string();
  const Result<std::string> text = read_file(file, kLargestManifest);
  if (!text) return text.error();
  CsvReader reader(*text, file);
  const Result<Columns> columns = find_columns(reader, file);
  if (!columns) return columns.error();

  ManifestContent content;
  ImageFolder images(folder);
  std::set<std::string> named;
  std::unordered_map<std::uint64_t, int> lines;  // of a pair of image and caption
  while (true) {
    Result<std::optional<CsvRow>> row = reader.next();
    if (!row) return row.error();
    if (!*row) break;
    ManifestItem item = item_of_row(**row, *columns, file, images);
    // Several captions for one image are common; the same pair twice is a mistake. Pairs are
    // compared by hash, which takes less memory than the texts.
    const std::uint64_t pair = hash_bytes(item.text.value_or(""), hash_bytes(item.id + '\0'));
    const auto [first, is_new] = lines.emplace(pair, item.location.line);
    if (!is_new && item.problem.empty()) {
      item.problem = fmt::format("the same image and caption are on line {}", first->second);
    }
    named.insert(item.id);
    content.items.push_back(std::move(item));
  }
  note_images_without_caption(folder, named, content.notes);
  return content;
}

namespace fs = std::filesystem;

namespace {

bool is_below(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

}  // namespace

ImageFolder::ImageFolder(std::string folder) : folder_(std::move(folder)) {
  std::error_code failed;
  real_folder_ = fs::canonical(folder_.empty() ? "." : folder_, failed).string();
}

bool ImageFolder::is_inside(const std::string& path) {
  std::error_code failed;
  const bool link = fs::is_symlink(fs::symlink_status(path, failed));
  if (link) return is_below(fs::canonical(path, failed), real_folder_) && !failed;
  // Many files share their parent folder, so its result is cached.
  const std::string parent = fs::path(path).parent_path().string();
  const auto [known, is_new] = inside_.emplace(parent, false);
  if (is_new) {
    const fs::path real = fs::canonical(parent.empty() ? "." : parent, failed);
    known->second = !failed && is_below(real, real_folder_);
  }
  return known->second;
}

void ImageFolder::locate(const std::string& name, ManifestItem& item) {
  if (name.find('\0') != std::string::npos) {
    item.problem = "the name of the image holds a zero byte";
    return;
  }
  const std::string path = (fs::path(folder_) / name).string();
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    item.problem = fmt::format("the image \"{}\" is not there", printable(name));
  } else if (!S_ISREG(info.st_mode)) {
    item.problem = fmt::format("the image \"{}\" is not a file", printable(name));
  } else if (!is_inside(path)) {
    item.problem =
        fmt::format("the image \"{}\" is outside the data set's folder", printable(name));
  } else {
    item.image = ImageSource{name, path, 0, -1};
  }
}

CsvReader::CsvReader(std::string_view text, std::string file)
    : rest_(text), file_(std::move(file)) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

Result<std::optional<CsvRow>> CsvReader::next() {
  while (!rest_.empty() && at_end_of_row()) {
  }
  if (rest_.empty()) return std::optional<CsvRow>();
  CsvRow row{line_, {}};
  while (true) {
    if (rest_.starts_with('"')) {
      Result<std::string> field = quoted_field();
      if (!field) return field.error();
      row.fields.push_back(std::move(*field));
    } else {
      row.fields.push_back(plain_field());
    }
    if (rest_.empty() || at_end_of_row()) return std::optional(std::move(row));
    if (!rest_.starts_with(',')) {
      return Error{"text after the closing quote of a field",
                   {file_, line_},
                   "double the quotes inside a quoted field: \"\""};
    }
    rest_.remove_prefix(1);
    if (rest_.empty()) {
      row.fields.emplace_back();
      return std::optional(std::move(row));
    }
  }
}

Result<std::string> CsvReader::quoted_field() {
  const int start = line_;
  std::string field;
  rest_.remove_prefix(1);
  while (true) {
    const std::size_t quote = rest_.find('"');
    if (quote == std::string_view::npos) {
      return Error{"a quote that is never closed",
                   {file_, start},
                   "close it, or double a quote that belongs to the text: \"\""};
    }
    field += rest_.substr(0, quote);
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    field += '"';
    rest_.remove_prefix(1);
  }
  line_ += static_cast<int>(std::count(field.begin(), field.end(), '\n'));
  return field;
}

std::string CsvReader::plain_field() {
  std::size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
  if (end < rest_.size() && rest_[end] == '\n' && end > 0 && rest_[end - 1] == '\r') --end;
  std::string field(rest_.substr(0, end));
  rest_.remove_prefix(end);
  return field;
}

// Takes a line break, if there is one.
bool CsvReader::at_end_of_row() {
  const std::size_t size = rest_.starts_with("\r\n") ? 2 : rest_.starts_with('\n') ? 1 : 0;
  if (size == 0) return false;
  rest_.remove_prefix(size);
  ++line_;
  return true;
}

}  // namespace lockstep::runtime
