#include "verify/replay.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace lockstep {

namespace {

constexpr std::uint32_t kNoGroup = UINT32_MAX;

// Source, destination, tag and group of a point-to-point call.
using Channel = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::uint32_t>;

struct Posted {
  std::uint32_t rank, call;
};

struct ChannelState {
  std::deque<Posted> sends, receives;  // not yet met
};

class Replayer {
 public:
  Replayer(const Run& run, const std::vector<GroupStreams>& groups, Agreement& agreement, bool live)
      : run_(run),
        groups_(groups),
        agreement_(agreement),
        live_(live),
        recorded_(was_recorded(run)) {
    prepare();
  }

  ReplayResult run() {
    std::vector<std::uint32_t> ready(run_.ranks.size());
    for (std::uint32_t r = 0; r < ready.size(); ++r) ready[r] = r;
    while (!ready.empty()) {
      const std::uint32_t r = ready.back();
      ready.pop_back();
      advance(r, ready);
    }
    finish();
    return std::move(result_);
  }

 private:
  struct RankState {
    std::size_t next = 0;       // the event to look at
    std::size_t last_host = 0;  // 1 + the last event that the rank itself caused
    std::uint32_t blocked = kNoCall;
    std::uint32_t interrupted = kNoCall;
    std::int32_t step = kNone;
    std::vector<std::uint32_t> batch;  // calls issued as one batch, not yet blocked on
  };
  struct Meetings {
    std::vector<std::uint32_t> arrived;
    std::vector<SignatureId> first;
    std::vector<bool> mismatched;
    std::vector<bool> completed;  // for some member, as recorded
  };

