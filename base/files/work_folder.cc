#include "base/files/work_folder.h"

#include <cstdlib>
#include <filesystem>

namespace lockstep {

WorkFolder::WorkFolder(const std::string& named, const std::string& prefix)
    : path_(named), kept_(!named.empty()) {
  if (!kept_) {
    path_ = (std::filesystem::temp_directory_path() / (prefix + "XXXXXX")).string();
    made_ = ::mkdtemp(path_.data()) != nullptr;
    return;
  }
  std::error_code failed;
  std::filesystem::create_directories(path_, failed);
  made_ = !failed && std::filesystem::is_empty(path_, failed);
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!kept_ && made_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
