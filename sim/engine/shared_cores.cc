#include "sim/engine/shared_cores.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "sim/engine/open_collectives.h"

namespace lockstep::sim {
namespace {

// In picoseconds: less than this is a rounding error, not work.
constexpr double kRounding = 1e-3;

// Events of one moment are taken by rank and step, so that results do not depend on the order of
// vectors.
bool comes_before(const CorePool::Task& a, const CorePool::Task& b) {
  return std::tuple(a.rank, a.step) < std::tuple(b.rank, b.step);
}

bool same_thread(const CorePool::Task& a, const CorePool::Task& b) {
  return a.rank == b.rank && a.thread == b.thread;
}

}  // namespace

bool CorePool::Sleeping::operator>(const Sleeping& other) const {
  return std::tuple(until, task.rank, task.step) >
         std::tuple(other.until, other.task.rank, other.task.step);
}

double CorePool::speed() const {
  if (speeds_.cores < 2 || running_.empty()) return 1;
  const auto others = static_cast<double>(running_.size() - 1);
  // With contention 1.5 and 4 cores: 1 busy core runs at full speed, 4 run at 1/1.5 each.
  return 1 / (1 + (speeds_.contention - 1) * others / static_cast<double>(speeds_.cores - 1));
}

void CorePool::serve(Picos now) {
  const auto passed = static_cast<double>((now - at_).value);
  // The set of running tasks has not changed since at_, so neither has their speed.
  const double worked = passed * speed();
  const auto slice = static_cast<double>(speeds_.slice.value);
  for (Running& one : running_) {
    one.left -= worked;
    one.slice -= passed;
    // No thread waited, so the task began another slice, or several: std::fmod finds how far it is
    // into the current one.
    if (waiting_.empty() && one.slice <= 0) one.slice = slice - std::fmod(-one.slice, slice);
  }
  at_ = now;
}

void CorePool::begin(Picos now, Picos amount, const Task& task) {
  serve(now);
  turns_ = 0;
  // Sleeping needs no core and does not slow the others down.
  if (task.sleeps) return sleeping_.push({now + amount, task});
  const auto left = static_cast<double>(amount.value);
  // The same thread continues: it keeps its core and the rest of its slice, and does not queue
  // after threads that wait.
  const auto own = std::find_if(vacated_.begin(), vacated_.end(),
                                [&](const Running& core) { return same_thread(core.task, task); });
  if (own == vacated_.end()) {
    waiting_.push_back({task, left});
  } else {
    running_.push_back({task, left, own->slice});
    vacated_.erase(own);
  }
}

void CorePool::dispatch() {
  // Threads that did not continue have given up their cores.
  vacated_.clear();
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < speeds_.cores) {
    running_.push_back(
        {waiting_.front().task, waiting_.front().left, static_cast<double>(speeds_.slice.value)});
    waiting_.pop_front();
  }
}

Picos CorePool::next_event() const {
  Picos out = sleeping_.empty() ? Picos::forever() : sleeping_.top().until;
  for (const Running& one : running_) {
    // The end of the work at the current speed, or, if another thread waits, the end of the slice.
    // Rounded up, so that take_ended() finds the work done at that time.
    double wait = std::max(0.0, one.left - kRounding) / speed();
    if (!waiting_.empty()) wait = std::min(wait, std::max(0.0, one.slice - kRounding));
    if (wait < static_cast<double>((Picos::forever() - at_).value))
      out = std::min(out, at_ + Picos{static_cast<std::int64_t>(std::ceil(wait))});
  }
  return out;
}

std::vector<CorePool::Task> CorePool::take_ended(Picos now) {
  serve(now);
  std::vector<Task> out;
  // Each running task has ended, has used up its slice while others wait, or goes on.
  std::vector<Waiting> turned_out;
  std::vector<Running> still;
  for (const Running& one : running_) {
    if (one.left <= kRounding) {
      out.push_back(one.task);
      vacated_.push_back(one);
    } else if (!waiting_.empty() && one.slice <= kRounding) {
      turned_out.push_back({one.task, one.left});
      // See kTurnsInARow: keeps the number of events finite.
      if (++turns_ % kTurnsInARow == 0) speeds_.slice += speeds_.slice;
    } else {
      still.push_back(one);
    }
  }
  running_ = std::move(still);
  if (!out.empty()) turns_ = 0;
  std::sort(out.begin(), out.end(), comes_before);
  std::sort(turned_out.begin(), turned_out.end(),
            [](const Waiting& a, const Waiting& b) { return comes_before(a.task, b.task); });
  waiting_.insert(waiting_.end(), turned_out.begin(), turned_out.end());
  while (!sleeping_.empty() && sleeping_.top().until <= now) {
    out.push_back(sleeping_.top().task);
    sleeping_.pop();
  }
  return out;
}

