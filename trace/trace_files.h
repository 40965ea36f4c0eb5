// The files that a user's paths name, unpacked: folders are listed, gzip and tar are opened.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/read_file.h"
#include "base/result.h"

namespace lockstep::trace {

// One file on disk that may hold traces.
struct FoundFile {
  std::string path;
  bool named = false;  // the user named it, and not the folder that it is in
};

// All files that `paths` name, each once, in an order that does not depend on that of `paths`.
// Folders are not searched recursively; what is no regular file, and hidden files, are passed over.
// `with_logs`: except for the logs that torchrun puts into folders of their own below a folder
// (attempt_1/3/stderr.log, of the last attempt; also with its run id's folder above).
// Errors: a path that does not exist, a folder that cannot be read.
Result<std::vector<FoundFile>> find_files(const std::vector<std::string>& paths,
                                          bool with_logs = false);

// A file's content after unpacking, or one member of an archive.
struct Content {
  std::string_view bytes;
  std::string name;        // "dumps/rank_3", "dumps.tar:rank_3"
  bool truncated = false;  // the packing was cut off or damaged; `bytes` is what came before
};

struct ContentReader {
  // Of a plain file that begins so (FileBuffer::kHead bytes or all): should the rest be read?
  std::function<bool(std::string_view head)> wants;
  // Takes a content, whose bytes live during the call: the whole, or the head of what is not
  // wanted. 8-byte aligned.
  std::function<void(const Content&)> use;
};

// Opens the file, unpacks gzip, tar and gzipped tar, and hands over each content. A plain ring file
// is mapped, since a job may still write it; all else is read, into `buffer` where it is plain.
// Memory: the file's size, and what it unpacks to (inflation_limit() in base/files/gzip.h); of an
// archive one member more. Errors: the file cannot be opened, is no regular file, is larger than
// kLargestFile, or unpacks to too much.
Status for_each_content(const std::string& path, FileBuffer& buffer, const ContentReader& reader);

}  // namespace lockstep::trace
