#include "verify/replay/positions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/threads.h"
#include "verify/replay/semantics.h"

namespace lockstep::verify {

namespace {

class Positions {
 public:
  explicit Positions(const Advance& at)
      : at_(at),
        some_hung_(std::any_of(
            at.run().ranks.begin(), at.run().ranks.end(),
            [](const trace::RankTrace& trace) { return trace.end == trace::End::hung; })) {}

  // Where the rank stands at the end: how it ended, and the call in which it waits.
  Position of(std::uint32_t r) const {
    const trace::RankTrace& trace = at_.run().ranks[r];
    const Advance::RankState& state = at_.state(r);
    Position out;
    out.step = state.step;
    out.blocked = state.blocked;
    out.interrupted = state.interrupted;
    switch (trace.end) {
      case trace::End::clean:
        out.state = Position::State::finished;
        break;
      case trace::End::hung:
        out.state = Position::State::hung;
        break;
      case trace::End::exception:
        out.state = Position::State::raised;
        break;
      case trace::End::killed:
      case trace::End::interrupted:
        out.state = Position::State::killed;
        break;
      case trace::End::cut:
        // A program has no end mark: its last call is its end.
        out.state = at_.options().hung ? Position::State::hung
                    : at_.options().live || trace.open_ended
                        ? Position::State::running
                        : (at_.was_recorded() ? Position::State::cut : Position::State::finished);
        break;
    }
    if (out.state == Position::State::cut && hangs_unmarked(r, out.blocked))
      out.state = Position::State::hung;
    if (!at_.options().follow_record && out.state != Position::State::finished) {
      out.state = Position::State::running;  // its program continues after what was recorded
    }
    // While the job runs, a thread that waits does not keep the rank's others from going on.
    if (out.state == Position::State::running && has_several_threads(r)) out.blocked = kNoCall;
    if (out.blocked != kNoCall && has_ended(r, out.blocked)) {
      out.state = Position::State::finished;
      out.blocked = kNoCall;
    }
    // The exception ended the call that blocks the rank in the replay: it no longer waits there.
    if (out.state == Position::State::raised && out.blocked != kNoCall) {
      out.interrupted = std::exchange(out.blocked, kNoCall);
    }
    if (out.state != Position::State::finished && at_.knows_completion())
      out.last_open = last_open(r);
    if (at_.queues()) {
      take_oldest_open(r, out);
    } else if (out.waiting_in() == kNoCall && out.state != Position::State::finished &&
               out.state != Position::State::running && at_.knows_completion()) {
      out.pending = oldest_pending(r);
      // A rank that died does not wait in a call that all members issued.
      const bool died = out.state != Position::State::hung;
      if (died && out.pending != kNoCall && at_.all_issued(r, out.pending)) out.pending = kNoCall;
    }
    return out;
  }

  // Over NCCL, takes a rank whose oldest open call is another thread's to the first open call of
  // its main thread, after that one, that a member has not come to. A thread that saves a
  // checkpoint waits for those of other ranks, which come to its call in their own time; the main
  // thread is stuck for a reason of its own. `positions`: by rank index. O(open calls of such ranks
  // + members of the collectives among them).
  void prefer_main_threads(std::vector<Position>& positions) const {
    std::map<std::pair<std::uint32_t, std::uint32_t>, bool> held_up;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
    for (std::uint32_t r = 0; r < positions.size(); ++r) {
      const std::vector<trace::Call>& calls = at_.run().ranks[r].calls;
      const std::uint32_t open = positions[r].waiting_in();
      if (open == kNoCall || positions[r].interrupted == open ||
          calls[open].thread == kMainThread) {
        continue;
      }
      for (std::uint32_t c = open + 1; c < calls.size(); ++c) {
        if (calls[c].thread != kMainThread || calls[c].group == calls[open].group) continue;
        if (!(is_open(r, c) && lacks_member(r, c)) && !is_held_up(r, c, positions, held_up))
          continue;
        found.emplace_back(r, c);
        break;
      }
    }
    for (const auto& [r, c] : found) {
      std::uint32_t& at =
          positions[r].blocked != kNoCall ? positions[r].blocked : positions[r].pending;
      at = c;
    }
  }

