#include "base/result.h"

#include <cerrno>
#include <string_view>
#include <system_error>

#include "base/text.h"

namespace lockstep {

namespace {

// printable() line by line: it would escape the line breaks.
std::string printable_lines(std::string_view text) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) out += printable(line) + "\n";
  out.pop_back();
  return out;
}

// What a user can do about an errno. Codes with the same remedy share a case.
std::string fix_of(int code) {
  switch (code) {
    case EACCES:
    case EPERM:
      return "give the user who runs lockstep access to it, or choose another path";
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
      return "check how the path is written";
    case ELOOP:
      return "its symbolic links form a cycle: name the file that they should lead to";
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

std::string Location::str() const {
  std::string out = file;
  if (line > 0) out += (out.empty() ? "line " : ":") + std::to_string(line);
  if (line > 0 && column > 0) out += ":" + std::to_string(column);
  return out;
}

std::string Error::str() const {
  std::string out = printable(location.str());
  if (!out.empty()) out += ": ";
  out += "error: " + printable_lines(message);
  if (!fix.empty()) out += "\n  fix: " + printable_lines(fix);
  return out;
}

std::string Error::summary() const {
  std::string out = printable(location.str());
  if (!out.empty()) out += ": ";
  return out + printable(message);
}

Error system_error(std::string_view doing, int code, const std::string& path) {
  return {std::string(doing) + ": " + std::generic_category().message(code), {path}, fix_of(code)};
}

Error renamed(Error error, const FileNames& name_of) {
  error.location.file = name_of(error.location.file);
  return error;
}

}  // namespace lockstep
