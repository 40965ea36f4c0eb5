#include "runtime/models/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "base/text.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kReadAtOnce = std::size_t{1} << 30U;  // pread(2) takes no more than 2 GiB

Error not_safetensors(const std::string& path, const std::string& problem) {
  return {fmt::format("not a whole safetensors file: {}", problem),
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
    return not_safetensors(
        path,
        fmt::format("it has {}, and the length of the header alone takes 8", plural(size, "byte")));
  }
  std::array<unsigned char, kLengthBytes> raw{};
  if (const Status read = read_at(file.fd_, 0, std::as_writable_bytes(std::span(raw)), path);
      !read) {
    return read.error();
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::uint64_t{raw[i]} << (8 * i);
  if (length > kLongestHeader) {
    return not_safetensors(
        path, fmt::format("its header would have {} bytes; the format allows 100000000", length));
  }
  if (length > size - kLengthBytes) {
    return not_safetensors(path, fmt::format("its header has {} bytes, but only {} follow", length,
                                             size - kLengthBytes));
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

namespace {

static_assert(std::endian::native == std::endian::little, "the format's values are little-endian");

constexpr std::size_t kWrittenAtOnce = std::size_t{1} << 30U;

// A temporary file next to `target`; removed again unless it was renamed to `target`.
class Unfinished {
 public:
  explicit Unfinished(const std::string& target)
      : target_(target),
        path_(fmt::format("{}.{}.tmp", target, ::getpid())),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (!placed_) ::unlink(path_.c_str());
  }

  bool opened() const { return fd_ >= 0; }

  // 0, or an errno, as of all that follow.
  int write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), kWrittenAtOnce));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return errno;
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
    return 0;
  }

  // The data reaches the disk before the name does, and the name before this returns: a machine
  // that dies leaves the old file or the new one.
  int put_in_place() {
    if (::fsync(fd_) != 0) return errno;
    if (::rename(path_.c_str(), target_.c_str()) != 0) return errno;
    placed_ = true;
    const std::string folder = std::filesystem::path(target_).parent_path().string();
    const int fd =
        ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int failed = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    // Some file systems have no fsync for folders; the file itself is whole.
    return failed == EINVAL ? 0 : failed;
  }

 private:
  std::string target_;
  std::string path_;
  int fd_;
  bool placed_ = false;
};

// The order in which the data is stored: the widest types first, which aligns all of them.
std::vector<const TensorToStore*> in_order(const std::vector<TensorToStore>& tensors) {
  std::vector<const TensorToStore*> order;
  order.reserve(tensors.size());
  for (const TensorToStore& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorToStore* a, const TensorToStore* b) {
    return bytes_of(a->type) > bytes_of(b->type);
  });
  return order;
}

// The JSON header, padded so that the data after it is aligned.
std::string header_of(const std::vector<const TensorToStore*>& order,
                      const std::map<std::string, std::string>& metadata) {
  using Json = nlohmann::ordered_json;
  Json header = Json::object();
  // Appended without a search for the name: write_safetensors() parses the text and refuses a name
  // that appears twice.
  Json::object_t& members = header.get_ref<Json::object_t&>();
  if (!metadata.empty()) members.emplace_back("__metadata__", metadata);
  std::uint64_t position = 0;
  for (const TensorToStore* tensor : order) {
    const std::uint64_t end = position + tensor->data.size();
    members.emplace_back(tensor->name, Json{{"dtype", std::string(name_of(tensor->type))},
                                            {"shape", tensor->shape},
                                            {"data_offsets", {position, end}}});
    position = end;
  }
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');  // the data begins at a multiple of 8
  return json;
}

}  // namespace

Status write_safetensors(const std::string& path, const std::vector<TensorToStore>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  const auto order = in_order(tensors);
  std::string json;
  try {
    json = header_of(order, metadata);
  } catch (const nlohmann::json::type_error&) {
    return Error{
        "cannot be stored: a name, or the metadata, is not valid UTF-8", {path}, "use UTF-8 text"};
  }
  std::uint64_t data_bytes = 0;
  for (const TensorToStore& tensor : tensors) data_bytes += tensor.data.size();
  // What every reader checks, before anything is written.
  if (const auto parsed = parse_safetensors_header(json, data_bytes); !parsed) {
    return Error{fmt::format("cannot be stored: {}", parsed.error().message),
                 {path},
                 "give each tensor its own name, and the data that its shape says"};
  }
  Unfinished file(path);
  if (!file.opened()) return system_error("cannot make a file next to it", errno, path);
  std::string head(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(json.size() >> (8 * i));
  head += json;
  int failed = file.write(std::as_bytes(std::span(head)));
  for (std::size_t i = 0; failed == 0 && i < order.size(); ++i) failed = file.write(order[i]->data);
  if (failed == 0) failed = file.put_in_place();
  if (failed != 0) return system_error("cannot write the file", failed, path);
  return Status::ok();
}

}  // namespace lockstep::runtime
