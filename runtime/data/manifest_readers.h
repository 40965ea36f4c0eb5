// The readers of manifest.h's three forms, and of what they are written in. Each appends items in
// the order of its input.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "runtime/data/manifest.h"

namespace lockstep::runtime {

struct ManifestContent {
  std::vector<ManifestItem> items;
  std::vector<std::string> notes;
};

inline constexpr const char* kCaptionsFile = "captions.csv";
// ManifestItem::problem of a line of another format.
inline constexpr const char* kNotAnObject = "the line is not a JSON object";

// Finds image files that a manifest names, relative to the folder that the manifest is in.
class ImageFolder {
 public:
  explicit ImageFolder(std::string folder);

  // Fills `item.image`, or `item.problem`: a missing file, no regular one, one outside the folder
  // (also by a symbolic link).
  void locate(const std::string& name, ManifestItem& item);

 private:
  bool is_inside(const std::string& path);

  std::string folder_;
  std::string real_folder_;                       // without symbolic links
  std::unordered_map<std::string, bool> inside_;  // by parent folder
};

Result<ManifestContent> read_captions_folder(const std::string& folder);
Result<ManifestContent> read_jsonl(const std::string& file);

inline constexpr std::size_t kMaxShards = 1'000'000;

// Every brace group of the pattern written out, in order: {000..007} counts with leading zeros,
// {a,b} lists. Without braces: the pattern itself. So WebDataset names shards:
// "train-{000..007}.tar". Errors: a brace that is not closed, a range that runs backwards, more
// than kMaxShards.
Result<std::vector<std::string>> expand_braces(const std::string& pattern);

// Reads the members of shards without their images' bytes. Keys must differ over all shards.
Result<ManifestContent> read_webdataset(const std::vector<std::string>& shards);

// Comma-separated values as in RFC 4180: fields may be quoted, and a quoted field may contain
// commas, line breaks and doubled quotes; lines end in LF or CRLF.
//
//   image,caption
//   0001.png,"a ""large"" circle, red"
struct CsvRow {
  int line = 0;  // where it starts, from 1
  std::vector<std::string> fields;
};

// Reads row by row. Skips empty lines, and a byte order mark at the start.
class CsvReader {
 public:
  // `text` must outlive the reader. `file` is for messages.
  CsvReader(std::string_view text, std::string file);

  // The next row; nothing at the end. Errors, with the line: an unterminated quote, text right
  // after a closing quote. Reading stops there.
  Result<std::optional<CsvRow>> next();

 private:
  Result<std::string> quoted_field();
  std::string plain_field();
  bool at_end_of_row();

  std::string_view rest_;
  std::string file_;
  int line_ = 1;
};

}  // namespace lockstep::runtime