  void prepare() {
    states_.resize(run_.ranks.size());
    meeting_of_.resize(run_.ranks.size());
    met_.resize(run_.ranks.size());
    group_index_.assign(run_.tables.groups.size(), kNoGroup);
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
      const RankTrace& trace = run_.ranks[r];
      meeting_of_[r].assign(trace.calls.size(), UINT32_MAX);
      met_[r].assign(trace.calls.size(), false);
      RankState& state = states_[r];
      for (std::size_t e = 0; e < trace.events.size(); ++e) {
        const Event& event = trace.events[e];
        // An exception is not progress: it ends the call that the rank was in.
        const bool passive = event.kind == EventKind::complete || event.kind == EventKind::start ||
                             event.kind == EventKind::exception;
        if (event.kind == EventKind::complete || event.kind == EventKind::waited) {
          records_completion_ = true;
        }
        if (!passive) state.last_host = e + 1;
      }
    }
    meetings_.resize(groups_.size());
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      group_index_[groups_[g].group.value] = g;
      std::size_t longest = 0;
      for (const Stream& stream : groups_[g].streams) {
        longest = std::max(longest, stream.calls.size());
        for (std::uint32_t i = 0; i < stream.calls.size(); ++i) {
          meeting_of_[stream.rank_index][stream.calls[i]] = i;
        }
      }
      meetings_[g].arrived.assign(longest, 0);
      meetings_[g].first.resize(longest);
      meetings_[g].mismatched.assign(longest, false);
      meetings_[g].completed.assign(longest, false);
    }
  }

  const Call& call(std::uint32_t r, std::uint32_t c) const { return run_.ranks[r].calls[c]; }
  const Signature& signature(std::uint32_t r, std::uint32_t c) const {
    return run_.tables.signatures[call(r, c).signature];
  }

  // Runs the rank until it blocks or its trace ends; ranks that this lets go become ready.
  void advance(std::uint32_t r, std::vector<std::uint32_t>& ready) {
    const RankTrace& trace = run_.ranks[r];
    RankState& state = states_[r];
    if (state.blocked != kNoCall) {
      if (!may_pass(r, state.blocked)) return;
      state.blocked = kNoCall;
    }
    while (state.next < trace.events.size()) {
      if (!state.batch.empty() && !pass_batch(r)) return;
      const Event& event = trace.events[state.next++];
      switch (event.kind) {
        case EventKind::issue:
          if (call(r, event.index).step != kNone) state.step = call(r, event.index).step;
          post(r, event.index, ready);
          if (!call(r, event.index).has(kAsync)) block_after_issue(r, event.index);
          break;
        case EventKind::wait:
          state.batch.push_back(event.index);
          break;
        case EventKind::exception: {
          const auto& mark = trace.exceptions[event.index];
          if (mark.call && !call(r, *mark.call).has(kCompleted)) state.interrupted = *mark.call;
          break;
        }
        case EventKind::step:
          state.step = static_cast<std::int32_t>(trace.steps[event.index].n);
          break;
        case EventKind::modality:
          state.step =
              std::max(state.step, static_cast<std::int32_t>(trace.modalities[event.index].n));
          break;
        default:
          break;
      }
    }
    if (!state.batch.empty()) pass_batch(r);
  }

  // A blocking call blocks at once; those of a batch post together and block behind the last.
  void block_after_issue(std::uint32_t r, std::uint32_t c) { states_[r].batch.push_back(c); }

  // True where the rank is through with all calls that it has to wait for now.
  bool pass_batch(std::uint32_t r) {
    RankState& state = states_[r];
    if (next_is_same_batch(r)) return true;
    for (const std::uint32_t c : state.batch) {
      if (may_pass(r, c)) continue;
      state.blocked = c;
      park(r, c);
      // What follows in the batch is looked at again once this one is through.
      state.batch.erase(state.batch.begin(),
                        std::find(state.batch.begin(), state.batch.end(), c) + 1);
      return false;
    }
    state.batch.clear();
    return true;
  }

  bool next_is_same_batch(std::uint32_t r) const {
    const RankTrace& trace = run_.ranks[r];
    const RankState& state = states_[r];
    const std::int32_t batch = call(r, state.batch.back()).coalesced;
    if (batch == kNone || state.next >= trace.events.size()) return false;
    const Event& event = trace.events[state.next];
    return event.kind == EventKind::issue && call(r, event.index).coalesced == batch;
  }

  // Whether a rank that blocks in this call gets through.
  bool may_pass(std::uint32_t r, std::uint32_t c) const {
    const RankState& state = states_[r];
    const Call& k = call(r, c);
    if (k.has(kCompleted) || k.has(kWaitEnded)) return true;
    if (recorded_ && state.next < state.last_host) return true;  // it did go on
    return complete(r, c);
  }

  bool complete(std::uint32_t r, std::uint32_t c) const {
    if (met_[r][c]) return true;
    const std::uint32_t m = meeting_of_[r][c];
    const std::uint32_t g = group_index_[call(r, c).group.value];
    if (is_point_to_point(signature(r, c).op)) return false;
    if (g == kNoGroup || m == UINT32_MAX || !groups_[g].comparable) return true;
    return meetings_[g].arrived[m] == groups_[g].streams.size() && groups_[g].absent.empty() &&
           !meetings_[g].mismatched[m];
  }

  // The same, or a member's own record that the call completed.
  bool everybody_came(std::uint32_t r, std::uint32_t c) const {
    const std::uint32_t m = meeting_of_[r][c];
    const std::uint32_t g = group_index_[call(r, c).group.value];
    const bool known = g != kNoGroup && m != UINT32_MAX && !is_point_to_point(signature(r, c).op);
    return complete(r, c) || (known && meetings_[g].completed[m]);
  }

  void post(std::uint32_t r, std::uint32_t c, std::vector<std::uint32_t>& ready) {
    if (is_point_to_point(signature(r, c).op)) {
      post_point_to_point(r, c, ready);
      return;
    }
    const std::uint32_t m = meeting_of_[r][c];
    const std::uint32_t g = group_index_[call(r, c).group.value];
    if (g == kNoGroup || m == UINT32_MAX) return;
    Meetings& meetings = meetings_[g];
    if (call(r, c).has(kCompleted)) meetings.completed[m] = true;
    if (meetings.arrived[m]++ == 0) {
      meetings.first[m] = call(r, c).signature;
    } else if (cannot_meet(meetings.first[m], call(r, c).signature)) {
      meetings.mismatched[m] = true;
    }
    if (meetings.arrived[m] == groups_[g].streams.size()) {
      wake(std::uint64_t{g} << 32U | m, ready);
    }
  }

  // Different reduce operations give wrong numbers, but nothing waits for ever because of them.
  bool cannot_meet(SignatureId a, SignatureId b) {
    return a != b && (agreement_.differences(a, b) & ~unsigned{kDifferentRedop}) != 0;
  }

  void post_point_to_point(std::uint32_t r, std::uint32_t c, std::vector<std::uint32_t>& ready) {
    const Signature& s = signature(r, c);
    const Call& k = call(r, c);
    const std::int32_t self = run_.ranks[r].rank.value;
    if (s.op == Op::probe || s.op == Op::recv_any || k.peer.value < 0) {
      met_[r][c] = true;  // wildcards need a search; not decided here, so never an accusation
      result_.has_wildcards = true;
      return;
    }
    const bool sends = s.op == Op::send;
    const Channel channel = sends ? Channel{self, k.peer.value, k.ptag, k.group.value}
                                  : Channel{k.peer.value, self, k.ptag, k.group.value};
    ChannelState& state = channels_[channel];
    auto& mine = sends ? state.sends : state.receives;
    auto& theirs = sends ? state.receives : state.sends;
    if (theirs.empty()) {
      mine.push_back({r, c});
      return;
    }
    const Posted other = theirs.front();
    theirs.pop_front();
    met_[r][c] = true;
    met_[other.rank][other.call] = true;
    const Posted send = sends ? Posted{r, c} : other;
    const Posted receive = sends ? other : Posted{r, c};
    if (elements_differ(send, receive)) {
      result_.size_mismatches.push_back({send.rank, send.call, receive.rank, receive.call});
    }
    if (states_[other.rank].blocked == other.call) ready.push_back(other.rank);
  }

  bool elements_differ(const Posted& send, const Posted& receive) const {
    const Signature& s = signature(send.rank, send.call);
    const Signature& d = signature(receive.rank, receive.call);
    const auto given = s.in_elements != kNone ? s.in_elements : s.out_elements;
    const auto taken = d.out_elements != kNone ? d.out_elements : d.in_elements;
    if (given != kNone && taken != kNone && given != taken) return true;
    return s.dtypes.value != 0 && d.dtypes.value != 0 && s.dtypes != d.dtypes;
  }

  void park(std::uint32_t r, std::uint32_t c) {
    if (is_point_to_point(signature(r, c).op)) return;  // its partner wakes it
    const std::uint32_t g = group_index_[call(r, c).group.value];
    if (g == kNoGroup) return;
    parked_[std::uint64_t{g} << 32U | meeting_of_[r][c]].push_back(r);
  }

  void wake(std::uint64_t meeting, std::vector<std::uint32_t>& ready) {
    const auto found = parked_.find(meeting);
    if (found == parked_.end()) return;
    ready.insert(ready.end(), found->second.begin(), found->second.end());
    parked_.erase(found);
  }

  void finish() {
    result_.positions.resize(run_.ranks.size());
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) result_.positions[r] = position(r);
    collect_unmatched();
    collect_wait_points();
    decide_stuck();
  }

  Position position(std::uint32_t r) const {
    const RankTrace& trace = run_.ranks[r];
    const RankState& state = states_[r];
    Position out;
    out.step = state.step;
    out.blocked = state.blocked;
    out.interrupted = state.interrupted;
    switch (trace.end) {
      case End::clean:
        out.state = Position::State::finished;
        break;
      case End::hung:
        out.state = Position::State::hung;
        break;
      case End::exception:
        out.state = Position::State::raised;
        break;
      case End::killed:
        out.state = Position::State::killed;
        break;
      case End::cut:
        out.state = live_ ? Position::State::running
                          : (recorded_ ? Position::State::cut : Position::State::finished);
        break;
    }
    if (out.state == Position::State::raised && out.blocked != kNoCall) {
      out.interrupted = std::exchange(out.blocked, kNoCall);
    }
    if (out.state != Position::State::finished && records_completion_) out.last_open = last_open(r);
    if (out.waiting_in() == kNoCall && out.state != Position::State::finished &&
        out.state != Position::State::running && records_completion_) {
      out.pending = oldest_pending(r);
      // A rank that died waits for nobody who came.
      const bool died = out.state != Position::State::hung;
      if (died && out.pending != kNoCall && everybody_came(r, out.pending)) out.pending = kNoCall;
    }
    return out;
  }

  std::uint32_t last_open(std::uint32_t r) const {
    const RankTrace& trace = run_.ranks[r];
    if (trace.calls.empty() || trace.calls.back().has(kCompleted)) return kNoCall;
    return static_cast<std::uint32_t>(trace.calls.size() - 1);
  }

  // Only the newest calls can be pending: stop at a long run of completed ones.
  std::uint32_t oldest_pending(std::uint32_t r) const {
    const RankTrace& trace = run_.ranks[r];
    std::uint32_t oldest = kNoCall;
    for (std::size_t c = trace.calls.size(); c-- > 0;) {
      const Call& k = trace.calls[c];
      if (k.has(kCompleted) || k.has(kWaitEnded)) {
        if (trace.calls.size() - c > 4096) break;
        continue;
      }
      // A blocking call that others follow was left, whatever was recorded of it.
      if (k.has(kAsync) || c + 1 == trace.calls.size()) oldest = static_cast<std::uint32_t>(c);
    }
    return oldest;
  }

  void collect_unmatched() {
    for (const auto& [channel, state] : channels_) {
      for (const auto* side : {&state.sends, &state.receives}) {
        for (const Posted& p : *side) {
          if (!call(p.rank, p.call).has(kCompleted)) result_.unmatched.emplace_back(p.rank, p.call);
        }
      }
    }
    std::sort(result_.unmatched.begin(), result_.unmatched.end());
  }

  void collect_wait_points() {
    std::map<std::pair<std::uint32_t, std::uint64_t>, WaitPoint> points;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::uint32_t>> members;
    result_.point_of.assign(run_.ranks.size(), SIZE_MAX);
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
      const std::uint32_t c = result_.positions[r].waiting_in();
      if (c == kNoCall) continue;
      const Call& k = call(r, c);
      if (is_point_to_point(signature(r, c).op)) {
        // Every waiting call is a point of its own, numbered behind all groups.
        WaitPoint& point = points[{kNoGroup, r}];
        point.waiting.push_back(r);
        add_missing(point, k.peer);
        continue;
      }
      const std::uint32_t g = group_index_[k.group.value];
      const std::uint32_t m = meeting_of_[r][c];
      if (g == kNoGroup || m == UINT32_MAX) continue;
      points[{g, m}].waiting.push_back(r);
    }
    for (auto& [key, point] : points) {
      if (key.first != kNoGroup) describe_meeting(key.first, key.second, point);
      for (const std::uint32_t r : point.waiting) result_.point_of[r] = result_.wait_points.size();
      result_.wait_points.push_back(std::move(point));
    }
  }

  void describe_meeting(std::uint32_t g, std::uint64_t m, WaitPoint& point) const {
    point.group = g;
    point.meeting = m;
    point.mismatched = meetings_[g].mismatched[m];
    point.unknown_member = !groups_[g].absent.empty();
    for (const Stream& stream : groups_[g].streams) {
      const bool arrived =
          m < stream.calls.size() && arrived_at(stream.rank_index, stream.calls[m]);
      if (!arrived) point.missing.push_back(stream.rank_index);
    }
  }

  bool arrived_at(std::uint32_t r, std::uint32_t c) const {
    // In a replayed program, calls behind the rank's position have not been issued.
    const RankState& state = states_[r];
    return recorded_ || state.blocked == kNoCall || c <= state.blocked;
  }

  void add_missing(WaitPoint& point, Rank peer) const {
    const RankTrace* trace = run_.find(peer);
    if (trace == nullptr) {
      point.unknown_member = true;
    } else {
      point.missing.push_back(static_cast<std::uint32_t>(trace - run_.ranks.data()));
    }
  }

  // Least fixpoint of "may still be let go": a rank is, once every member that its call misses may
  // still arrive. The rest is stuck. O(waiting ranks + missing members).
  void decide_stuck() {
    const std::size_t n = run_.ranks.size();
    std::vector<bool> may_move(n);
    std::vector<std::uint32_t> work;
    for (std::uint32_t r = 0; r < n; ++r) {
      may_move[r] = result_.positions[r].state == Position::State::running &&
                    result_.positions[r].blocked == kNoCall;
      if (may_move[r]) work.push_back(r);
    }
    std::vector<std::vector<std::size_t>> waited_for_at(n);
    std::vector<std::size_t> open(result_.wait_points.size());
    for (std::size_t p = 0; p < open.size(); ++p) {
      const WaitPoint& point = result_.wait_points[p];
      open[p] = point.missing.size();
      for (const std::uint32_t r : point.missing) waited_for_at[r].push_back(p);
      // Everybody came, or may have come unseen: nothing here keeps the ranks from going on.
      if (open[p] == 0 && !point.mismatched) release(p, may_move, work);
    }
    while (!work.empty()) {
      const std::uint32_t r = work.back();
      work.pop_back();
      for (const std::size_t p : waited_for_at[r]) {
        if (--open[p] == 0 && !result_.wait_points[p].mismatched) release(p, may_move, work);
      }
    }
    result_.stuck.assign(n, false);
    for (std::uint32_t r = 0; r < n; ++r) {
      result_.stuck[r] = result_.positions[r].blocked != kNoCall && !may_move[r];
    }
  }

  void release(std::size_t p, std::vector<bool>& may_move, std::vector<std::uint32_t>& work) const {
    for (const std::uint32_t r : result_.wait_points[p].waiting) {
      if (result_.positions[r].blocked == kNoCall || may_move[r]) continue;
      may_move[r] = true;
      work.push_back(r);
    }
  }

  const Run& run_;
  const std::vector<GroupStreams>& groups_;
  Agreement& agreement_;
  const bool live_;
  const bool recorded_;
  bool records_completion_ = false;  // some rank's trace tells when calls complete
  std::vector<RankState> states_;
  std::vector<std::vector<std::uint32_t>> meeting_of_;  // by rank index and call
  std::vector<std::vector<bool>> met_;                  // point-to-point calls that met
  std::vector<std::uint32_t> group_index_;              // by GroupId
  std::vector<Meetings> meetings_;                      // by group index
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> parked_;
  std::map<Channel, ChannelState> channels_;
  ReplayResult result_;
};

}  // namespace

bool was_recorded(const Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [](const RankTrace& trace) {
    if (trace.end != End::clean && trace.end != End::cut) return true;
    return std::any_of(trace.events.begin(), trace.events.end(), [](const Event& e) {
      return e.time != kNoTime || e.kind == EventKind::complete || e.kind == EventKind::waited ||
             e.kind == EventKind::start;
    });
  });
}

ReplayResult replay(const Run& run, const std::vector<GroupStreams>& groups, Agreement& agreement,
                    bool live) {
  return Replayer(run, groups, agreement, live).run();
}

}  // namespace lockstep
