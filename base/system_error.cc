#include "base/system_error.h"

#include <cerrno>
#include <system_error>

namespace lockstep {

namespace {

std::string fix_of(int code) {
  switch (code) {
    case EACCES:
    case EPERM:
      return "give the user who runs lockstep the right to it, or choose another place";
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
      return "check how the path is written";
    case ELOOP:
      return "its symbolic links lead in a circle: name what they should lead to";
    case ENXIO:
    case ENODEV:
    case EISDIR:
    case EAGAIN:
      return "name a file; this is a socket, a pipe, a device or a folder";
    case EMFILE:
    case ENFILE:
      return "allow more open files: ulimit -n";
    case ENOMEM:
      return "free some memory, or use a machine that has more";
    case ENOSPC:
    case EDQUOT:
      return "free some space";
    case EROFS:
      return "choose a folder that can be written";
    default:
      return "check the disk, or the network share, that it is on";
  }
}

}  // namespace

Error system_error(std::string_view doing, int code, const std::string& path) {
  return {std::string(doing) + ": " + std::generic_category().message(code), {path}, fix_of(code)};
}

}  // namespace lockstep