 private:
  static constexpr std::uint16_t kMainThread = 0;  // trace::Call::thread

  // Whether a member whose calls are known has not issued the call.
  bool lacks_member(std::uint32_t r, std::uint32_t c) const {
    if (at_.is_message(r, c)) return !at_.matched(r, c);
    const CollectiveInstance instance = at_.instance(r, c);
    return instance.is_known() && (!at_.all_arrived(instance) ||
                                   (has_absent_member(r, c) && !at_.completed_somewhere(instance)));
  }

  // Where no completions were recorded: whether the call is the rank's newest one, and the device
  // of a member stands before it, at a call of its main thread that lacks a member.
  bool is_held_up(std::uint32_t r, std::uint32_t c, const std::vector<Position>& positions,
                  std::map<std::pair<std::uint32_t, std::uint32_t>, bool>& known) const {
    if (at_.knows_completion() || at_.is_message(r, c) ||
        c + std::size_t{1} < at_.run().ranks[r].calls.size()) {
      return false;
    }
    const CollectiveInstance instance = at_.instance(r, c);
    if (!instance.is_known()) return false;
    const auto [entry, is_new] = known.try_emplace({instance.group, instance.index}, false);
    if (!is_new) return entry->second;
    const std::vector<Stream>& streams = at_.groups()[instance.group].streams;
    entry->second = std::any_of(streams.begin(), streams.end(), [&](const Stream& s) {
      const std::uint32_t waits = positions[s.rank_index].waiting_in();
      return instance.index < s.calls.size() && waits < s.calls[instance.index] &&
             at_.call(s.rank_index, waits).thread == kMainThread &&
             lacks_member(s.rank_index, waits);
    });
    return entry->second;
  }

  bool has_several_threads(std::uint32_t r) const {
    const trace::RankTrace& trace = at_.run().ranks[r];
    return trace.occurs.threads &&
           std::any_of(trace.calls.begin(), trace.calls.end(), [&](const trace::Call& call) {
             return call.thread != trace.calls.front().thread;
           });
  }

  // Sets the call at which the rank's device stands. The host blocks there, too, if its last event
  // was a wait for a call that is still open: that wait did not return.
  void take_oldest_open(std::uint32_t r, Position& out) const {
    if (out.state == Position::State::finished) return;
    const std::uint32_t open = oldest_open(r);
    if (open == kNoCall) return;
    if (out.interrupted != kNoCall) {
      out.interrupted = open;
    } else if (host_waits(r) || at_.dumps_hosts()) {
      out.blocked = open;
    } else if (out.state != Position::State::running) {
      out.pending = open;
    }
  }

  // Whether the host's last event is a wait for an open call. Several waits in a row count as one
  // wait for all these calls: the host reads a value, which synchronises the device.
  bool host_waits(std::uint32_t r) const {
    const trace::RankTrace& trace = at_.run().ranks[r];
    for (std::size_t e = at_.state(r).last_host; e-- > 0;) {
      const trace::Event& event = trace.events[e];
      if (event.kind == trace::EventKind::complete || event.kind == trace::EventKind::start)
        continue;
      if (event.kind != trace::EventKind::wait) return false;
      if (is_open(r, event.index)) return true;
    }
    return false;
  }

