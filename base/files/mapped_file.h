// MappedFile: a file's bytes, read-only, as they are at each look.
//
// For ring files alone. While a job writes one, only the stamps of its records tell which of them
// are whole (docs/ring-file.md), and a copy made by read(2) has no order among its words. Recorders
// never shorten a ring file; whoever truncates one while it is mapped kills the reader (SIGBUS).
// Everything else is read: base/files/read_file.h.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

class MappedFile {
 public:
  // Errors: the file cannot be opened or is no regular file. An empty file is an empty view.
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Valid while this object lives.
  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, std::size_t size) : data_(data), size_(size) {}
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
