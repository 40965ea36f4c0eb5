// Lines of a log, and what launchers put in front of them. Shared by the readers of logs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/formats/format.h"
#include "trace/ids.h"

namespace lockstep::trace {

// Hands out the lines of a text, without their ends ("\n", "\r\n"); longer ones than kLongestLine
// are cut. Also "\r" alone ends a line, as progress bars write it.
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

// The global rank that PyTorch puts before what it logs: "[rank3]:". Nothing where there is none.
// (torchrun's "[default3]:" and "[trainer3]:" are ranks within a node, and are not taken.)
std::optional<Rank> rank_in_prefix(std::string_view line);

// The rank in a log's name, where that says "rank": the numbers in names of logs are mostly those
// of processes and jobs.
std::optional<Rank> rank_of_file(const TraceFile& file);

// A number right behind `key` ("SeqNum=", "rank "), base 10, or 16 with or without "0x". Nothing
// where the key is missing or no number follows; the first key that a number follows counts.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view key,
                                         int base = 10);

// The word right behind `key`, up to a blank, comma or bracket; empty where there is none.
std::string_view word_after(std::string_view text, std::string_view key);

// The head and the tail of a file in which formats of logs look for what they know themselves by:
// logs begin with anything, and what matters may come last.
struct LogSample {
  std::string_view head, tail;
};
LogSample sample_of(std::string_view bytes);

}  // namespace lockstep::trace
