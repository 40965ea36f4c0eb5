#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/system_error.h"
#include "base/text.h"
#include "runtime/models/safetensors.h"

namespace lockstep {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kReadAtOnce = std::size_t{1} << 30U;  // pread(2) takes no more than 2 GiB

Error not_safetensors(const std::string& path, const std::string& problem) {
  return {"not a whole safetensors file: " + problem,
          {path},
          "name a .safetensors file; if it is one, download or export it again"};
}

// Fills `to` from `offset` on.
Status read_at(int fd, std::uint64_t offset, std::span<std::byte> to, const std::string& path) {
  while (!to.empty()) {
    const ssize_t got =
        ::pread(fd, to.data(), std::min(to.size(), kReadAtOnce), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read the file", errno, path);
    if (got == 0) return not_safetensors(path, "it became shorter while it was read");
    to = to.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return Status::ok();
}

}  // namespace

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      data_begin_(other.data_begin_),
      header_(std::move(other.header_)) {}

SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO without a writer would wait for ever.
  SafetensorsFile file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd_ < 0) return system_error("cannot open the file", errno, path);
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0) return system_error("cannot look at the file", errno, path);
  if (!S_ISREG(info.st_mode)) {
    return Error{"not a regular file", {path}, "name a .safetensors file"};
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < kLengthBytes) {
    return not_safetensors(path, "it has " + plural(size, "byte") +
                                     ", and the length of the "
                                     "header alone takes 8");
  }
  std::array<unsigned char, kLengthBytes> raw{};
  if (const Status read = read_at(file.fd_, 0, std::as_writable_bytes(std::span(raw)), path);
      !read) {
    return read.error();
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::uint64_t{raw[i]} << (8 * i);
  if (length > kLongestHeader) {
    return not_safetensors(path, "its header would have " + std::to_string(length) +
                                     " bytes; the format allows 100000000");
  }
  if (length > size - kLengthBytes) {
    return not_safetensors(path, "its header has " + std::to_string(length) + " bytes, but only " +
                                     std::to_string(size - kLengthBytes) + " follow");
  }
  std::string json(length, '\0');
  if (const Status read =
          read_at(file.fd_, kLengthBytes, std::as_writable_bytes(std::span(json)), path);
      !read) {
    return read.error();
  }
  file.data_begin_ = kLengthBytes + length;
  auto header = parse_safetensors_header(json, size - file.data_begin_);
  if (!header) {
    return Error{header.error().message, {path}, header.error().fix};
  }
  file.header_ = std::move(*header);
  return file;
}

Status SafetensorsFile::read(const StoredTensor& tensor, std::span<std::byte> to) const {
  LOCKSTEP_CHECK(to.size() == tensor.bytes(), "room for exactly the tensor's bytes");
  return read_at(fd_, data_begin_ + tensor.begin, to, path_);
}

}  // namespace lockstep
