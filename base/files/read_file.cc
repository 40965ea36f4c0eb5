#include "base/files/read_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/quantities.h"
#include "base/result.h"
#include "base/text.h"

namespace lockstep {

namespace {

constexpr std::size_t kKept = std::size_t{16} << 20U;      // buffer kept between two files
constexpr std::size_t kSmallest = std::size_t{64} << 10U;  // room for a file without a size
constexpr std::size_t kAtOnce = std::size_t{1} << 30U;     // read(2) takes no more than 2 GiB

// A device or pipe may never end.
Error not_a_file(const std::string& path, mode_t mode) {
  if (S_ISDIR(mode)) return {"this is a folder, and a file is needed", {path}, "name a file in it"};
  return {"not a regular file", {path}, "copy what it holds into a file"};
}

class OpenFile {
 public:
  static Result<OpenFile> open(const std::string& path) {
    // Standard input: a pipe, a terminal or a file. A file is read from where it stands.
    if (path == "-") {
      OpenFile input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
      if (input.fd_ < 0) return system_error("cannot read standard input", errno, path);
      return input;
    }
    // O_NONBLOCK: opening a FIFO without a writer would wait for ever.
    OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.fd_ < 0) return system_error("cannot open the file", errno, path);
    struct stat info {};
    if (::fstat(file.fd_, &info) != 0) return system_error("cannot look at the file", errno, path);
    if (!S_ISREG(info.st_mode)) return not_a_file(path, info.st_mode);
    file.size_ = static_cast<std::size_t>(std::max<off_t>(info.st_size, 0));
    return file;
  }
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  std::size_t size() const { return size_; }  // when it was opened; 0 may also mean "unknown"
  // False if the file cannot be read from any offset but its beginning.
  bool go_to(std::size_t offset) const {
    return ::lseek(fd_, static_cast<off_t>(offset), SEEK_SET) >= 0;
  }
  // Reads until `bytes` have come or the file ends. Returns how many came, or -errno.
  ssize_t read(char* to, std::size_t bytes) const {
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t got = ::read(fd_, to + done, std::min(bytes - done, kAtOnce));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return -errno;
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return static_cast<ssize_t>(done);
  }

 private:
  explicit OpenFile(int fd) : fd_(fd) {}
  int fd_;
  std::size_t size_ = 0;
};

Error cannot_read(ssize_t failure, const std::string& path) {
  return system_error("cannot read the file", static_cast<int>(-failure), path);
}

}  // namespace

bool FileBuffer::make_room(std::size_t bytes, std::size_t used) {
  if (bytes <= capacity_) return true;
  std::unique_ptr<char[]> more(new (std::nothrow) char[bytes]);  // make_unique would write zeros
  if (!more) return false;
  if (used > 0) std::memcpy(more.get(), room_.get(), used);
  room_ = std::move(more);
  capacity_ = bytes;
  return true;
}

Result<std::string_view> FileBuffer::read(const std::string& path, std::size_t limit,
                                          const Wanted& wanted) {
  limit = std::min(limit, kLargestFile);
  const auto too_large = [&] {
    return Error{"the file is larger than " + bytes_text(limit),
                 {path},
                 "is it the file that you mean? no more is read into memory"};
  };
  const Result<OpenFile> file = OpenFile::open(path);
  if (!file) return file.error();
  if (capacity_ > kKept) {
    room_.reset();
    capacity_ = 0;
  }
  bool asked = !wanted;
  // One byte more than expected: then the end is seen without growing the buffer.
  const std::size_t expected = std::min(file->size(), limit) + 1;
  std::size_t room = std::max(asked ? expected : std::min(expected, kHead), kSmallest);
  std::size_t used = 0;
  while (true) {
    // Refused by its size first, before memory is allocated for it; a file without a size is
    // refused below, when more than `limit` has come.
    if (asked && file->size() > limit) return too_large();
    if (!make_room(room, used)) return cannot_read(-ENOMEM, path);
    const std::size_t stop = asked ? capacity_ : std::min(capacity_, kHead);
    const ssize_t got = file->read(room_.get() + used, stop - used);
    if (got < 0) return cannot_read(got, path);
    used += static_cast<std::size_t>(got);
    const bool ended = used < stop;
    if (!asked && (ended || used >= kHead)) {
      asked = true;
      if (!wanted({room_.get(), used})) break;
    }
    if (used > limit) return too_large();
    if (ended) break;
    // More to come: only the head is here so far, the file has no size, or it grew after it was
    // opened.
    if (used == capacity_) room = std::max(expected, std::min(2 * capacity_, limit + 1));
  }
  return std::string_view(room_.get(), used);
}

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  FileBuffer buffer;
  const Result<std::string_view> bytes = buffer.read(path, limit);
  if (!bytes) return bytes.error();
  return std::string(*bytes);
}

Result<std::string> read_file_end(const std::string& path, std::size_t most) {
  const Result<OpenFile> file = OpenFile::open(path);
  if (!file) return file.error();
  if (file->size() > most) file->go_to(file->size() - most);
  // The file may shrink or grow meanwhile: what comes decides.
  std::string out(most, '\0');
  const ssize_t got = file->read(out.data(), out.size());
  if (got < 0) return cannot_read(got, path);
  out.resize(static_cast<std::size_t>(got));
  return out;
}

Result<std::string> read_input(const std::string& file) {
  return read_file(file, std::size_t{1} << 20U);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO without a writer would wait for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return system_error("cannot open the file", errno, path);
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int failed = errno;
    ::close(fd);
    return system_error("cannot look at the file", failed, path);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return not_a_file(path, info.st_mode);
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  // mmap refuses a length of 0.
  if (size == 0) {
    ::close(fd);
    return MappedFile(nullptr, 0);
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int failed = errno;
  ::close(fd);
  if (data == MAP_FAILED) return system_error("cannot map the file", failed, path);
  return MappedFile(static_cast<const char*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

Result<std::optional<std::string>> LineReader::next() {
  std::string line;
  ++line_;
  while (true) {
    if (rest_.empty()) {
      rest_ = {room_.data(), std::fread(room_.data(), 1, room_.size(), file_)};
      if (std::ferror(file_) != 0) return system_error("cannot read", errno, name_);
      if (rest_.empty()) {
        // A last line without a line break counts, too.
        return line.empty() ? std::optional<std::string>() : std::optional(std::move(line));
      }
    }
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    if (line.size() + end > kLongestLine) {
      return Error{"a line of more than " + bytes_text(kLongestLine),
                   {name_, line_},
                   "one JSON object a line"};
    }
    line += rest_.substr(0, end);
    const bool complete = end < rest_.size();
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (complete) return std::optional(std::move(line));
  }
}

}  // namespace lockstep