  // The oldest call of the rank that is not over. In a batch, whose calls run as one, the first
  // call without a partner holds up the rest: of isend(1), irecv(2) where rank 1 has received, it
  // is irecv(2).
  std::uint32_t oldest_open(std::uint32_t r) const {
    const std::vector<trace::Call>& calls = at_.run().ranks[r].calls;
    std::uint32_t oldest = kNoCall;
    for (std::size_t c = calls.size(); c-- > 0;) {
      if (is_open(r, static_cast<std::uint32_t>(c))) {
        // Others' rings have lost this call: in which later one they meet is known.
        const bool lost =
            oldest != kNoCall && precedes_common_start(r, static_cast<std::uint32_t>(c));
        if (!lost) oldest = static_cast<std::uint32_t>(c);
      } else if (calls.size() - c > kLongestQueue) {
        break;
      }
    }
    if (oldest == kNoCall || calls[oldest].coalesced == trace::kNone) return oldest;
    for (std::uint32_t c = oldest;
         c < calls.size() && calls[c].coalesced == calls[oldest].coalesced; ++c) {
      if (is_open(r, c) && !at_.matched(r, c)) return c;
    }
    return oldest;
  }

  bool is_open(std::uint32_t r, std::uint32_t c) const {
    if (at_.knows_completion()) return !is_over(at_.call(r, c), at_.options().semantics);
    // No completions were recorded: a call is open if it cannot have completed, because a member
    // never issued it or issued a different call at that index.
    if (at_.completes(r, c)) return false;
    return at_.is_message(r, c) || !has_absent_member(r, c) || hangs_in(r, c);
  }

  // Whether a rank that hangs stands in the collective, one of whose members left no trace: it is
  // the rank's newest call, or another member never issued it.
  bool hangs_in(std::uint32_t r, std::uint32_t c) const {
    const trace::RankTrace& trace = at_.run().ranks[r];
    if (!at_.options().hung && trace.end != trace::End::hung) return false;
    return c + std::size_t{1} == trace.calls.size() || !at_.all_arrived(at_.instance(r, c));
  }

  // Whether the group's streams are compared from a later call on.
  bool precedes_common_start(std::uint32_t r, std::uint32_t c) const {
    const std::uint32_t g =
        at_.is_message(r, c) ? CollectiveInstance::kNone : at_.index_of(at_.call(r, c).group);
    return g != CollectiveInstance::kNone && at_.groups()[g].comparable &&
           !at_.instance(r, c).is_known();
  }

  bool has_absent_member(std::uint32_t r, std::uint32_t c) const {
    const std::uint32_t g = at_.instance(r, c).group;
    return g != CollectiveInstance::kNone && !at_.groups()[g].absent.empty();
  }

  // Whether the rank only waits in MPI_Finalize for ranks that still work. Its program has ended:
  // nothing that the others wait for can come from it.
  bool has_ended(std::uint32_t r, std::uint32_t c) const {
    if (at_.signature(r, c).op != trace::Op::finalize) return false;
    const CollectiveInstance instance = at_.instance(r, c);
    return instance.is_known() && !at_.all_arrived(instance) && !at_.differs(instance);
  }

  // The rank's last call, if it did not complete.
  std::uint32_t last_open(std::uint32_t r) const {
    const trace::RankTrace& trace = at_.run().ranks[r];
    if (trace.calls.empty() || trace.calls.back().has(trace::kCompleted)) return kNoCall;
    return static_cast<std::uint32_t>(trace.calls.size() - 1);
  }

  // No more calls than this are enqueued on a device at once (CUDA's launch queue holds about a
  // thousand kernels). A search backwards from the newest call may stop this far back.
  static constexpr std::size_t kLongestQueue = 4096;

  // Whether the call may have completed although nothing was recorded: Gloo's messages show it to
  // whoever waits for them, and nobody has yet.
  bool completes_unseen(std::uint32_t r, std::uint32_t c) const {
    const trace::Call& call = at_.call(r, c);
    return at_.options().semantics == CallSemantics::gloo && at_.is_message(r, c) &&
           call.has(trace::kAsync) && !call.has(trace::kWaitBegan) && at_.matched(r, c);
  }

  // Whether the thread that issued the call issued a later one.
  static bool is_followed(const trace::RankTrace& trace, std::size_t c) {
    if (!trace.occurs.threads) return c + 1 < trace.calls.size();
    return std::any_of(
        trace.calls.begin() + static_cast<std::ptrdiff_t>(c) + 1, trace.calls.end(),
        [&](const trace::Call& later) { return later.thread == trace.calls[c].thread; });
  }

