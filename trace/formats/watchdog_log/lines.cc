#include "trace/formats/watchdog_log/lines.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "base/word_search.h"
#include "trace/formats/log_lines.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kTimeout = "Watchdog caught collective operation timeout: ";
// The beginnings of messages, as far as a line that is wrapped after them still has them …
constexpr std::string_view kTimedOut = "Watchdog caught collective operation timeout:";
constexpr std::string_view kDetected = "Exception (either an error or timeout) detected";
constexpr std::string_view kFailure = "failure detected by watchdog at work sequence id:";
constexpr std::string_view kNumberAlone = "Timeout at NCCL work:";
// … and the end of all but the first.
constexpr std::string_view kLastCompleted = "ast completed ";
constexpr std::string_view kTerminated = "watchdog thread terminated with exception: ";

// [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE,
// NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.
// `cut` becomes true where the message is there but not whole.
std::optional<WatchdogTimeout> timeout_in(std::string_view line, bool& cut) {
  const std::size_t at = line.find(kTimeout);
  if (at == kNpos) return std::nullopt;
  WatchdogTimeout out;
  // The nearest "[Rank 3]" before the message.
  if (const std::size_t rank = line.substr(0, at).rfind("[Rank "); rank != kNpos) {
    out.rank = number_after(line.substr(rank), "[Rank ").value_or(kNone);
  }
  const std::string_view work = line.substr(at + kTimeout.size());
  const std::size_t end = work.find(") ran ");
  if (end == kNpos) {
    cut = true;
    return std::nullopt;
  }
  const std::string_view fields = work.substr(0, end);
  out.op = word_after(fields, "OpType=");
  if (const std::size_t open = fields.find('('); fields.starts_with("Work") && open != kNpos)
    out.library = fields.substr(4, open - 4);
  out.seq = number_after(fields, "SeqNum=").value_or(kNone);
  out.in = std::max<std::int64_t>(kNone, number_after(fields, "NumelIn=").value_or(kNone));
  out.out = std::max<std::int64_t>(kNone, number_after(fields, "NumelOut=").value_or(kNone));
  if (out.op.empty() || out.op.size() > 64) {
    cut = true;
    return std::nullopt;
  }
  return out;
}

// The number after "work: ", as all say now, "NCCL work: ", as PyTorch did, or "HCCL work: ", as
// torch_npu does. `what`: what comes before, without its first letter, which may be a capital.
std::optional<std::int64_t> work_after(std::string_view line, std::string_view what) {
  for (const char* const work : {"work: ", "NCCL work: ", "HCCL work: "})
    if (const auto number = number_after(line, std::string(what) + work)) return number;
  return std::nullopt;
}

// "failure detected by watchdog at work sequence id: 12 PG status: last enqueued work: 14, last
// completed work: 11"; in older versions "Timeout at NCCL work: 12, last enqueued NCCL work: 14,
// …".
std::optional<WatchdogProgress> progress_in(std::string_view line) {
  WatchdogProgress out;
  out.enqueued = work_after(line, "ast enqueued ");
  out.started = work_after(line, "ast started ");
  out.completed = work_after(line, kLastCompleted);
  if (!out.enqueued && !out.completed) return std::nullopt;
  auto failed = number_after(line, "at work sequence id: ");
  if (!failed) failed = number_after(line, "by watchdog at work: ");
  if (!failed) failed = number_after(line, "Timeout at NCCL work: ");
  out.failed = failed.value_or(kNone);
  return out;
}

}  // namespace

// The group in brackets, in its forms over the versions:
//
//   [PG 1 Rank 3]    [PG ID 1 Rank 3]    [PG ID 0 PG GUID 22(TENSOR_PARALLEL) Rank 3]
std::optional<WatchdogGroup> watchdog_group_in(std::string_view line) {
  const std::size_t begin = line.find("[PG ");
  if (begin == kNpos) return std::nullopt;
  std::string_view text = line.substr(begin + 4);
  const std::size_t rank_at = text.find(" Rank ");
  if (rank_at == kNpos) return std::nullopt;
  WatchdogGroup out;
  const auto rank = number_after(text.substr(rank_at), " Rank ");
  if (!rank || *rank < 0) return std::nullopt;
  out.rank = *rank;
  std::string_view name = text.substr(0, rank_at);
  if (const std::size_t guid = name.find("PG GUID "); guid != kNpos) {
    name.remove_prefix(guid + 8);
  } else if (name.starts_with("ID ")) {
    name.remove_prefix(3);
  }
  if (const std::size_t open = name.find('('); open != kNpos) {
    out.desc = name.substr(open + 1);
    if (out.desc.ends_with(')')) out.desc.remove_suffix(1);
    name = name.substr(0, open);
  }
  while (name.ends_with(' ')) name.remove_suffix(1);
  constexpr std::size_t kLongestName = 256;
  if (name.empty() || name.size() > kLongestName || out.desc.size() > kLongestName) {
    return std::nullopt;
  }
  out.name = name;
  return out;
}

std::string watchdog_group_name(const WatchdogGroup& group) {
  if (group.desc == "default_pg" || (group.desc.empty() && group.name == "0")) return "world";
  const bool described = !group.desc.empty() && group.desc != "undefined";
  const std::string name(group.name);
  return described ? fmt::format("{} ({})", group.desc, name) : name;
}

