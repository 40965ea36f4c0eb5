#include "base/files/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/environment.h"
#include "base/result.h"
#include "base/text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const std::string& path, int error) {
  Error out = system_error("cannot write", error, path);
  if (error == ENOENT) out.fix = "make its folder first, or check how the path is written";
  if (error == EISDIR) out.fix = "name a file, for instance one in this folder";
  return out;
}

// Returns 0, or the errno of the failure.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int write_new(const std::string& path, int flags, std::string_view bytes) {
  const int fd = ::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  const int failed = write_all(fd, bytes);
  // On network file systems close() reports what write() did not.
  const int closed = ::close(fd) == 0 ? 0 : errno;
  return failed != 0 ? failed : closed;
}

}  // namespace

Status write_file(const std::string& path, std::string_view bytes) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    const int failed = write_new(path, 0, bytes);
    return failed == 0 ? Status::ok() : Status(cannot_write(path, failed));
  }
  // A link is followed by hand: rename() would replace the link, not the file that it points to.
  const fs::path target = fs::exists(status) ? fs::canonical(path, ignored) : fs::path(path);
  // In the same folder, since rename() is atomic only within a file system; with the process id, so
  // that two writers do not share it.
  const std::string temporary = target.string() + "." + std::to_string(::getpid()) + ".tmp";
  int failed = write_new(temporary, O_CREAT | O_TRUNC, bytes);
  if (failed == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) failed = errno;
  if (failed == 0) return Status::ok();
  ::unlink(temporary.c_str());
  return cannot_write(path, failed);
}

Status check_writable(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) return cannot_write(path, EISDIR);
  // A device or a pipe is written in place. Opening it here could block, or wake its reader.
  if (fs::exists(status) && !fs::is_regular_file(status))
    return ::access(path.c_str(), W_OK) == 0 ? Status::ok() : Status(cannot_write(path, errno));
  const fs::path target = fs::exists(status) ? fs::canonical(path, ignored) : fs::path(path);
  fs::path folder = target.parent_path();
  if (folder.empty()) folder = ".";
  if (::access((folder / "").c_str(), W_OK | X_OK) != 0) return cannot_write(path, errno);
  return Status::ok();
}

Status make_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  return failed ? system_error("cannot make the folder", failed.value(), path) : Status::ok();
}

WorkFolder::WorkFolder(const std::string& named, const std::string& prefix)
    : path_(named), kept_(!named.empty()) {
  if (!kept_) {
    std::error_code failed;
    std::filesystem::path parent = std::filesystem::temp_directory_path(failed);
    // The variable names no folder, and the path says so.
    if (failed) parent = environment_variable("TMPDIR");
    path_ = (parent / (prefix + "XXXXXX")).string();
    made_ = ::mkdtemp(path_.data()) != nullptr;
    return;
  }
  std::error_code failed;
  std::filesystem::create_directories(path_, failed);
  made_ = !failed && std::filesystem::is_empty(path_, failed);
}

Error WorkFolder::for_user(Error error, const std::string& input) const {
  const std::string& file = error.location.file;
  if (file.starts_with(path_ + "/") && (!kept_ || file.ends_with(".yaml")))
    error.location = {input};
  return error;
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!kept_ && made_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
