// Finds and unpacks the files that a user's paths name: folders are listed, packed files opened.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/read_file.h"
#include "base/result.h"
#include "trace/ids.h"

namespace lockstep::trace {

// One file on disk that may hold traces.
struct FoundFile {
  std::string path;
  bool named = false;  // the user named the file itself, rather than its folder
};

struct FindOptions {
  // Also the logs that torchrun puts into subfolders (attempt_1/3/stderr.log, of the last attempt;
  // also below a run id's folder).
  bool with_logs = false;
  int levels = 0;  // how deep folders in a folder are searched
};

// All files that `paths` name, each once, sorted by path; "-" is standard input. Hidden files and
// what is not a regular file are skipped. Errors: a path that does not exist, a folder that cannot
// be read.
Result<std::vector<FoundFile>> find_files(const std::vector<std::string>& paths,
                                          const FindOptions& options = {});

// A file's content after unpacking, or one member of an archive.
struct Content {
  std::string_view bytes;
  std::string name;        // "dumps/rank_3", "dumps.tar:rank_3"
  bool truncated = false;  // the archive was cut off or damaged; `bytes` is what came before
  bool member = false;     // of an archive, as a file in a folder: the user did not name it
  // When the file, or the member of an archive, was last written, since 1970, in whole seconds;
  // kNoTime: not known.
  Nanos written = kNoTime;
};

struct ContentReader {
  // Whether to read the rest of a plain file with this head (FileBuffer::kHead bytes or all).
  std::function<bool(std::string_view head)> wants;
  // Receives a content: the whole of it, or the head of one that is not wanted. The bytes are valid
  // during the call, and 8-byte aligned.
  std::function<void(const Content&)> use;
};

// Opens the file, unpacks gzip, xz, zstd, tar and zip in up to four layers, and passes each content
// to `reader`. A plain ring file is mapped, since a job may still write it; everything else is
// read, plain files into `buffer`. Memory: the file's size plus what it unpacks to, all layers
// together (inflation_limit() in base/files/gzip.h); for a tar archive one member more. Errors: the
// file cannot be opened, is not a regular file, is larger than kLargestFile, or unpacks to too
// much.
Status for_each_content(const std::string& path, FileBuffer& buffer, const ContentReader& reader);

}  // namespace lockstep::trace
