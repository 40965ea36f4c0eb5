// Lines of a log, and the prefixes that launchers add. Shared by the readers of logs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/formats/format.h"
#include "trace/ids.h"

namespace lockstep::trace {

// Iterates over the lines of a text, without their ends ("\n", "\r\n", or "\r" alone, as progress
// bars write it), and without a byte order mark before the first one. Lines longer than
// kLongestLine are cut.
class LogLines {
 public:
  explicit LogLines(std::string_view text) : rest_(text) {}

  static constexpr std::size_t kLongestLine = std::size_t{1} << 16U;

  std::optional<std::string_view> next();
  int number() const { return number_; }  // of the current line, 1-based; stays at INT32_MAX

 private:
  std::string_view rest_;
  int number_ = 0;
};

// The global rank in PyTorch's prefix "[rank3]:"; nothing where there is none. (torchrun's
// "[default3]:" and "[trainer3]:" are ranks within a node, and are ignored.)
std::optional<Rank> rank_in_prefix(std::string_view line);

// The rank in a log's name, if the name contains "rank": other numbers in names of logs are mostly
// those of processes and jobs.
std::optional<Rank> rank_of_file(const TraceFile& file);

// The number directly after `key` ("SeqNum=", "rank "), in base 10, or 16 with or without "0x". Of
// several occurrences of the key, the first that a number follows counts. Nothing where there is
// none.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view key,
                                         int base = 10);

// The word directly after `key`, up to a blank, comma or bracket; empty where there is none.
std::string_view word_after(std::string_view text, std::string_view key);

// The head (64 KiB) and the tail (1 MiB) of a file, in which log formats look for their messages:
// logs begin with anything, and the watchdog writes last.
struct LogSample {
  std::string_view head, tail;

  // Whether `speaks(text)` holds for one of the two.
  template <class Speaks>
  bool any(Speaks speaks) const {
    return speaks(head) || speaks(tail);
  }
};
LogSample sample_of(std::string_view bytes);

}  // namespace lockstep::trace
