#include "verify/replay/replay.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "verify/replay/channels.h"

namespace lockstep::verify {

namespace {

constexpr std::uint32_t kNoGroup = UINT32_MAX;

// Source, destination and group of a point-to-point call. The mailbox handles the tags.
using SendChannel = std::tuple<std::int32_t, std::int32_t, std::uint32_t>;

struct ChannelState {
  Mailbox mailbox;
  std::vector<Mailbox::Posted> probes;  // those that wait for a message
};

class Replayer {
 public:
  Replayer(const trace::Run& run, const std::vector<GroupStreams>& groups, Agreement& agreement,
           const ReplayOptions& options)
      : run_(run),
        groups_(groups),
        agreement_(agreement),
        options_(options),
        was_recorded_(was_recorded(run) || options.cut_ranks_hang),
        recorded_(options.follow_record && was_recorded_),
        // A snapshot also shows queues of calls, whatever its backend.
        queued_(recorded_ && (options.semantics == CallSemantics::nccl ||
                              std::any_of(run.ranks.begin(), run.ranks.end(),
                                          [](const trace::RankTrace& t) { return t.snapshot; }))),
        dumped_hosts_(queued_ && options.semantics != CallSemantics::nccl),
        records_completion_(recorded_ && records_completion(run, options.semantics)) {
    prepare();
  }

  // Advances ranks until none can move. The order does not matter for the result (see the header),
  // so a stack serves. A rank becomes ready again when the call that blocks it completes.
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
    std::size_t next = 0;       // the next event
    std::size_t last_host = 0;  // 1 + the last event that the rank itself caused
    std::uint32_t blocked = kNoCall;
    std::uint32_t interrupted = kNoCall;
    std::int32_t step = trace::kNone;
    std::vector<std::uint32_t> batch;  // calls that the rank has to wait for before it goes on
  };
  // The instances of one group's collectives, by index in its streams.
  struct Instances {
    std::vector<std::uint32_t> arrived;     // members that issued it
    std::vector<trace::SignatureId> first;  // of the member that issued it first
    std::vector<bool> mismatched;
    std::vector<bool> completed;                  // some member recorded its completion
    std::uint32_t first_mismatched = UINT32_MAX;  // the lowest mismatched index
  };