  // The oldest call without a recorded completion.
  std::uint32_t oldest_pending(std::uint32_t r) const {
    const trace::RankTrace& trace = at_.run().ranks[r];
    std::uint32_t oldest = kNoCall;
    for (std::size_t c = trace.calls.size(); c-- > 0;) {
      const trace::Call& k = trace.calls[c];
      if (is_over(k, at_.options().semantics)) {
        if (trace.calls.size() - c > kLongestQueue) break;
        continue;
      }
      if (completes_unseen(r, static_cast<std::uint32_t>(c))) continue;
      // A blocking call that others follow did return, although its completion was not recorded.
      if (k.has(trace::kAsync) || !is_followed(trace, c)) oldest = static_cast<std::uint32_t>(c);
    }
    return oldest;
  }

  // Whether a rank without an end mark waits in a call that others have not issued, in a job that
  // hangs: watchdogs do not mark all ranks at one moment, and whoever ends the job does not wait
  // for them. If it died there, it was there.
  bool hangs_unmarked(std::uint32_t r, std::uint32_t blocked) const {
    return some_hung_ && blocked != kNoCall && !at_.queues() && !at_.all_issued(r, blocked);
  }

  const Advance& at_;
  const bool some_hung_;
};

// Over NCCL, where no completions were recorded: a rank that hung after its newest call, which
// others issued after a call that is open, hangs in that newest call: it cannot have completed.
// O(16 · (ranks + members of the collectives that are the newest call of a rank)).
void stay_in_newest_calls(const Advance& at, std::vector<Position>& positions) {
  const auto may_be_there = [&](std::uint32_t r) {
    return positions[r].state == Position::State::hung && positions[r].waiting_in() == kNoCall &&
           !at.run().ranks[r].calls.empty();
  };
  const auto is_behind = [&](std::uint32_t r, std::uint32_t call) {
    return positions[r].waiting_in() < call;
  };
  // By collective, in one pass: it is the newest call of many ranks.
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> held_up;
  const auto is_held_up = [&](std::uint32_t r) {
    const auto newest = static_cast<std::uint32_t>(at.run().ranks[r].calls.size() - 1);
    if (at.is_message(r, newest)) {
      const std::optional<CallRef> partner = at.partner(r, newest);
      return partner && is_behind(partner->rank, partner->call);
    }
    const CollectiveInstance instance = at.instance(r, newest);
    if (!instance.is_known()) return false;
    const auto [known, is_new] = held_up.try_emplace({instance.group, instance.index}, false);
    if (is_new) {
      const std::vector<Stream>& streams = at.groups()[instance.group].streams;
      known->second = std::any_of(streams.begin(), streams.end(), [&](const Stream& s) {
        return instance.index < s.calls.size() && is_behind(s.rank_index, s.calls[instance.index]);
      });
    }
    return known->second;
  };
  // Whoever stays holds up others.
  constexpr int kMaxPasses = 16;
  bool moved = true;
  for (int pass = 0; pass < kMaxPasses && moved; ++pass) {
    moved = false;
    held_up.clear();
    for (std::uint32_t r = 0; r < positions.size(); ++r) {
      if (!may_be_there(r) || !is_held_up(r)) continue;
      positions[r].pending = static_cast<std::uint32_t>(at.run().ranks[r].calls.size() - 1);
      moved = true;
    }
  }
}

}  // namespace

std::vector<Position> final_positions(const Advance& at) {
  const Positions positions(at);
  std::vector<Position> out(at.run().ranks.size());
  for_each_index(out.size(), at.run().event_count(),
                 [&](std::size_t r) { out[r] = positions.of(static_cast<std::uint32_t>(r)); });
  const bool devices = at.queues() && at.options().semantics == CallSemantics::nccl;
  if (devices) positions.prefer_main_threads(out);
  if (devices && !at.knows_completion()) stay_in_newest_calls(at, out);
  return out;
}

}  // namespace lockstep::verify
