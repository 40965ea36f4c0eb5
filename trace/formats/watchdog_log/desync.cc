#include "trace/formats/watchdog_log/desync.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/formats/torch_names.h"
#include "trace/formats/watchdog_log/lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kNeverJoined = "] are the lagging ranks that caused this timeout";
constexpr std::int64_t kLargestNumber = INT32_MAX;

// The ranks in the brackets that end at `close`: "[0, 2] started". Empty: none, or no ranks.
std::vector<std::int32_t> ranks_before(std::string_view line, std::size_t close) {
  const std::size_t open = line.rfind('[', close);
  if (open == kNpos) return {};
  std::vector<std::int32_t> out;
  const auto numbers = integers_in(line.substr(open, close + 1 - open));
  if (!numbers) return {};
  for (const std::int64_t rank : *numbers) {
    if (!is_possible_rank(rank, kMaxWorldSize)) return {};
    out.push_back(static_cast<std::int32_t>(rank));
  }
  return out;
}

// "ALLREDUCE", at the start of the text; empty where there is none.
std::string_view operation_in(std::string_view text) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  constexpr std::size_t kLongest = 64;
  const std::string_view out = text.substr(0, text.find_first_not_of(kLetters));
  return out.size() > kLongest ? std::string_view() : out;
}

}  // namespace

void DesyncReports::take(std::string_view line, bool may_begin) {
  if (const std::size_t at = may_begin ? line.find(kBegin) : kNpos; at != kNpos) {
    begin(line.substr(0, at + 1), line);
    if (current_ != nullptr) {
      const std::vector<std::int32_t> own = ranks_before(line, at);
      const std::string_view op = operation_in(line.substr(at + kBegin.size()));
      const auto seq = number_after(line.substr(at), "#");
      if (own.size() == 1 && seq && *seq > 0 && *seq <= kLargestNumber && !op.empty())
        raise(own[0], {*seq, false, std::string(op)});
    }
  } else if (current_ != nullptr && !take_section(line) && !take_states(line)) {
    take_missing(line);
    const bool whole = !listed_.empty() && *listed_.rbegin() + 1 == std::ssize(listed_);
    if (whole) current_->size = std::max(current_->size, *listed_.rbegin() + 1);
  }
  previous_ = line;
}

// The group stands in the line that begins the message, which is mostly the one before.
void DesyncReports::begin(std::string_view report, std::string_view line) {
  auto group = watchdog_group_in(report);
  if (!group) group = watchdog_group_in(previous_);
  constexpr std::size_t kMostGroups = 4096;
  std::string name = group ? watchdog_group_name(*group) : "";
  current_ = groups_.size() < kMostGroups || groups_.contains(name) ? &groups_[name] : nullptr;
  seq_ = kNone;
  listed_.clear();
  previous_ = line;
}

// "#29 started ranks:"
bool DesyncReports::take_section(std::string_view line) {
  const std::string_view text = trimmed(line);
  if (!text.ends_with(" started ranks:") && !text.ends_with(" finished ranks:")) return false;
  const std::size_t number = text.rfind('#');
  const auto seq = number == kNpos ? std::nullopt : number_after(text.substr(number), "#");
  seq_ = seq && *seq > 0 && *seq <= kLargestNumber ? *seq : kNone;
  return true;
}

// "[0, 2] started ALLREDUCE"
bool DesyncReports::take_states(std::string_view line) {
  if (seq_ == kNone) return false;
  for (const bool finished : {false, true}) {
    const std::string_view verb = finished ? "] finished " : "] started ";
    const std::size_t at = line.find(verb);
    if (at == kNpos) continue;
    const std::string_view op = operation_in(line.substr(at + verb.size()));
    if (op.empty()) return false;
    for (const std::int32_t rank : ranks_before(line, at)) {
      listed_.insert(rank);
      raise(rank, {seq_, finished, std::string(op)});
    }
    return true;
  }
  return false;
}

void DesyncReports::take_missing(std::string_view line) {
  const std::size_t at = line.find(kNeverJoined);
  if (at == kNpos) return;
  for (const std::int32_t rank : ranks_before(line, at)) raise(rank, {});
}

// The reports of several ranks are of different moments: the latest counts.
void DesyncReports::raise(std::int32_t rank, DesyncState state) {
  DesyncState& known = current_->ranks.try_emplace(rank, state).first->second;
  if (known.is_before(state)) known = std::move(state);
}

}  // namespace lockstep::trace
