// Reading files: into memory, by lines of a stream, and ring files as they are mapped.
//
// Files are copied and not mapped: a file that somebody truncates while it is mapped (a log that is
// rotated, a trace that a restarted job writes anew) kills the process at the next look, with
// SIGBUS. A copy is short then, which every reader takes for a file that was cut off. Nor can a
// copy change between two looks at it. Only ring files are mapped: MappedFile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
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

// MappedFile: a file's bytes, read-only, as they are at each look.
//
// For ring files alone. While a job writes one, only the stamps of its records tell which of them
// are whole (docs/ring-file.md), and a copy made by read(2) has no order among its words. Recorders
// never shorten a ring file; whoever truncates one while it is mapped kills the reader (SIGBUS).
// Everything else is read: FileBuffer.
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

inline constexpr std::size_t kLongestLine = std::size_t{16} << 20U;  // bytes

// Lines of a stream, of bounded length.
class LineReader {
 public:
  // `file` stays the caller's; `name` stands in messages.
  LineReader(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {}

  // The next line without its end; nothing behind the last.
  // Errors: a line of more than kLongestLine, or reading fails.
  Result<std::optional<std::string>> next();

  int line() const { return line_; }  // the number of the last one, from 1

 private:
  std::FILE* file_;
  std::string name_;
  int line_ = 0;
  std::array<char, std::size_t{1} << 16U> room_{};
  std::string_view rest_;  // of room_
};

}  // namespace lockstep
