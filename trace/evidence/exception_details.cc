#include "trace/evidence/exception_details.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kUnused =
    "RuntimeError: Expected to have finished reduction in the prior iteration";
constexpr std::string_view kWithout = "; without gradient: ";

// "EI0006: [PID: 129] …", "[PID: 129] 2025-12-24-14:10:31.094.189
// Communication_Error_Timeout(EI0002): …".
bool begins_with_hccl_code(std::string_view line) {
  if (line.starts_with(kOfHccl)) return true;
  constexpr std::size_t kLongestTitle = 160;  // with the process and the time
  constexpr std::size_t kCode = std::string_view("EI0002").size();
  const std::size_t at = line.substr(0, kLongestTitle).find(kOfHccl);
  return at != kNpos && at > 0 && at + kCode <= line.size() && line[at - 1] == '(' &&
         line.substr(at + kCode).starts_with("):");
}

// Adds what still fits to a note's text.
void append(RankNote& note, std::string_view more) {
  if (note.text.size() < RankNote::kLongest)
    note.text += more.substr(0, RankNote::kLongest - note.text.size());
}

}  // namespace

void add_last_error(RankNote& exception, std::string_view text) {
  if (exception.text.size() + text.size() + 2 <= RankNote::kLongest)
    exception.text += fmt::format("; {}", trimmed(text));
  if (!exception.ends()) return;
  if (mentions_a_peer(text)) exception.kind = RankNote::Kind::peer_lost;
  if (mentions_memory(text)) exception.kind = RankNote::Kind::out_of_memory;
}

bool add_hccl_error(RankNote& exception, std::string_view text) {
  if (const auto rank = number_after(text, kRankOfAscend);
      rank && exception.rank.value == kNone && contains_text(text, "(PID:")) {
    if (is_possible_rank(*rank, kMaxWorldSize))
      exception.rank = Rank(static_cast<std::int32_t>(*rank));
    return true;
  }
  const std::string_view reason = trimmed(text);
  const bool is_device = reason.starts_with(kAbnormalDevice);
  if (!is_device && !begins_with_hccl_code(reason)) return false;
  std::string told(reason);
  if (is_device) {
    // The device says most: what is too long before it makes room.
    const std::string whole = fmt::format("EI0002 {}", reason);
    const HcclWait wait = hccl_wait_in(whole).value_or(HcclWait{});
    told = fmt::format("{}{}], ExceptionType:[{}]", kAbnormalDevice, wait.device.substr(0, 64),
                       wait.happened.substr(0, 64));
    const std::size_t room = RankNote::kLongest - told.size() - 2;
    if (exception.text.size() > room) exception.text.resize(room);
  }
  if (exception.text.size() + 2 < RankNote::kLongest)
    exception.text += fmt::format(
        "; {}", std::string_view(told).substr(0, RankNote::kLongest - exception.text.size() - 2));
  if (exception.ends() && mentions_a_peer(reason)) exception.kind = RankNote::Kind::peer_lost;
  return true;
}

void UnusedParameters::remember(const RankNote& note, std::size_t index) {
  if (mentions_unused_parameters(note.text)) noted_.emplace(note.rank, index);
}

std::string told_exception(std::string_view exception) {
  constexpr std::string_view kWhile = " while rank ";
  constexpr std::size_t kLongestSide = 200;
  const std::size_t at = says_order_differs(exception) ? exception.find(kWhile) : kNpos;
  if (at == kNpos || exception.size() <= RankNote::kLongest) return std::string(exception);
  const auto side = [](std::string_view text) {
    return text.size() <= kLongestSide ? std::string(text)
                                       : fmt::format("{} …", text.substr(0, kLongestSide));
  };
  return side(exception.substr(0, at)) + side(exception.substr(at));
}

void add_other_ranks(RankNote& exception, Rank rank, std::string_view raised) {
  append(exception, fmt::format("; rank {}: {}", rank.value, raised));
}