namespace {

// One stream of a rank. As in execute(), but ends are events here.
struct SharingStream {
  std::deque<std::uint32_t> queued;  // steps; the first one runs, or waits for the other members
  std::uint32_t call = 0;            // index in SharingExecutor::calls_ of the first step's call
};

struct SharingRank {
  const Program* program = nullptr;
  std::uint32_t next = 0;
  std::optional<std::uint32_t> blocked_on;  // the step whose end the host waits for
  Picos blocked_since;
  Picos cold;  // how much longer its next work takes (at most twice as long)
  std::vector<SharingStream> streams;  // the last one is for what the host runs itself
  std::vector<std::uint32_t>
      reached_calls;  // by slot: how many calls have reached the head of their stream
};

// A call at which all members have arrived. All members make each hop together: each sleeps until
// it is woken, then works on its core, and the next hop begins when all have done so.
struct SharedCall {
  std::vector<Arrival> members;  // by rank
  std::size_t busy = 0;          // members that have not finished this hop
  std::int64_t hops = 0;         // hops after this one
  Picos work;                    // work of this hop and of those after it
  Picos now;                     // work of this hop
  Picos start;                   // added to the sleep before the first hop; then 0
  std::uint32_t group = 0;
};

class SharingExecutor {
 public:
  SharingExecutor(const ProgramJob& job, const CostOfCall& cost, const SharedCores& shared,
                  const DurationVariation* variation)
      : job_(job),
        cost_(cost),
        shared_(shared),
        variation_(variation),
        folding_(unfolded(job)),
        collectives_(job, folding_) {
    for (const ProgramJob::Member& member : job.ranks) {
      SharingRank rank;
      rank.program = &job.programs[member.program];
      rank.streams.resize(rank.program->streams + 1);
      rank.reached_calls.resize(member.groups.size());
      RankOutcome outcome;
      outcome.ended.assign(rank.program->steps.size(), RankOutcome::kNever);
      outcome.issued = outcome.began = outcome.ended;
      ranks_.push_back(std::move(rank));
      result_.classes.push_back(std::move(outcome));
    }
    // An entry for each group up to the largest that a rank names.
    std::uint32_t groups = 0;
    for (const ProgramJob::Member& member : job.ranks)
      for (const std::uint32_t group : member.groups) groups = std::max(groups, group + 1);
    rests_since_.resize(groups);
    const auto last = std::max_element(shared.node_of.begin(), shared.node_of.end());
    const std::size_t nodes = last == shared.node_of.end() ? 0 : *last + 1;
    nodes_.assign(nodes, CorePool(shared.speeds));
    due_.assign(nodes, Picos::forever());
  }

