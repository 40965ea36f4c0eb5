// Reading regular files into memory.
//
// Files are copied and not mapped: a file that somebody truncates while it is mapped (a log that is
// rotated, a trace that a restarted job writes anew) kills the process at the next look, with
// SIGBUS. A copy is short then, which every reader takes for a file that was cut off. Nor can a
// copy change between two looks at it. Only ring files are mapped: mapped_file.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// The largest file that is read at all: 16 GiB. What is sparse takes no disk, but all of it memory.
inline constexpr std::size_t kLargestFile = std::size_t{16} << 30U;

// Reads files one after the other into the same memory, of which it keeps 16 MiB at most from one
// to the next. One object per thread.
class FileBuffer {
 public:
  // So much of a file tells what it is.
  static constexpr std::size_t kHead = std::size_t{2} << 20U;
  // Given the first kHead bytes of a file, or all of it: should the rest be read?
  using Wanted = std::function<bool(std::string_view head)>;

  // The whole file at `path`, up to where it ends when the reader gets there, or its head where the
  // rest is not wanted. Files of /proc, whose size is 0, are read as well. Aligned for any type;
  // valid until the next call, or until this object goes.
  // Errors: the file cannot be opened or read, is no regular file, has more than `limit` bytes
  // (or than kLargestFile), or there is no memory for it.
  Result<std::string_view> read(const std::string& path, std::size_t limit = kLargestFile,
                                const Wanted& wanted = nullptr);

 private:
  // Room for so many bytes, keeping the first `used`. False where there is no memory.
  bool make_room(std::size_t bytes, std::size_t used);

  std::unique_ptr<char[]> room_;
  std::size_t capacity_ = 0;
};

// The whole file, which has at most `limit` bytes. Errors: as FileBuffer::read.
Result<std::string> read_file(const std::string& path, std::size_t limit);

// The last `most` bytes of the file, or all of it. Errors: as FileBuffer::read.
Result<std::string> read_file_end(const std::string& path, std::size_t most);

// Reading the files that people write: scenarios, plans, machines, calibrations.

// The text of `file`, of at most 1 MiB.
// Errors: as read_file().
Result<std::string> read_input(const std::string& file);

}  // namespace lockstep
