#include "runtime/data/write_file.h"

#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/system_error.h"

namespace lockstep {

Status write_file(const std::string& path, std::string_view bytes) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return system_error("cannot write the file", errno, path);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int cause = errno;
  if (std::fclose(file) != 0 || !written) {
    return system_error("cannot write all of the file", written ? errno : cause, path);
  }
  return Status::ok();
}

}  // namespace lockstep