  ExecutionResult run() {
    // All hosts start at time 0. Then the earliest event of any node, until none is left.
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) walk(r);
    settle();
    while (!order_.empty()) {
      const auto [when, node] = *order_.begin();
      now_ = when;
      touched_.insert(node);
      for (const CorePool::Task& task : nodes_[node].take_ended(now_)) end_task(task);
      settle();
    }
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) finish(r);
    // Work that is left now would end beyond the range of the clock.
    for (const CorePool& node : nodes_)
      if (!node.idle()) result_.end = Picos::forever();
    return std::move(result_);
  }

 private:
  // Recomputes the next event of each node on which something happened. Done once per moment, after
  // everything that begins at this time has begun, because dispatch() gives cores away.
  void settle() {
    for (const std::uint32_t node : touched_) {
      order_.erase({due_[node], node});
      nodes_[node].dispatch();
      due_[node] = nodes_[node].next_event();
      if (!due_[node].is_forever()) order_.insert({due_[node], node});
    }
    touched_.clear();
  }

  SharingStream& stream_of(SharingRank& rank, std::uint32_t index) {
    const std::uint8_t stream = rank.program->steps[index].stream;
    return stream == ProgramStep::kHost ? rank.streams.back() : rank.streams[stream];
  }

  // Advances the host of `r` until it waits for a step that has not ended.
  void walk(std::uint32_t r) {
    SharingRank& rank = ranks_[r];
    RankOutcome& outcome = result_.classes[r];
    while (rank.next < rank.program->steps.size()) {
      const std::uint32_t index = rank.next;
      const ProgramStep& step = rank.program->steps[index];
      outcome.issued[index] = now_;
      std::uint32_t awaited = index;
      if (step.kind == StepKind::wait) {
        LOCKSTEP_CHECK(step.index < index, "a wait for a later step");
        awaited = step.index;
      } else {
        SharingStream& stream = stream_of(rank, index);
        stream.queued.push_back(index);
        if (stream.queued.size() == 1) begin_first(r, stream);
      }
      const bool blocks =
          step.kind == StepKind::wait || step.blocks || step.stream == ProgramStep::kHost;
      if (blocks && outcome.ended[awaited] == RankOutcome::kNever) {
        rank.blocked_on = awaited;
        rank.blocked_since = now_;
        return;
      }
      pass(r);
    }
  }

  // The host continues after the step that it is at.
  void pass(std::uint32_t r) {
    SharingRank& rank = ranks_[r];
    if (rank.program->steps[rank.next].kind == StepKind::wait)
      result_.classes[r].ended[rank.next] = now_;
    ++rank.next;
  }

  // The head of a stream has its turn: work goes to a core, a call arrives.
  void begin_first(std::uint32_t r, SharingStream& stream) {
    const std::uint32_t index = stream.queued.front();
    const ProgramStep& step = ranks_[r].program->steps[index];
    if (step.kind == StepKind::compute) {
      result_.classes[r].began[index] = now_;
      const bool varies = variation_ != nullptr && variation_->work;
      const Picos work = varies ? variation_->work(r, index, step.duration) : step.duration;
      // Cold caches: at most `cold` longer, and at most twice as long. What is not used up here
      // slows the work after it.
      const Picos refill = std::min(work, ranks_[r].cold);
      ranks_[r].cold = ranks_[r].cold - refill;
      return begin(r, index, work + refill);
    }
    LOCKSTEP_CHECK(step.kind == StepKind::call, "streams that follow each other are on devices");
    const std::uint32_t group = job_.ranks[r].groups[step.slot];
    const std::uint32_t number = ranks_[r].reached_calls[step.slot]++;
    std::optional<OpenCollectives::Held> held =
        collectives_.arrive(group, number, {r, index}, step.index, now_);
    if (!held) return;
    CallCost cost = cost_(group, job_.calls[held->call]);
    if (variation_ != nullptr && variation_->call_duration)
      cost.time = variation_->call_duration(group, number, cost.time);
    hold(std::move(*held), cost, group);
  }

  // All members have arrived: starts the call's first hop. By rank, since arrivals come in the
  // order of events.
  void hold(OpenCollectives::Held held, const CallCost& cost, std::uint32_t group) {
    const auto number = static_cast<std::uint32_t>(calls_.size());
    std::sort(held.arrivals.begin(), held.arrivals.end(),
              [](const Arrival& a, const Arrival& b) { return a.rank < b.rank; });
    for (const Arrival& arrival : held.arrivals) {
      stream_of(ranks_[arrival.rank], arrival.step).call = number;
      result_.classes[arrival.rank].began[arrival.step] = now_;
    }
    // A group that makes its first call, or its first after a pause, pays `start`.
    const bool rested = !rests_since_[group] || now_ - *rests_since_[group] >= kRest;
    calls_.push_back({std::move(held.arrivals), 0, std::max<std::int64_t>(cost.hops, 1), cost.time,
                      Picos{}, rested ? shared_.start : Picos{}, group});
    begin_hop(calls_.back());
  }

  void begin_hop(SharedCall& call) {
    // The rest over the hops left: equal parts whose rounding errors do not add up.
    call.now = Picos{call.work.value / call.hops};
    call.work = call.work - call.now;
    --call.hops;
    call.busy = call.members.size();
    const Picos sleep = shared_.wake + std::exchange(call.start, Picos{});
    for (const Arrival& member : call.members)
      begin(member.rank, member.step, sleep, /*sleeps=*/true);
  }

  // Gives a task of step `index` to the rank's node.
  void begin(std::uint32_t r, std::uint32_t index, Picos amount, bool sleeps = false) {
    const std::uint32_t node = shared_.node_of[r];
    const std::uint8_t thread = ranks_[r].program->steps[index].stream;
    nodes_[node].begin(now_, amount, {r, index, thread, sleeps});
    touched_.insert(node);
  }

  void end_task(const CorePool::Task& task) {
    SharingRank& rank = ranks_[task.rank];
    if (rank.program->steps[task.step].kind == StepKind::compute) {
      RankOutcome& outcome = result_.classes[task.rank];
      outcome.compute += now_ - outcome.began[task.step];
      return end_step(task.rank, task.step);
    }
    SharedCall& call = calls_[stream_of(rank, task.step).call];
    // Woken: now this hop's work needs a core.
    if (task.sleeps) return begin(task.rank, task.step, call.now);
    // The last member of the hop starts the next one, or ends the call.
    if (--call.busy > 0) return;
    if (call.hops > 0) return begin_hop(call);
    rests_since_[call.group] = now_;
    // Moved out, because end_step() may start calls and so reallocate calls_.
    const std::vector<Arrival> members = std::move(call.members);
    // All members are marked as ended before the first of them continues, so that none sees another
    // still in the call.
    for (const Arrival& member : members) result_.classes[member.rank].ended[member.step] = now_;
    for (const Arrival& member : members) end_step(member.rank, member.step);
  }

  // The next step of the stream has its turn; the host continues if it waited for this one.
  void end_step(std::uint32_t r, std::uint32_t index) {
    SharingRank& rank = ranks_[r];
    result_.classes[r].ended[index] = now_;
    SharingStream& stream = stream_of(rank, index);
    stream.queued.pop_front();
    if (!stream.queued.empty()) begin_first(r, stream);
    if (rank.blocked_on != index) return;
    // The host waited for a call, not for its own work: its caches are cold now, by the time that
    // it waited and at most `refill`.
    if (rank.program->steps[rank.next].kind != StepKind::compute) {
      const Picos waited = now_ - rank.blocked_since;
      result_.classes[r].waiting += waited;
      rank.cold = std::min(shared_.refill, rank.cold + waited);
    }
    rank.blocked_on.reset();
    pass(r);
    walk(r);
  }

  void finish(std::uint32_t r) {
    const SharingRank& rank = ranks_[r];
    RankOutcome& outcome = result_.classes[r];
    outcome.next = rank.next;
    outcome.done = rank.next == rank.program->steps.size();
    for (const Picos end : outcome.ended)
      if (end != RankOutcome::kNever) outcome.end = std::max(outcome.end, end);
    for (const SharingStream& stream : rank.streams) outcome.done &= stream.queued.empty();
    result_.stuck |= !outcome.done;
    result_.end = std::max(result_.end, outcome.end);
  }

  const ProgramJob& job_;
  const CostOfCall& cost_;
  const SharedCores& shared_;
  const DurationVariation* variation_;
  const Folding folding_;
  OpenCollectives collectives_;
  std::vector<SharingRank> ranks_;
  std::vector<SharedCall> calls_;
  std::vector<std::optional<Picos>>
      rests_since_;  // by group: end of its last call; empty: none yet
  std::vector<CorePool> nodes_;
  std::vector<Picos> due_;                           // by node: its time in order_
  std::set<std::pair<Picos, std::uint32_t>> order_;  // next event of each node: (time, node)
  std::set<std::uint32_t> touched_;                  // nodes whose entry in order_ is out of date
  Picos now_;
  ExecutionResult result_;
};

}  // namespace

ExecutionResult execute_on_cores(const ProgramJob& job, const CostOfCall& cost,
                                 const SharedCores& shared, const DurationVariation* variation) {
  LOCKSTEP_CHECK(shared.node_of.size() == job.ranks.size() && shared.speeds.cores > 0,
                 "a node with cores for every rank");
  return SharingExecutor(job, cost, shared, variation).run();
}

}  // namespace lockstep::sim
