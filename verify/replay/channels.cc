#include "verify/replay/channels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "verify/replay/semantics.h"
#include "verify/replay/short_waits.h"

namespace lockstep::verify {

void Mailbox::remove_first(ByTag& queues, ByTag::iterator queue) {
  queue->second.pop_front();
  if (queue->second.empty()) queues.erase(queue);
}

std::optional<Mailbox::Posted> Mailbox::post_send(const Posted& send) {
  // Takes the earlier one of the oldest receive with this tag and the oldest with any tag.
  const auto exact = receives_.find(send.tag);
  const auto any = receives_.find(kAnyTag);
  auto first = exact;
  if (any != receives_.end() &&
      (exact == receives_.end() || any->second.front().order < exact->second.front().order)) {
    first = any;
  }
  if (first == receives_.end()) {
    sent_[next_] = send.tag;
    sends_[send.tag].push_back({next_++, send});
    return std::nullopt;
  }
  const Posted matched = first->second.front().posted;
  remove_first(receives_, first);
  return matched;
}

std::optional<Mailbox::Posted> Mailbox::post_receive(const Posted& receive) {
  auto queue = sends_.find(receive.tag);
  // sent_ is ordered by posting: its first entry is the oldest message of any tag.
  if (receive.tag == kAnyTag && !sent_.empty()) queue = sends_.find(sent_.begin()->second);
  if (queue == sends_.end()) {
    receives_[receive.tag].push_back({next_++, receive});
    return std::nullopt;
  }
  const Queued matched = queue->second.front();
  sent_.erase(matched.order);
  remove_first(sends_, queue);
  return matched.posted;
}

bool Mailbox::holds(std::int32_t tag) const {
  return tag == kAnyTag ? !sends_.empty() : sends_.contains(tag);
}

std::vector<Mailbox::Posted> Mailbox::unmet() const {
  std::vector<Posted> out;
  for (const ByTag* queues : {&sends_, &receives_}) {
    std::vector<Queued> side;
    for (const auto& [tag, queue] : *queues) side.insert(side.end(), queue.begin(), queue.end());
    std::sort(side.begin(), side.end(),
              [](const Queued& a, const Queued& b) { return a.order < b.order; });
    for (const Queued& q : side) out.push_back(q.posted);
  }
  return out;
}

namespace {

// A send or receive as its rank recorded it.
struct LoggedMessage {
  std::uint32_t rank = 0, call = 0;
  trace::Nanos issued = trace::kNoTime, completed = trace::kNoTime;
  bool done = false;  // completed, or a wait for it returned
};

// Both ends of a channel, each in the order of its rank.
struct Ends {
  std::vector<LoggedMessage> sends, receives;
};

// Source, destination, group and tag.
using MessageChannel = std::tuple<std::int32_t, std::int32_t, std::uint32_t, std::int32_t>;

// The number of calls up to and including the last completed one. The rest is open.
std::ptrdiff_t history(const std::vector<LoggedMessage>& messages) {
  const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const LoggedMessage& m) { return m.done; });
  return messages.rend() - last;
}

// Sorts the messages of all ranks into channels.
class MessageCollector {
 public:
  explicit MessageCollector(const trace::Run& run) : run_(run) {}

  std::map<MessageChannel, Ends> channels() {
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) add(r);
    return std::move(channels_);
  }

 private:
  void add(std::uint32_t r) {
    const trace::RankTrace& trace = run_.ranks[r];
    // Where each call's entry is, so that the events can add their times. An index rather than a
    // pointer to the entry: the vector grows.
    std::vector<std::pair<std::vector<LoggedMessage>*, std::size_t>> positions(trace.calls.size());
    for (std::uint32_t c = 0; c < trace.calls.size(); ++c) {
      const trace::Call& call = trace.calls[c];
      const trace::Op op = run_.tables.op(call);
      // Receives from any source belong to no single channel.
      if ((op != trace::Op::send && op != trace::Op::recv) || call.peer.value < 0) continue;
      const std::int32_t self = trace.rank.value;
      const std::int32_t peer = call.peer.value;
      Ends& ends = op == trace::Op::send ? channels_[{self, peer, call.group.value, call.ptag}]
                                         : channels_[{peer, self, call.group.value, call.ptag}];
      std::vector<LoggedMessage>& end = op == trace::Op::send ? ends.sends : ends.receives;
      positions[c] = {&end, end.size()};
      end.push_back({r, c, trace::kNoTime, trace::kNoTime,
                     call.has(trace::kCompleted) || call.has(trace::kWaitEnded)});
    }
    for (const trace::Event& event : trace.events) {
      if (event.kind != trace::EventKind::issue && event.kind != trace::EventKind::complete)
        continue;
      const auto& [end, position] = positions[event.index];
      if (end == nullptr) continue;
      (event.kind == trace::EventKind::issue ? (*end)[position].issued
                                             : (*end)[position].completed) = event.time;
    }
  }

  const trace::Run& run_;
  std::map<MessageChannel, Ends>
      channels_;  // a map: its nodes do not move, `positions` points there
};

// Aligns the two ends of one channel.
class Aligner {
 public:
  Aligner(const trace::Run& run, const Ends& ends, bool hung)
      : run_(run), ends_(ends), hung_(hung) {}

