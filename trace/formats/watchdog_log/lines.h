// Parses single lines of PyTorch's NCCL watchdog. Internal to the reader of its logs.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/ids.h"

namespace lockstep::trace {

// "[PG ID 0 PG GUID 22(TENSOR_PARALLEL) Rank 3]", "[PG 1 Rank 3]".
struct WatchdogGroup {
  std::string_view name;  // its GUID; without one, its number
  std::string_view desc;
  std::int64_t rank = kNone;  // group rank
};

// The group that a line names in brackets; nothing where it names none.
std::optional<WatchdogGroup> watchdog_group_in(std::string_view line);

// "world" for the default group, otherwise "TENSOR_PARALLEL (22)", or "22" without a description.
std::string watchdog_group_name(const WatchdogGroup& group);

// "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, …) ran".
struct WatchdogTimeout {
  std::int64_t seq = kNone;  // from 1; kNone: not in the message
  std::string_view op;
  std::string_view library;              // "NCCL" of "WorkNCCL("
  std::int64_t in = kNone, out = kNone;  // elements
  std::int64_t rank = kNone;             // "[Rank 3]": group rank
};

// "last enqueued work: 14, last completed work: 11"; from 1, -1 before the first.
struct WatchdogProgress {
  std::int64_t failed = kNone;  // "at work: 12", "at work sequence id: 12"
  std::optional<std::int64_t> enqueued, started, completed;
};

struct WatchdogLine {
  std::optional<Rank> prefix;  // "[rank3]:"
  std::optional<WatchdogGroup> group;
  std::optional<WatchdogTimeout> timeout;
  std::optional<WatchdogProgress> progress;
  std::string_view error;  // "terminated with exception: …", where that is not a timeout
  bool cut = false;        // a line of the watchdog that is cut off
};

// Parses a line. Nothing where it is not one of the watchdog's. The views point into `line`.
std::optional<WatchdogLine> parse_watchdog_line(std::string_view line);

// Makes whole again what consoles and collectors of logs wrapped, in a word or between two:
//
//   [rank2]:[E424 …] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpTy
//   pe=BROADCAST, NumelIn=112, …) ran for 1800010 milliseconds before timing out.
//
// Lines that do not make one come out as they went in.
class WatchdogLineJoiner {
 public:
  // Calls take(line, number) for each line that is whole, if more is no longer to come of it. A
  // view of `line` itself is as good as `line`; others stay valid as long as the joiner does.
  template <class Take>
  void add(std::string_view line, int number, Take&& take) {
    if (wrapped_.empty() && !is_wrapped(line)) return take(line, number);  // nearly all
    for (const auto& [text, of] : join(line, number)) take(std::string_view(text), of);
  }
  // At the end of the text.
  template <class Take>
  void finish(Take&& take) {
    for (const auto& [text, of] : keep(std::exchange(wrapped_, {})))
      take(std::string_view(text), of);
  }

 private:
  using Line = std::pair<std::string, int>;  // with its number

  // Whether the line begins a message and does not end it.
  static bool is_wrapped(std::string_view line);
  static std::size_t told_by(std::string_view line);
  std::span<const Line> join(std::string_view line, int number);
  std::span<const Line> keep(std::vector<Line> lines);

  std::vector<Line> wrapped_;                 // the beginning of a message, and what followed it
  std::deque<std::vector<Line>> handed_out_;  // so that views into them stay valid
};

// The text after PyTorch's prefix: "[rank1]: ValueError: no more batches" gives "ValueError: no
// more batches". Empty where the line has no such prefix. Keeps indentation.
std::string_view after_rank_prefix(std::string_view line);

}  // namespace lockstep::trace
