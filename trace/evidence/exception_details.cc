#include "trace/evidence/exception_details.h"

#include <cstdint>
#include <iterator>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/failure_messages.h"
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