bool note_process_shape(RankNote& exception, std::string_view text) {
  if (!says_shapes_differ(exception.text)) return false;
  constexpr std::string_view kOperation = "Operation: `", kProcess = "- Process ";
  constexpr std::string_view kFirst = ": Process 0: ";
  const std::string_view line = trimmed(text);
  if (line.starts_with("Input shapes:")) return true;
  const auto add = [&](std::string_view more) {
    if (exception.text.ends_with(kMoreShapes)) return;
    const std::size_t room = RankNote::kLongest - kMoreShapes.size();
    const bool fits = exception.text.size() + more.size() <= room;
    if (exception.text.size() > room) exception.text.resize(room);
    exception.text += fits ? more : kMoreShapes;
  };
  if (line.starts_with(kOperation)) {
    const std::string_view name = line.substr(kOperation.size());
    add(fmt::format("; {}", name.substr(0, std::min(name.find('`'), name.size()))));
    return true;
  }
  if (!line.starts_with(kProcess)) return false;
  const std::string_view process =
      line.substr(kProcess.size() - std::string_view("Process ").size());
  const std::size_t shape = process.find(": ");
  const std::size_t first = exception.text.find(kFirst);
  if (shape == kNpos) return true;
  if (first == kNpos) {
    add(fmt::format(": {}", process));
    return true;
  }
  const std::string_view of_first = std::string_view(exception.text).substr(first + kFirst.size());
  const std::string_view its = process.substr(shape + 2);
  const std::string_view behind =
      of_first.starts_with(its) ? of_first.substr(its.size()) : std::string_view("differs");
  if (!behind.empty() && !behind.starts_with(", Process ") && behind != kMoreShapes)
    add(fmt::format(", {}", process));
  return true;
}

bool OrderWarnings::take(std::string_view text, Rank rank, LogNotes& notes) {
  constexpr std::string_view kOnRank = "iteration on rank ", kExpected = "Expected to ";
  if (const std::size_t at = text.find(kSign); at != kNpos) {
    const auto note = notes.add(
        {.kind = RankNote::Kind::analysis,
         .rank = rank.value != kNone ? rank : rank_behind(text.substr(at), kOnRank),
         .text = "by FullyShardedDataParallel its units ran in another order than in its first "
                 "iteration",
         .says = RankNote::Says::changed_order});
    if (note) {
      const auto [open, first] = open_.try_emplace(rank, *note);
      if (!first) open->second.reset();
    }
    return true;
  }
  const auto open = open_.find(rank);
  const std::size_t which = open == open_.end() ? kNpos : text.find(kExpected);
  if (which == kNpos || !contains_text(text, kWhich)) return false;
  if (open->second) {
    RankNote& note = notes[*open->second];
    note.content = text.substr(which).substr(0, RankNote::kLongest);
    append(note, fmt::format(": {}", note.content));
  }
  open_.erase(open);
  return true;
}

// The rank's last exception, else the first that nothing names, which then is the rank's.
std::optional<std::size_t> UnusedParameters::note_about(Rank rank, LogNotes& notes) {
  if (const auto after = noted_.upper_bound(rank);
      after != noted_.begin() && std::prev(after)->first == rank)
    return std::prev(after)->second;
  const auto unnamed = noted_.find(Rank(kNone));
  if (unnamed != noted_.end()) {
    const std::size_t first = unnamed->second;
    noted_.erase(unnamed);
    noted_.emplace(rank, first);
    return first;
  }
  const auto added =
      notes.add({.kind = RankNote::Kind::exception, .rank = rank, .text = std::string(kUnused)});
  if (added) noted_.emplace(rank, *added);
  return added;
}

bool UnusedParameters::take(std::string_view text, Rank rank, LogNotes& notes) {
  const std::size_t at = text.find(kSign);
  if (at == kNpos) return false;
  const auto number = number_after(text.substr(at), kSign);
  const std::size_t colon = text.find(": ", at);
  if (!number || !is_possible_rank(*number, kMaxWorldSize) || colon == kNpos) return true;
  const Rank of = rank.value != kNone ? rank : Rank(static_cast<std::int32_t>(*number));
  const auto index = note_about(of, notes);
  if (!index) return true;
  RankNote& note = notes[*index];
  note.rank = of;
  note.text = contains_text(note.text, kWithout) ? note.text + ", "
                                                 : fmt::format("{}{}", kUnused, kWithout);
  const bool are_numbers = text.substr(0, at).ends_with("indices which ");
  note.text += fmt::format("{}{}", are_numbers ? "number " : "", trimmed(text.substr(colon + 2)));
  if (note.text.size() > RankNote::kLongest) note.text.resize(RankNote::kLongest);
  return true;
}

}  // namespace lockstep::trace
