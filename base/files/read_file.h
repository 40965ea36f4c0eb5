// Reading files: into memory, line by line, and ring files by mapping.
//
// Files are copied, not mapped. If somebody truncates a mapped file (a rotated log, a trace that a
// restarted job overwrites), the next access kills the process with SIGBUS. A copy is merely short,
// which every reader treats as a file that was cut off. A copy also cannot change between two
// accesses. Only ring files are mapped: MappedFile.
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

// The largest file that is read: 16 GiB. A sparse file takes no disk, but all of its size in
// memory.
inline constexpr std::size_t kLargestFile = std::size_t{16} << 30U;

// Reads files one after the other into the same buffer, and keeps at most 16 MiB of it from one
// file to the next. One object per thread.
class FileBuffer {
 public:
  // Enough of a file to recognise its format.
  static constexpr std::size_t kHead = std::size_t{2} << 20U;
  // Called with the first kHead bytes of a file, or all of it: should the rest be read?
  using Wanted = std::function<bool(std::string_view head)>;

  // Reads the whole file at `path`, to its end at the time of reading, or only its head if `wanted`
  // refuses the rest. Also reads files of /proc, whose size is 0, and "-", standard input, whatever
  // it is. The view is aligned for any type
  // and valid until the next call or the end of this object. Errors: the file cannot be opened or
  // read, is not a regular file, has more than `limit` bytes (or than kLargestFile), or memory is
  // short.
  Result<std::string_view> read(const std::string& path, std::size_t limit = kLargestFile,
                                const Wanted& wanted = nullptr);

 private:
  // Makes room for `bytes`, keeping the first `used`. False: out of memory.
  bool make_room(std::size_t bytes, std::size_t used);

  std::unique_ptr<char[]> room_;
  std::size_t capacity_ = 0;
};

// The whole file, of at most `limit` bytes. Errors: as FileBuffer::read().
Result<std::string> read_file(const std::string& path, std::size_t limit);

// The last `most` bytes of the file, or all of it. Errors: as FileBuffer::read().
Result<std::string> read_file_end(const std::string& path, std::size_t most);

// Files that people write: scenarios, plans, machines, calibrations.

// The text of `file`, at most 1 MiB. Errors: as read_file().
Result<std::string> read_input(const std::string& file);

// MappedFile: the bytes of a file, read-only, as they are at each access.
//
// For ring files only. While a job writes one, the stamps of its records tell which records are
// complete (docs/ring-file.md); a copy by read(2) gives no order among its words. Recorders never
// shorten a ring file, but anyone else who truncates a mapped one kills the reader (SIGBUS). All
// other files are read: FileBuffer.
class MappedFile {
 public:
  // Errors: the file cannot be opened or is not a regular file. An empty file gives an empty view.
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

// Reads lines of bounded length from a stream.
class LineReader {
 public:
  // `file` is not owned; `name` is used in messages.
  LineReader(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {}

  // The next line without its line break; empty after the last. Errors: a line longer than
  // kLongestLine; a failed read.
  Result<std::optional<std::string>> next();

  int line() const { return line_; }  // number of the last line, from 1

 private:
  std::FILE* file_;
  std::string name_;
  int line_ = 0;
  std::array<char, std::size_t{1} << 16U> room_{};
  std::string_view rest_;  // what is left in room_
};

}  // namespace lockstep
