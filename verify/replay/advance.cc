#include "verify/replay/advance.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "verify/replay/semantics.h"

namespace lockstep::verify {

namespace {

std::uint64_t key_of(CollectiveInstance instance) {
  return std::uint64_t{instance.group} << 32U | instance.index;
}

bool any_snapshot(const trace::Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const trace::RankTrace& t) { return t.snapshot; });
}

}  // namespace

Advance::Advance(const trace::Run& run, const std::vector<GroupStreams>& groups,
                 Agreement& agreement, const ReplayOptions& options)
    : run_(run),
      groups_(groups),
      agreement_(agreement),
      options_(options),
      was_recorded_(verify::was_recorded(run) || options.hung),
      recorded_(options.follow_record && was_recorded_),
      // A snapshot also shows queues of calls, whatever its backend.
      queued_(recorded_ && (options.semantics == CallSemantics::nccl || any_snapshot(run))),
      dumped_hosts_(queued_ && options.semantics != CallSemantics::nccl),
      records_completion_(recorded_ && records_completion(run, options.semantics)) {
  prepare();
}

// Builds the lookups: each rank's last own event, each call's instance, each group's counters.
void Advance::prepare() {
  states_.resize(run_.ranks.size());
  index_.resize(run_.ranks.size());
  matched_.resize(run_.ranks.size());
  group_index_.assign(run_.tables.groups.size(), CollectiveInstance::kNone);
  for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
    const trace::RankTrace& trace = run_.ranks[r];
    index_[r].assign(trace.calls.size(), CollectiveInstance::kNone);
    matched_[r].assign(trace.calls.size(), false);
    // Starts and completions are the device's. An exception is not progress either: it ends the
    // call that the rank was in.
    const std::vector<trace::Event>& events = trace.events;
    const auto last = std::find_if(events.rbegin(), events.rend(), [](const trace::Event& event) {
      return event.kind != trace::EventKind::complete && event.kind != trace::EventKind::start &&
             event.kind != trace::EventKind::exception;
    });
    states_[r].last_host = static_cast<std::size_t>(events.rend() - last);
  }
  // Messages whose other side a bounded recorder dropped count as matched from the start.
  if (std::vector<std::vector<bool>> lost = find_lost_messages(run_, options_.hung);
      !lost.empty()) {
    matched_ = std::move(lost);
  }
  instances_.resize(groups_.size());
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    group_index_[groups_[g].group.value] = g;
    std::size_t longest = 0;
    for (const Stream& stream : groups_[g].streams) {
      longest = std::max(longest, stream.calls.size());
      for (std::uint32_t i = 0; i < stream.calls.size(); ++i) {
        index_[stream.rank_index][stream.calls[i]] = i;
      }
    }
    instances_[g].arrived.assign(longest, 0);
    instances_[g].first.resize(longest);
    instances_[g].mismatched.assign(longest, false);
    instances_[g].completed.assign(longest, false);
  }
}

// A stack serves, since the order of ranks does not matter for the result. A rank becomes ready
// again when the call that blocks it completes.
void Advance::to_the_end() {
  Ready ready(run_.ranks.size());
  for (std::uint32_t r = 0; r < ready.size(); ++r) ready[r] = r;
  while (!ready.empty()) {
    const std::uint32_t r = ready.back();
    ready.pop_back();
    advance(r, ready);
  }
}