  // Builds the lookups: each rank's last own event, each call's instance, each group's counters.
  void prepare() {
    states_.resize(run_.ranks.size());
    instance_of_.resize(run_.ranks.size());
    matched_.resize(run_.ranks.size());
    group_index_.assign(run_.tables.groups.size(), kNoGroup);
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
      const trace::RankTrace& trace = run_.ranks[r];
      instance_of_[r].assign(trace.calls.size(), UINT32_MAX);
      matched_[r].assign(trace.calls.size(), false);
      // Starts and completions are the device's. An exception is no progress either: it ends the
      // call that the rank was in.
      const std::vector<trace::Event>& events = trace.events;
      const auto last = std::find_if(events.rbegin(), events.rend(), [](const trace::Event& event) {
        return event.kind != trace::EventKind::complete && event.kind != trace::EventKind::start &&
               event.kind != trace::EventKind::exception;
      });
      states_[r].last_host = static_cast<std::size_t>(events.rend() - last);
    }
    // Messages whose other side a bounded recorder dropped count as matched from the start.
    if (std::vector<std::vector<bool>> lost = find_lost_messages(run_); !lost.empty()) {
      matched_ = std::move(lost);
    }
    instances_.resize(groups_.size());
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      group_index_[groups_[g].group.value] = g;
      std::size_t longest = 0;
      for (const Stream& stream : groups_[g].streams) {
        longest = std::max(longest, stream.calls.size());
        for (std::uint32_t i = 0; i < stream.calls.size(); ++i) {
          instance_of_[stream.rank_index][stream.calls[i]] = i;
        }
      }
      instances_[g].arrived.assign(longest, 0);
      instances_[g].first.resize(longest);
      instances_[g].mismatched.assign(longest, false);
      instances_[g].completed.assign(longest, false);
    }
  }

  const trace::Call& call(std::uint32_t r, std::uint32_t c) const { return run_.ranks[r].calls[c]; }
  const trace::Signature& signature(std::uint32_t r, std::uint32_t c) const {
    return run_.tables.signatures[call(r, c).signature];
  }

  // Runs the rank until it blocks or its trace ends. Ranks that this unblocks become ready.
  void advance(std::uint32_t r, std::vector<std::uint32_t>& ready) {
    const trace::RankTrace& trace = run_.ranks[r];
    RankState& state = states_[r];
    if (state.blocked != kNoCall) {
      if (!may_pass(r, state.blocked)) return;
      state.blocked = kNoCall;
    }
    while (state.next < trace.events.size()) {
      // Blocking is decided at the next event, not at the call itself: a batch of sends and
      // receives must be posted as a whole before its first call may block.
      if (!state.batch.empty() && !pass_batch(r)) return;
      const trace::Event& event = trace.events[state.next++];
      switch (event.kind) {
        case trace::EventKind::issue:
          if (call(r, event.index).step != trace::kNone) state.step = call(r, event.index).step;
          post(r, event.index, ready);
          if (!call(r, event.index).has(trace::kAsync)) block_after_issue(r, event.index);
          break;
        case trace::EventKind::wait:
          state.batch.push_back(event.index);
          break;
        case trace::EventKind::exception: {
          const auto& mark = trace.exceptions[event.index];
          if (options_.follow_record && mark.call && !call(r, *mark.call).has(trace::kCompleted)) {
            state.interrupted = *mark.call;
          }
          break;
        }
        case trace::EventKind::step:
          state.step = static_cast<std::int32_t>(trace.steps[event.index].n);
          break;
        case trace::EventKind::modality:
          // The modality mark comes before or after its step's mark: keep the later step.
          state.step =
              std::max(state.step, static_cast<std::int32_t>(trace.modalities[event.index].n));
          break;
        default:
          break;
      }
    }
    if (!state.batch.empty()) pass_batch(r);
  }

  // A blocking call blocks at once; those of a batch are posted together and block after the last.
  void block_after_issue(std::uint32_t r, std::uint32_t c) { states_[r].batch.push_back(c); }

  // Whether the rank has passed all calls that it has to wait for now.
  bool pass_batch(std::uint32_t r) {
    RankState& state = states_[r];
    if (next_is_same_batch(r)) return true;  // not complete yet: post the rest first
    for (const std::uint32_t c : state.batch) {
      if (may_pass(r, c)) continue;
      state.blocked = c;
      park(r, c);
      // The rest of the batch is checked again once this call has completed.
      state.batch.erase(state.batch.begin(),
                        std::find(state.batch.begin(), state.batch.end(), c) + 1);
      return false;
    }
    state.batch.clear();
    return true;
  }

  bool next_is_same_batch(std::uint32_t r) const {
    const trace::RankTrace& trace = run_.ranks[r];
    const RankState& state = states_[r];
    const std::int32_t batch = call(r, state.batch.back()).coalesced;
    if (batch == trace::kNone || state.next >= trace.events.size()) return false;
    const trace::Event& event = trace.events[state.next];
    return event.kind == trace::EventKind::issue && call(r, event.index).coalesced == batch;
  }

  // Whether a rank that blocks in this call passes it now.
  bool may_pass(std::uint32_t r, std::uint32_t c) const {
    if (queued_) return true;  // the host went on, whatever the device does
    const RankState& state = states_[r];
    if (options_.follow_record && is_over(call(r, c), options_.semantics)) return true;
    if (recorded_ && state.next < state.last_host) return true;  // it did go on
    return complete(r, c);
  }

  // Whether the call can complete by what has been posted so far.
  bool complete(std::uint32_t r, std::uint32_t c) const {
    if (matched_[r][c]) return true;
    const std::uint32_t m = instance_of_[r][c];
    const std::uint32_t g = group_index_[call(r, c).group.value];
    const trace::Op op = signature(r, c).op;
    if (op == trace::Op::send)
      return returns_at_once(run_.tables, call(r, c), options_.buffered_sends);
    if (trace::is_point_to_point(op)) return false;
    // Calls that cannot be matched block nobody: claiming otherwise would prove too much.
    if (g == kNoGroup || m == UINT32_MAX || !groups_[g].comparable) return true;
    return instances_[g].arrived[m] == groups_[g].streams.size() && groups_[g].absent.empty() &&
           !mismatched(g, m);
  }

  // Whether the instance cannot complete although all members issued it: its calls do not match,
  // or, where the calls of a communicator run in order, those of an earlier instance do not.
  bool mismatched(std::uint32_t g, std::uint64_t m) const {
    const bool in_order = options_.semantics == CallSemantics::nccl && !recorded_;
    return instances_[g].mismatched[m] || (in_order && m > instances_[g].first_mismatched);
  }

  // Like complete(), or a member recorded that the call completed.
  bool everybody_came(std::uint32_t r, std::uint32_t c) const {
    const std::uint32_t m = instance_of_[r][c];
    const std::uint32_t g = group_index_[call(r, c).group.value];
    const bool known =
        g != kNoGroup && m != UINT32_MAX && !trace::is_point_to_point(signature(r, c).op);
    return complete(r, c) || (known && instances_[g].completed[m]);
  }

  // Issues the call: counts it to its instance, or puts it into the channel's mailbox.
  void post(std::uint32_t r, std::uint32_t c, std::vector<std::uint32_t>& ready) {
    if (trace::is_point_to_point(signature(r, c).op)) {
      post_point_to_point(r, c, ready);
      return;
    }
    const std::uint32_t m = instance_of_[r][c];
    const std::uint32_t g = group_index_[call(r, c).group.value];
    if (g == kNoGroup || m == UINT32_MAX) return;
    Instances& instances = instances_[g];
    if (call(r, c).has(trace::kCompleted)) instances.completed[m] = true;
    // Each call is compared with the first one that arrived. That finds every mismatch, except
    // between two calls that both agree with a first one of unknown fields.
    if (instances.arrived[m]++ == 0) {
      instances.first[m] = call(r, c).signature;
    } else if (cannot_match(instances.first[m], call(r, c).signature)) {
      instances.mismatched[m] = true;
      instances.first_mismatched = std::min(instances.first_mismatched, m);
    }
    if (instances.arrived[m] == groups_[g].streams.size()) {
      wake(std::uint64_t{g} << 32U | m, ready);
    }
  }

  // Whether the calls block each other. Different reduce operations give wrong numbers, but the
  // collective completes.
  bool cannot_match(trace::SignatureId a, trace::SignatureId b) {
    return a != b && (agreement_.differences(a, b) & ~unsigned{kDifferentRedop}) != 0;
  }

  void post_point_to_point(std::uint32_t r, std::uint32_t c, std::vector<std::uint32_t>& ready) {
    if (matched_[r][c]) return;  // its partner is a call that a recorder dropped
    const trace::Op op = signature(r, c).op;
    const trace::Call& k = call(r, c);
    const std::int32_t self = run_.ranks[r].rank.value;
    std::int32_t peer = k.peer.value;
    if (op == trace::Op::recv_any || peer < 0) {
      const std::optional<std::uint32_t> sender = chosen_sender(r, c);
      if (!sender) return;
      peer = run_.ranks[*sender].rank.value;
    }
    const bool sends = op == trace::Op::send;
    const SendChannel channel =
        sends ? SendChannel{self, peer, k.group.value} : SendChannel{peer, self, k.group.value};
    ChannelState& state = channels_[channel];
    // A probe completes when a message is there, and leaves it in the mailbox.
    if (op == trace::Op::probe) {
      matched_[r][c] = state.mailbox.holds(k.ptag);
      if (!matched_[r][c]) state.probes.push_back({r, c, k.ptag});
      return;
    }
    const Mailbox::Posted mine{r, c, k.ptag};
    const auto other = sends ? state.mailbox.post_send(mine) : state.mailbox.post_receive(mine);
    if (!other) {
      if (sends) wake_probes(state, ready);
      return;
    }
    matched_[r][c] = true;
    matched_[other->rank][other->call] = true;
    if (queued_) {
      partner_[{r, c}] = {other->rank, other->call};
      partner_[{other->rank, other->call}] = {r, c};
    }
    const Mailbox::Posted& send = sends ? mine : *other;
    const Mailbox::Posted& receive = sends ? *other : mine;
    if (elements_differ(send, receive)) {
      result_.size_mismatches.push_back({send.rank, send.call, receive.rank, receive.call});
    }
    if (states_[other->rank].blocked == other->call) ready.push_back(other->rank);
  }

  // The sender whose message a receive from any source takes. Nothing where that is unknown: the
  // receive then counts as matched, or stays without a message (WildcardChoices::others_wait).
  std::optional<std::uint32_t> chosen_sender(std::uint32_t r, std::uint32_t c) {
    const bool wildcard = is_any_source(run_.tables, call(r, c), options_.semantics);
    if (wildcard && options_.choices != nullptr) {
      const auto found = options_.choices->sender.find({r, c});
      if (found != options_.choices->sender.end()) return found->second;
      if (options_.choices->others_wait) return std::nullopt;
    }
    matched_[r][c] = true;
    result_.has_wildcards = true;
    return std::nullopt;
  }

  // Completes the probes that the newest message satisfies.
  void wake_probes(ChannelState& state, std::vector<std::uint32_t>& ready) {
    std::erase_if(state.probes, [&](const Mailbox::Posted& probe) {
      if (!state.mailbox.holds(probe.tag)) return false;
      matched_[probe.rank][probe.call] = true;
      if (states_[probe.rank].blocked == probe.call) ready.push_back(probe.rank);
      return true;
    });
  }

  bool elements_differ(const Mailbox::Posted& send, const Mailbox::Posted& receive) const {
    return message_differs(signature(send.rank, send.call), signature(receive.rank, receive.call));
  }

  // Notes that the rank blocks in this collective, under the key group << 32 | instance.
  void park(std::uint32_t r, std::uint32_t c) {
    if (trace::is_point_to_point(signature(r, c).op)) return;  // its partner wakes it
    const std::uint32_t g = group_index_[call(r, c).group.value];
    if (g == kNoGroup) return;
    parked_[std::uint64_t{g} << 32U | instance_of_[r][c]].push_back(r);
  }

  void wake(std::uint64_t instance, std::vector<std::uint32_t>& ready) {
    const auto found = parked_.find(instance);
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

  // Where the rank stands at the end: how it ended, and the call in which it waits.
  Position position(std::uint32_t r) const {
    const trace::RankTrace& trace = run_.ranks[r];
    const RankState& state = states_[r];
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
        out.state = options_.cut_ranks_hang ? Position::State::hung
                    : options_.live || trace.open_ended
                        ? Position::State::running
                        : (was_recorded_ ? Position::State::cut : Position::State::finished);
        break;
    }
    if (!options_.follow_record && out.state != Position::State::finished) {
      out.state = Position::State::running;  // its program continues after what was recorded
    }
    if (out.blocked != kNoCall && has_ended(r, out.blocked)) {
      out.state = Position::State::finished;
      out.blocked = kNoCall;
    }
    // The exception ended the call that blocks the rank in the replay: it no longer waits there.
    if (out.state == Position::State::raised && out.blocked != kNoCall) {
      out.interrupted = std::exchange(out.blocked, kNoCall);
    }
    if (out.state != Position::State::finished && records_completion_) out.last_open = last_open(r);
    if (queued_) {
      take_oldest_open(r, out);
    } else if (out.waiting_in() == kNoCall && out.state != Position::State::finished &&
               out.state != Position::State::running && records_completion_) {
      out.pending = oldest_pending(r);
      // A rank that died does not wait in a call that all members issued.
      const bool died = out.state != Position::State::hung;
      if (died && out.pending != kNoCall && everybody_came(r, out.pending)) out.pending = kNoCall;
    }
    return out;
  }

  // Sets the call at which the rank's device stands. The host blocks there, too, if its last event
  // was a wait for a call that is still open: that wait did not return.
  void take_oldest_open(std::uint32_t r, Position& out) const {
    if (out.state == Position::State::finished) return;
    const std::uint32_t open = oldest_open(r);
    if (open == kNoCall) return;
    if (out.interrupted != kNoCall) {
      out.interrupted = open;
    } else if (host_waits(r) || dumped_hosts_) {
      out.blocked = open;
    } else if (out.state != Position::State::running) {
      out.pending = open;
    }
  }

  // Whether the host's last event is a wait for an open call. Several waits in a row count as one
  // wait for all these calls: the host reads a value, which synchronises the device.
  bool host_waits(std::uint32_t r) const {
    const trace::RankTrace& trace = run_.ranks[r];
    for (std::size_t e = states_[r].last_host; e-- > 0;) {
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
    const std::vector<trace::Call>& calls = run_.ranks[r].calls;
    std::uint32_t oldest = kNoCall;
    for (std::size_t c = calls.size(); c-- > 0;) {
      if (is_open(r, static_cast<std::uint32_t>(c))) {
        oldest = static_cast<std::uint32_t>(c);
      } else if (calls.size() - c > kLongestQueue) {
        break;
      }
    }
    if (oldest == kNoCall || calls[oldest].coalesced == trace::kNone) return oldest;
    for (std::uint32_t c = oldest;
         c < calls.size() && calls[c].coalesced == calls[oldest].coalesced; ++c) {
      if (is_open(r, c) && !matched_[r][c]) return c;
    }
    return oldest;
  }

  bool is_open(std::uint32_t r, std::uint32_t c) const {
    if (records_completion_) return !is_over(call(r, c), options_.semantics);
    // No completions were recorded: a call is open if it cannot have completed, because a member
    // never issued it or issued a different call at that index.
    return !complete(r, c) &&
           (trace::is_point_to_point(signature(r, c).op) || !has_absent_member(r, c));
  }

  bool has_absent_member(std::uint32_t r, std::uint32_t c) const {
    const std::uint32_t g = group_index_[call(r, c).group.value];
    return g != kNoGroup && !groups_[g].absent.empty();
  }

  // Whether the rank only waits in MPI_Finalize for ranks that still work. Its program has ended:
  // nothing that the others wait for can come from it.
  bool has_ended(std::uint32_t r, std::uint32_t c) const {
    if (signature(r, c).op != trace::Op::finalize) return false;
    const std::uint32_t g = group_index_[call(r, c).group.value];
    const std::uint32_t m = instance_of_[r][c];
    if (g == kNoGroup || m == UINT32_MAX) return false;
    return instances_[g].arrived[m] < groups_[g].streams.size() && !instances_[g].mismatched[m];
  }

  // The rank's last call, if it did not complete.
  std::uint32_t last_open(std::uint32_t r) const {
    const trace::RankTrace& trace = run_.ranks[r];
    if (trace.calls.empty() || trace.calls.back().has(trace::kCompleted)) return kNoCall;
    return static_cast<std::uint32_t>(trace.calls.size() - 1);
  }

  // No more calls than this are enqueued on a device at once (CUDA's launch queue holds about a
  // thousand kernels). A search backwards from the newest call may stop this far back.
  static constexpr std::size_t kLongestQueue = 4096;

  // The oldest call without a recorded completion.
  std::uint32_t oldest_pending(std::uint32_t r) const {
    const trace::RankTrace& trace = run_.ranks[r];
    std::uint32_t oldest = kNoCall;
    for (std::size_t c = trace.calls.size(); c-- > 0;) {
      const trace::Call& k = trace.calls[c];
      if (is_over(k, options_.semantics)) {
        if (trace.calls.size() - c > kLongestQueue) break;
        continue;
      }
      // A blocking call that others follow did return, although its completion was not recorded.
      if (k.has(trace::kAsync) || c + 1 == trace.calls.size())
        oldest = static_cast<std::uint32_t>(c);
    }
    return oldest;
  }

  // Lists what is left in the mailboxes.
  void collect_unmatched() {
    for (const auto& [channel, state] : channels_) {
      for (const Mailbox::Posted& p : state.mailbox.unmet()) {
        const bool passed = options_.follow_record && call(p.rank, p.call).has(trace::kCompleted);
        if (!passed) result_.unmatched.emplace_back(p.rank, p.call);
        if (signature(p.rank, p.call).op == trace::Op::send) {
          result_.left_messages.emplace_back(p.rank, p.call);
        }
      }
    }
    std::sort(result_.left_messages.begin(), result_.left_messages.end());
    std::sort(result_.unmatched.begin(), result_.unmatched.end());
  }

  // Groups the waiting ranks by the call in which they wait, and finds who is missing there.
  void collect_wait_points() {
    std::map<std::pair<std::uint32_t, std::uint64_t>, WaitPoint> points;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<std::uint32_t>> members;
    result_.point_of.assign(run_.ranks.size(), SIZE_MAX);
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
      const std::uint32_t c = result_.positions[r].waiting_in();
      if (c == kNoCall) continue;
      const trace::Call& k = call(r, c);
      if (trace::is_point_to_point(signature(r, c).op)) {
        // Every waiting point-to-point call is a wait point of its own, sorted after all groups.
        WaitPoint& point = points[{kNoGroup, r}];
        point.waiting.push_back(r);
        // The partner was posted: then its device may have an older open call before it.
        if (const auto other = partner_.find({r, c}); other != partner_.end()) {
          const auto [peer, its_call] = other->second;
          if (stands_before(peer, its_call)) point.behind.push_back(peer);
          continue;
        }
        if (lost_in_transport(r, c)) continue;  // nobody is missing
        if (is_any_source(run_.tables, k, options_.semantics)) {
          add_all_others(point, r, k.group);
        } else {
          add_missing(point, k.peer);
        }
        continue;
      }
      const std::uint32_t g = group_index_[k.group.value];
      const std::uint32_t m = instance_of_[r][c];
      if (g == kNoGroup || m == UINT32_MAX) continue;
      points[{g, m}].waiting.push_back(r);
    }
    for (auto& [key, point] : points) {
      if (key.first != kNoGroup) describe_instance(key.first, key.second, point);
      for (const std::uint32_t r : point.waiting) result_.point_of[r] = result_.wait_points.size();
      result_.wait_points.push_back(std::move(point));
    }
  }

  // Whether a watchdog ended the rank in a point-to-point call whose partner was posted.
  bool lost_in_transport(std::uint32_t r, std::uint32_t c) const {
    return result_.positions[r].state == Position::State::hung && matched_[r][c] &&
           !run_.ranks[r].snapshot && !is_any_source(run_.tables, call(r, c), options_.semantics);
  }

  // Fills in who is missing or queued at an instance of a collective. In dumps that do not list the
  // members of a group, a call that all known ones issued and that is still open may lack another.
  void describe_instance(std::uint32_t g, std::uint64_t m, WaitPoint& point) const {
    point.group = g;
    point.instance = m;
    point.mismatched = mismatched(g, m);
    point.unknown_member = !groups_[g].absent.empty();
    for (const Stream& stream : groups_[g].streams) {
      const bool arrived =
          m < stream.calls.size() && arrived_at(stream.rank_index, stream.calls[m]);
      if (arrived) {
        if (queued_ && stands_before(stream.rank_index, stream.calls[m])) {
          point.behind.push_back(stream.rank_index);
        }
        continue;
      }
      if (run_.ranks[stream.rank_index].open_ended) {
        point.unknown_member = true;  // the file ends here, the rank did not
      } else {
        point.missing.push_back(stream.rank_index);
      }
    }
    const bool may_lack = dumped_hosts_ && !groups_[g].declared && !instances_[g].completed[m];
    if (may_lack && point.missing.empty() && !point.unknown_member) add_other_ranks(g, point);
  }

  // One of the ranks that did not use the group may be a member.
  void add_other_ranks(std::uint32_t g, WaitPoint& point) const {
    const std::vector<Stream>& streams = groups_[g].streams;
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
      const bool used = std::any_of(streams.begin(), streams.end(),
                                    [&](const Stream& s) { return s.rank_index == r; });
      if (!used) point.missing.push_back(r);
    }
    point.any_source = !point.missing.empty();
  }

  // Whether the rank's device has an older open call than this one, and nothing shows that this one
  // started nevertheless.
  bool stands_before(std::uint32_t r, std::uint32_t c) const {
    if (options_.semantics != CallSemantics::nccl) return false;  // no device: nothing is queued
    const std::uint32_t open = result_.positions[r].waiting_in();
    const trace::Call& k = call(r, c);
    const bool same_batch =
        open != kNoCall && k.coalesced != trace::kNone && k.coalesced == call(r, open).coalesced;
    return open < c && !same_batch && !k.has(trace::kStarted) && !k.has(trace::kCompleted);
  }

  bool arrived_at(std::uint32_t r, std::uint32_t c) const {
    // In a replayed program, calls after the rank's position have not been issued.
    const RankState& state = states_[r];
    return recorded_ || state.blocked == kNoCall || c <= state.blocked;
  }

  // A peer without a trace may have issued its side unseen.
  void add_missing(WaitPoint& point, trace::Rank peer) const {
    const trace::RankTrace* trace = run_.find(peer);
    if (trace == nullptr) {
      point.unknown_member = true;
    } else {
      point.missing.push_back(static_cast<std::uint32_t>(trace - run_.ranks.data()));
    }
  }

  // For a receive from any source: each other member of the group may send the message.
  void add_all_others(WaitPoint& point, std::uint32_t r, trace::GroupId group) const {
    point.any_source = true;
    const std::uint32_t g = group_index_[group.value];
    if (g == kNoGroup) {
      point.unknown_member = true;
      return;
    }
    point.unknown_member = !groups_[g].absent.empty();
    for (const Stream& stream : groups_[g].streams) {
      if (stream.rank_index != r) point.missing.push_back(stream.rank_index);
    }
  }

  // Decides who is proven to be stuck. Least fixpoint: a waiting rank may move once every rank that
  // its call misses may move; what is not in the fixpoint is stuck. Counters per wait point make it
  // linear. O(waiting ranks + missing members).
  //
  //   rank 0 waits for 1, rank 1 for 2, rank 2 runs:   2, then 1, then 0 may move
  //   rank 0 waits for 1, rank 1 for 0:                nobody starts, both are stuck
  void decide_stuck() {
    const std::size_t n = run_.ranks.size();
    // A rank that raised or was killed never moves; only running ones start the fixpoint.
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
      open[p] = point.missing.size() + point.behind.size();
      for (const std::uint32_t r : point.missing) waited_for_at[r].push_back(p);
      for (const std::uint32_t r : point.behind) waited_for_at[r].push_back(p);
      // One sender suffices, and a member without trace may be the one. For a collective, a member
      // without trace is ignored: the ranks that are known to be missing are missing all the same.
      if (point.any_source) open[p] = point.unknown_member ? 0 : std::min<std::size_t>(open[p], 1);
      // All members issued it, or may have done so unseen: nothing keeps these ranks from going on.
      if (open[p] == 0 && !point.mismatched) release(p, may_move, work);
    }
    while (!work.empty()) {
      const std::uint32_t r = work.back();
      work.pop_back();
      for (const std::size_t p : waited_for_at[r]) {
        if (open[p] > 0 && --open[p] == 0 && !result_.wait_points[p].mismatched)
          release(p, may_move, work);
      }
    }
    result_.stuck.assign(n, false);
    for (std::uint32_t r = 0; r < n; ++r) {
      result_.stuck[r] = result_.positions[r].blocked != kNoCall && !may_move[r];
    }
  }

  // Lets the ranks that wait at p move.
  void release(std::size_t p, std::vector<bool>& may_move, std::vector<std::uint32_t>& work) const {
    for (const std::uint32_t r : result_.wait_points[p].waiting) {
      if (result_.positions[r].blocked == kNoCall || may_move[r]) continue;
      may_move[r] = true;
      work.push_back(r);
    }
  }

  const trace::Run& run_;
  const std::vector<GroupStreams>& groups_;
  Agreement& agreement_;
  const ReplayOptions options_;
  const bool was_recorded_;
  const bool recorded_;  // the traces are of a run, and the record is followed
  const bool queued_;    // over NCCL: hosts went on, calls are queued on devices
  // Snapshots of hosts that carry their calls out themselves (Gloo): a host with an open call is
  // taken to wait for it, as it does unless the call is asynchronous and it still computes.
  const bool dumped_hosts_;
  const bool records_completion_;  // some rank's trace tells when calls complete
  std::vector<RankState> states_;
  // Index in the group's streams, by rank index and call; UINT32_MAX: point-to-point, or before
  // what all members' recorders kept.
  std::vector<std::vector<std::uint32_t>> instance_of_;
  std::vector<std::vector<bool>> matched_;  // point-to-point calls with a partner
  std::vector<std::uint32_t> group_index_;  // by GroupId
  std::vector<Instances> instances_;        // by group index
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> parked_;  // see park()
  std::map<SendChannel, ChannelState> channels_;
  // Both sides of each message, over NCCL: by rank index and call.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, std::uint32_t>>
      partner_;
  ReplayResult result_;
};

}  // namespace

bool was_recorded(const trace::Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [](const trace::RankTrace& trace) {
    if (trace.end != trace::End::clean && trace.end != trace::End::cut) return true;
    return std::any_of(trace.events.begin(), trace.events.end(), [](const trace::Event& e) {
      return e.time != trace::kNoTime || e.kind == trace::EventKind::complete ||
             e.kind == trace::EventKind::waited || e.kind == trace::EventKind::start;
    });
  });
}

ReplayResult replay(const trace::Run& run, const std::vector<GroupStreams>& groups,
                    Agreement& agreement, const ReplayOptions& options) {
  return Replayer(run, groups, agreement, options).run();
}

}  // namespace lockstep::verify