std::optional<WatchdogLine> parse_watchdog_line(std::string_view line) {
  // The cheap test first: most lines of a job's output are other ones.
  const bool may_be = line.find("atchdog") != kNpos || line.find("CCL work: ") != kNpos ||
                      line.find("enqueued work: ") != kNpos;
  if (!may_be) return std::nullopt;
  WatchdogLine out;
  out.timeout = timeout_in(line, out.cut);
  out.progress = progress_in(line);
  if (const std::size_t at = line.find(kTerminated); at != kNpos && !out.timeout && !out.cut) {
    out.error = line.substr(at + kTerminated.size());
    // "[Rank 4] Watchdog caught collective oper": a copy that ended in the line.
    if (out.error.starts_with("[Rank ") && out.error.find(':') == kNpos) {
      out.error = {};
      out.cut = true;
    }
  }
  if (!out.timeout && !out.progress && out.error.empty() && !out.cut) return std::nullopt;
  out.group = watchdog_group_in(line);
  out.prefix = rank_in_prefix(line);
  return out;
}

namespace {

// The file that writes the watchdog's messages stands before them; other libraries quote them.
bool may_begin_message(std::string_view line) {
  static const WordSearch search({"ProcessGroupNCCL", "Watchdog caught collective"});
  return search.occurs_in(line);
}

// "[rank2]:[E424 …] [PG ID 0 PG GU", "[rank2]:[E424 …] [Rank 2] Watchdog c".
bool ends_before_message(std::string_view line) {
  std::string_view rest = line.substr(line.rfind(']') + 1);
  rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
  const auto is_beginning_of = [&](std::string_view sign) { return sign.starts_with(rest); };
  return rest.starts_with('[') || is_beginning_of(kTimedOut) || is_beginning_of(kDetected) ||
         is_beginning_of(kNumberAlone) || is_beginning_of(kFailure);
}

}  // namespace

bool WatchdogLineJoiner::is_wrapped(std::string_view line) {
  if (!may_begin_message(line)) return false;  // nearly all lines
  if (const std::size_t at = line.find(kTimedOut); at != kNpos)
    return line.find(") ran ", at) == kNpos;
  const bool tells_progress = line.find(kDetected) != kNpos || line.find(kNumberAlone) != kNpos ||
                              line.find(kFailure) != kNpos;
  return tells_progress ? !work_after(line, kLastCompleted) : ends_before_message(line);
}

// How much a line tells; 0: it is none of the watchdog's, or it is cut off.
std::size_t WatchdogLineJoiner::told_by(std::string_view line) {
  const auto parsed = parse_watchdog_line(line);
  if (!parsed || parsed->cut) return 0;
  const WatchdogProgress progress = parsed->progress.value_or(WatchdogProgress{});
  return (parsed->timeout ? 1U : 0U) + (progress.failed != kNone ? 1U : 0U) +
         (progress.enqueued ? 1U : 0U) + (progress.completed ? 1U : 0U);
}

std::span<const WatchdogLineJoiner::Line> WatchdogLineJoiner::join(std::string_view line,
                                                                   int number) {
  // A console of 80 columns makes three lines of the longest message.
  constexpr std::size_t kMostLines = 4;
  static const WordSearch prefixes({"[rank", "ProcessGroupNCCL"});
  const bool goes_on = !wrapped_.empty() && !prefixes.occurs_in(line);
  if (goes_on) {
    std::string in_word, between_words;
    for (const auto& [text, of] : wrapped_) {
      in_word += text;
      between_words += text + " ";
    }
    in_word += line;
    between_words += line;
    // If the break is in a word, the other reading may look like a message that says less.
    constexpr std::size_t kAllOfProgress = 3;
    const bool may_go_on = is_wrapped(in_word);
    const std::size_t told = may_go_on ? 0 : told_by(in_word);
    const std::size_t told_otherwise = is_wrapped(between_words) ? 0 : told_by(between_words);
    if (told > 0 || told_otherwise >= (may_go_on ? kAllOfProgress : 1)) {
      wrapped_.clear();
      return keep({{std::move(told >= told_otherwise ? in_word : between_words), number}});
    }
    if (wrapped_.size() + 1 < kMostLines) {
      wrapped_.emplace_back(line, number);
      return {};
    }
  }
  std::vector<Line> ready = std::exchange(wrapped_, {});
  if (is_wrapped(line)) {
    wrapped_.emplace_back(line, number);
  } else {
    ready.emplace_back(line, number);
  }
  return keep(std::move(ready));
}

std::span<const WatchdogLineJoiner::Line> WatchdogLineJoiner::keep(std::vector<Line> lines) {
  if (lines.empty()) return {};
  return handed_out_.emplace_back(std::move(lines));
}

std::string_view after_rank_prefix(std::string_view line) {
  const std::size_t at = line.find("[rank");
  if (at == kNpos) return {};
  const std::size_t end = line.find("]: ", at);
  constexpr std::size_t kLongestPrefix = 16;  // "[rank16383" has 10 characters
  if (end == kNpos || end - at > kLongestPrefix) return {};
  return line.substr(end + 3);
}

}  // namespace lockstep::trace
