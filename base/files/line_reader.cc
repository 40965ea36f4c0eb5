#include "base/files/line_reader.h"

#include <algorithm>
#include <cerrno>

#include "base/result.h"
#include "base/text.h"

namespace lockstep {

Result<std::optional<std::string>> LineReader::next() {
  std::string line;
  ++line_;
  while (true) {
    if (rest_.empty()) {
      rest_ = {room_.data(), std::fread(room_.data(), 1, room_.size(), file_)};
      if (std::ferror(file_) != 0) return system_error("cannot read", errno, name_);
      if (rest_.empty()) {
        return line.empty() ? std::optional<std::string>() : std::optional(std::move(line));
      }
    }
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    if (line.size() + end > kLongestLine) {
      return Error{"a line of more than " + bytes_in_words(kLongestLine),
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
