#include "cli/standard_input.h"

#include "base/files/read_file.h"

namespace lockstep::cli {

Status StandardInput::take(std::string& path) {
  if (path != "-") return Status::ok();
  if (file_.empty()) {
    const Result<std::string> text = read_input(path);
    if (!text) return text.error();
    if (text->empty())
      return Error{"standard input is empty", {path}, "pipe a file into this command, or name one"};
    folder_.emplace("", "lockstep-input-");
    const std::string file = folder_->path() + "/standard-input.yaml";
    if (const Status kept = write_file(file, *text); !kept) return kept;
    file_ = file;
  }
  path = file_;
  return Status::ok();
}

}  // namespace lockstep::cli