  // The index of a send minus that of its receive; nothing where no alignment fits.
  std::optional<std::ptrdiff_t> shift() const {
    // Alignments tried on each side of the best guess. The ends are read within moments, so they
    // are only a few messages apart.
    constexpr std::ptrdiff_t kFarthest = 16;
    const std::ptrdiff_t sent = history(ends_.sends);
    const std::ptrdiff_t received = history(ends_.receives);
    const std::ptrdiff_t open_sends = std::ssize(ends_.sends) - sent;
    const std::ptrdiff_t open_receives = std::ssize(ends_.receives) - received;
    // Two guesses: the last completed calls pair, or the last calls do.
    const std::ptrdiff_t by_history = sent - received;
    const std::ptrdiff_t by_end = std::ssize(ends_.sends) - std::ssize(ends_.receives);
    const bool seen_later = open_sends > open_receives
                                ? completed_after(ends_.sends, sent, ends_.receives, received,
                                                  open_sends - open_receives)
                                : completed_after(ends_.receives, received, ends_.sends, sent,
                                                  open_receives - open_sends);
    const std::ptrdiff_t best = seen_later && !hung_ ? by_end : by_history;
    if (fits(best)) return best;
    // Away from the guess nothing but the sizes speaks for an alignment: they must all agree.
    for (std::ptrdiff_t away = 1; away <= kFarthest; ++away) {
      if (differing(best - away) == 0) return best - away;
      if (differing(best + away) == 0) return best + away;
    }
    return std::nullopt;
  }

 private:
  // Whether the first `surplus` open calls of one side can be the partners of the other side's last
  // completed ones: there are as many, and none completed before its partner was issued. Times of
  // two ranks are compared here, which is why this only chooses between two guesses.
  static bool completed_after(const std::vector<LoggedMessage>& open, std::ptrdiff_t first_open,
                              const std::vector<LoggedMessage>& other, std::ptrdiff_t other_history,
                              std::ptrdiff_t surplus) {
    if (other_history < surplus) return false;
    for (std::ptrdiff_t i = 0; i < surplus; ++i) {
      const LoggedMessage& mine = open[static_cast<std::size_t>(first_open + i)];
      const LoggedMessage& theirs = other[static_cast<std::size_t>(other_history - surplus + i)];
      if (mine.issued != trace::kNoTime && theirs.completed != trace::kNoTime &&
          theirs.completed < mine.issued) {
        return false;
      }
    }
    return true;
  }

  // Whether the alignment pairs messages that fit each other. One pair of different sizes is a
  // fault of the program, if another pair fits or both its sides are open; else nothing speaks for
  // the alignment. Several mean a wrong one.
  bool fits(std::ptrdiff_t shift) const {
    const Pairs pairs = pairs_at(shift);
    if (pairs.differing == 0) return true;
    return pairs.differing == 1 && (pairs.count > 1 || pairs.open_differing == 1);
  }

  // The number of pairs whose sizes or types differ.
  std::size_t differing(std::ptrdiff_t shift) const { return pairs_at(shift).differing; }

  struct Pairs {
    std::size_t count = 0, differing = 0;
    std::size_t open_differing = 0;  // of these, where neither side is done
  };
  Pairs pairs_at(std::ptrdiff_t shift) const {
    const std::ptrdiff_t first = std::max<std::ptrdiff_t>(0, shift);
    const std::ptrdiff_t end =
        std::min(std::ssize(ends_.sends), std::ssize(ends_.receives) + shift);
    Pairs out;
    for (std::ptrdiff_t i = first; i < end; ++i) {
      const LoggedMessage& send = ends_.sends[static_cast<std::size_t>(i)];
      const LoggedMessage& receive = ends_.receives[static_cast<std::size_t>(i - shift)];
      ++out.count;
      if (!message_differs(signature(send), signature(receive))) continue;
      ++out.differing;
      out.open_differing += !send.done && !receive.done ? 1U : 0U;
    }
    return out;
  }

  const trace::Signature& signature(const LoggedMessage& m) const {
    return run_.tables.signatures[run_.ranks[m.rank].calls[m.call].signature];
  }

  const trace::Run& run_;
  const Ends& ends_;
  bool hung_;
};

}  // namespace

std::vector<std::vector<bool>> find_lost_messages(const trace::Run& run, bool hung) {
  std::vector<std::vector<bool>> lost;
  const bool any =
      std::any_of(run.ranks.begin(), run.ranks.end(), [&](const trace::RankTrace& trace) {
        return trace.dropped > 0 && trace.occurs.messages &&
               std::any_of(trace.calls.begin(), trace.calls.end(),
                           [&](const trace::Call& call) { return run.tables.is_message(call); });
      });
  if (!any) return lost;
  const bool moving = !hung && short_waits(run).has_value();
  for (const trace::RankTrace& trace : run.ranks) lost.emplace_back(trace.calls.size());
  for (const auto& [channel, ends] : MessageCollector(run).channels()) {
    if (ends.sends.empty() || ends.receives.empty()) continue;
    if (run.ranks[ends.sends[0].rank].dropped == 0 && run.ranks[ends.receives[0].rank].dropped == 0)
      continue;
    const std::optional<std::ptrdiff_t> shift =
        moving ? std::nullopt : Aligner(run, ends, hung).shift();
    const auto mark = [&](const std::vector<LoggedMessage>& mine,
                          const std::vector<LoggedMessage>& other, std::ptrdiff_t offset) {
      for (std::ptrdiff_t i = 0; i < std::ssize(mine); ++i) {
        const LoggedMessage& m = mine[static_cast<std::size_t>(i)];
        // Before the other ring's beginning, the partner was dropped. After its end, only a call
        // that completed had a partner; an open one really waits.
        const bool outside = !shift || i < offset || i - offset >= std::ssize(other);
        if (moving || (outside && (m.done || i < offset))) lost[m.rank][m.call] = true;
      }
    };
    mark(ends.sends, ends.receives, shift.value_or(0));
    mark(ends.receives, ends.sends, -shift.value_or(0));
  }
  return lost;
}

}  // namespace lockstep::verify
