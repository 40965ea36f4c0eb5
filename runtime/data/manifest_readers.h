// The readers of manifest.h's three forms. Each appends items in the order of its input.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/data/manifest.h"

namespace lockstep::runtime {

struct ManifestContent {
  std::vector<ManifestItem> items;
  std::vector<std::string> notes;
};

inline constexpr const char* kCaptionsFile = "captions.csv";

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

inline constexpr std::size_t kMostShards = 1'000'000;

// Every brace group of the pattern written out, in order: {000..007} counts with leading zeros,
// {a,b} lists. Without braces: the pattern itself. So WebDataset names shards:
// "train-{000..007}.tar". Errors: a brace that is not closed, a range that runs backwards, more
// than kMostShards.
Result<std::vector<std::string>> expand_braces(const std::string& pattern);

// Reads the members of shards without their images' bytes. Keys must differ over all shards.
Result<ManifestContent> read_webdataset(const std::vector<std::string>& shards);

}  // namespace lockstep::runtime