// Runs the rank until it blocks or its trace ends. Ranks that this unblocks become ready.
void Advance::advance(std::uint32_t r, Ready& ready) {
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
        // A blocking call blocks at once; those of a batch are posted together and block after the
        // last.
        if (blocks_at_issue(r, event.index)) state.batch.push_back(event.index);
        break;
      case trace::EventKind::wait:
        if (options_.serial == ReplayOptions::Serial::none) state.batch.push_back(event.index);
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

bool Advance::blocks_at_issue(std::uint32_t r, std::uint32_t c) const {
  switch (options_.serial) {
    case ReplayOptions::Serial::none:
      return !call(r, c).has(trace::kAsync);
    case ReplayOptions::Serial::collectives:
      return !is_message(r, c);
    case ReplayOptions::Serial::collectives_and_receives:
      return !is_message(r, c) || signature(r, c).op == trace::Op::recv;
  }
  return false;
}

// Whether the rank has passed all calls that it has to wait for now.
bool Advance::pass_batch(std::uint32_t r) {
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

bool Advance::next_is_same_batch(std::uint32_t r) const {
  const trace::RankTrace& trace = run_.ranks[r];
  const RankState& state = states_[r];
  const std::int32_t batch = call(r, state.batch.back()).coalesced;
  if (batch == trace::kNone || state.next >= trace.events.size()) return false;
  const trace::Event& event = trace.events[state.next];
  return event.kind == trace::EventKind::issue && call(r, event.index).coalesced == batch;
}

// Whether a rank that blocks in this call passes it now.
bool Advance::may_pass(std::uint32_t r, std::uint32_t c) const {
  if (queued_) return true;  // the host went on, whatever the device does
  const RankState& state = states_[r];
  if (options_.follow_record && is_over(call(r, c), options_.semantics)) return true;
  if (recorded_ && state.next < state.last_host) return true;  // it did go on
  return completes(r, c);
}

bool Advance::completes(std::uint32_t r, std::uint32_t c) const {
  if (matched_[r][c]) return true;
  const trace::Op op = signature(r, c).op;
  if (op == trace::Op::send)
    return returns_at_once(run_.tables, call(r, c), options_.buffered_sends);
  if (trace::is_point_to_point(op)) return false;
  const CollectiveInstance of = instance(r, c);
  // Calls that cannot be matched block nobody: claiming otherwise would prove too much.
  if (!of.is_known() || !groups_[of.group].comparable) return true;
  return all_arrived(of) && groups_[of.group].absent.empty() && !mismatched(of);
}

bool Advance::all_issued(std::uint32_t r, std::uint32_t c) const {
  if (completes(r, c)) return true;
  const CollectiveInstance of = instance(r, c);
  return of.is_known() && !is_message(r, c) && completed_somewhere(of);
}

bool Advance::all_arrived(CollectiveInstance instance) const {
  return instances_[instance.group].arrived[instance.index] ==
         groups_[instance.group].streams.size();
}

bool Advance::differs(CollectiveInstance instance) const {
  return instances_[instance.group].mismatched[instance.index];
}

bool Advance::mismatched(CollectiveInstance instance) const {
  const bool in_order = options_.semantics == CallSemantics::nccl && !recorded_;
  return differs(instance) ||
         (in_order && instance.index > instances_[instance.group].first_mismatched);
}

bool Advance::completed_somewhere(CollectiveInstance instance) const {
  return instances_[instance.group].completed[instance.index];
}

std::optional<CallRef> Advance::partner(std::uint32_t r, std::uint32_t c) const {
  const auto found = partner_.find({r, c});
  return found == partner_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Mailbox::Posted> Advance::unmet() const {
  std::vector<Mailbox::Posted> out;
  for (const auto& [channel, state] : channels_) {
    const std::vector<Mailbox::Posted> unmet = state.mailbox.unmet();
    out.insert(out.end(), unmet.begin(), unmet.end());
  }
  return out;
}

// Issues the call: counts it to its instance, or puts it into the channel's mailbox.
void Advance::post(std::uint32_t r, std::uint32_t c, Ready& ready) {
  if (is_message(r, c)) return post_message(r, c, ready);
  const CollectiveInstance instance = this->instance(r, c);
  if (!instance.is_known()) return;
  const auto [g, m] = instance;
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
  if (all_arrived(instance)) wake(instance, ready);
}

// Whether the calls block each other. Different reduce operations give wrong numbers, but the
// collective completes.
bool Advance::cannot_match(trace::SignatureId a, trace::SignatureId b) {
  return a != b && (agreement_.differences(a, b) & ~unsigned{kDifferentRedop}) != 0;
}

void Advance::post_message(std::uint32_t r, std::uint32_t c, Ready& ready) {
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
  if (message_differs(signature(send.rank, send.call), signature(receive.rank, receive.call))) {
    size_mismatches_.push_back({send.rank, send.call, receive.rank, receive.call});
  }
  if (states_[other->rank].blocked == other->call) ready.push_back(other->rank);
}

// The sender whose message a receive from any source takes. Nothing where that is unknown: the
// receive then counts as matched, or stays without a message (WildcardChoices::others_wait).
std::optional<std::uint32_t> Advance::chosen_sender(std::uint32_t r, std::uint32_t c) {
  const bool wildcard = is_any_source(run_.tables, call(r, c), options_.semantics);
  if (wildcard && options_.choices != nullptr) {
    const auto found = options_.choices->sender.find({r, c});
    if (found != options_.choices->sender.end()) return found->second;
    if (options_.choices->others_wait) return std::nullopt;
  }
  matched_[r][c] = true;
  has_wildcards_ = true;
  return std::nullopt;
}

// Completes the probes that the newest message satisfies.
void Advance::wake_probes(ChannelState& state, Ready& ready) {
  std::erase_if(state.probes, [&](const Mailbox::Posted& probe) {
    if (!state.mailbox.holds(probe.tag)) return false;
    matched_[probe.rank][probe.call] = true;
    if (states_[probe.rank].blocked == probe.call) ready.push_back(probe.rank);
    return true;
  });
}

// Notes that the rank blocks in this collective. A message wakes its partner itself.
void Advance::park(std::uint32_t r, std::uint32_t c) {
  if (is_message(r, c)) return;
  const CollectiveInstance where = instance(r, c);
  if (where.group != CollectiveInstance::kNone) parked_[key_of(where)].push_back(r);
}

void Advance::wake(CollectiveInstance instance, Ready& ready) {
  const auto found = parked_.find(key_of(instance));
  if (found == parked_.end()) return;
  ready.insert(ready.end(), found->second.begin(), found->second.end());
  parked_.erase(found);
}

}  // namespace lockstep::verify
