// The files that a user's paths name, unpacked: folders are listed, gzip and tar are opened.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

// One file on disk that may hold traces.
struct FoundFile {
  std::string path;
  bool named = false;  // the user named it, and not the folder that it is in
};

// All files that `paths` name, each once, in an order that does not depend on that of `paths`.
// Folders are not searched recursively; what is no regular file, and hidden files, are passed over.
// Errors: a path that does not exist, a folder that cannot be read.
Result<std::vector<FoundFile>> find_files(const std::vector<std::string>& paths);

// A file's content after unpacking, or one member of an archive.
struct Content {
  std::string_view bytes;
  std::string name;        // "dumps/rank_3", "dumps.tar:rank_3"
  bool truncated = false;  // the packing was cut off or damaged; `bytes` is what came before
};

// Opens the file, unpacks gzip, tar and gzipped tar, and calls `use` for each content, whose bytes
// live during that call. Memory: at most kMostInflation times the file's size, and never more than
// kLargestInflated bytes.
// Errors: the file cannot be opened, is no regular file, or unpacks to too much.
Status for_each_content(const std::string& path, const std::function<void(const Content&)>& use);

inline constexpr std::size_t kLargestInflated = std::size_t{4} << 30U;
// Deflate's own limit is 1032:1; text of a trace packs 5:1 to 40:1.
inline constexpr std::size_t kMostInflation = 1100;

}  // namespace lockstep
