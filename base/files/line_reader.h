// Lines of a stream, of bounded length.
#pragma once

#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

inline constexpr std::size_t kLongestLine = std::size_t{16} << 20U;  // bytes

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
