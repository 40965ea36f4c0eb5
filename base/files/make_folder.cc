#include "base/files/make_folder.h"

#include <filesystem>
#include <system_error>

#include "base/system_error.h"

namespace lockstep {

Status make_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  return failed ? system_error("cannot make the folder", failed.value(), path) : Status::ok();
}

}  // namespace lockstep
