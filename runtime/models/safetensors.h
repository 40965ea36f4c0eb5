// Reading and writing safetensors files (format: safetensors_header.h).
//
// The data is read straight into the memory that will hold it and never mapped: a file that is
// truncated while it is read is an error then, not the end of the process (base/files/read_file.h).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/models/safetensors_header.h"

namespace lockstep::runtime {

// An open file whose header was read and checked. Any thread may read.
class SafetensorsFile {
 public:
  // Errors: the file cannot be read, or is not a safetensors file, or a damaged one.
  static Result<SafetensorsFile> open(const std::string& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  // Copies the values of one of header().tensors; `to` has its bytes().
  // Errors: the file cannot be read, or has become shorter.
  Status read(const StoredTensor& tensor, std::span<std::byte> to) const;

 private:
  SafetensorsFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  std::uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

struct TensorToStore {
  std::string name;  // valid UTF-8
  StoredType type = StoredType::F32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // row-major, little-endian; not owned
};

// Writes all of it or nothing: into a temporary file next to `path`, which replaces it once it
// is on the disk. Each tensor begins at a multiple of its type's size.
// Errors: a name twice or not UTF-8, data that is not as large as type and shape say, and whatever
// the system refuses.
Status write_safetensors(const std::string& path, const std::vector<TensorToStore>& tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep::runtime
