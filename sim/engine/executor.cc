#include "sim/engine/executor.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "sim/engine/fifo.h"
#include "sim/engine/open_collectives.h"

namespace lockstep::sim {
namespace {

// An operation in a stream whose end is not known yet.
struct Queued {
  std::uint32_t step = 0;
  std::uint32_t number = 0;  // meet: the sequence number of the call in its group
  Picos issued;
};

struct StreamState {
  Picos free;  // when the operations with a known end are done
  // The first one has arrived at its collective, or follows a step whose end is not known.
  Fifo<Queued> queued;
};

struct RankState {
  const Program* program = nullptr;
  Picos now;  // the host's clock
  std::uint32_t next = 0;
  bool blocked = false;
  std::uint32_t blocked_on = 0;             // a step
  std::vector<StreamState> streams;         // the last one is for what the host runs itself
  std::vector<std::uint32_t> stalled;       // streams whose first step follows an unknown end
  std::vector<std::uint32_t> groups;        // by slot: its class of groups
  std::vector<std::uint32_t> issued_calls;  // by slot: how many calls the host has issued
};

class Executor {
 public:
  Executor(const ProgramJob& job, const Folding& folding, const CostOfCall& cost,
           const ExecutionOptions& options)
      : job_(job), folding_(folding), cost_(cost), options_(options), collectives_(job, folding) {
    if (options.links != nullptr) on_links_.emplace(*options.links);
    result_.classes.resize(folding.representatives.size());
    for (const std::uint32_t representative : folding.representatives) {
      RankState rank;
      rank.program = &job.programs[job.ranks[representative].program];
      rank.streams.resize(rank.program->streams + 1);
      for (const std::uint32_t group : job.ranks[representative].groups)
        rank.groups.push_back(folding.group_class_of[group]);
      rank.issued_calls.resize(rank.groups.size());
      RankOutcome& outcome = result_.classes[ranks_.size()];
      outcome.ended.assign(rank.program->steps.size(), RankOutcome::kNever);
      if (options.record_issues) {
        outcome.issued.assign(rank.program->steps.size(), RankOutcome::kNever);
        outcome.began = outcome.issued;
      }
      ranks_.push_back(std::move(rank));
    }
  }

  ExecutionResult run() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      walk(r);
      run_awake_hosts();
    }
    if (on_links_) {
      while (on_links_->next())
        for (const CallsOnLinks::Ended& ended : on_links_->advance()) {
          // Moved out: what it sets free may put another call in its place.
          OpenCollectives::Held held = std::move(under_way_[ended.id]);
          spare_.push_back(ended.id);
          end_call(std::move(held), ended.end);
          run_awake_hosts();
        }
      result_.slowed_calls = on_links_->slowed();
      result_.most_slowed = on_links_->most_slowed();
    }
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) finish(r);
    return std::move(result_);
  }

 private:
  // A collective that completed may have unblocked hosts, which may complete more.
  void run_awake_hosts() {
    while (!awake_.empty()) {
      const std::uint32_t next = awake_.back();
      awake_.pop_back();
      walk(next);
    }
  }

  // Advances the host of `r` until it waits for an operation whose end is not known.
  void walk(std::uint32_t r) {
    RankState& rank = ranks_[r];
    const std::vector<ProgramStep>& steps = rank.program->steps;
    while (rank.next < steps.size() && !rank.blocked) {
      const std::uint32_t index = rank.next;
      const ProgramStep& step = steps[index];
      if (options_.record_issues) result_.classes[r].issued[index] = rank.now;
      // A blocking operation waits for its own end, a wait for that of an earlier step.
      std::uint32_t awaited = index;
      if (step.kind == StepKind::wait) {
        LOCKSTEP_CHECK(step.index < index, "a wait for a later step");
        awaited = step.index;
      } else {
        // Operations in streams cost the host a launch; its own work does not.
        rank.now += step.stream == ProgramStep::kHost ? Picos{} : options_.launch;
        put(r, index);
      }
      if (step.kind == StepKind::wait || step.blocks || step.stream == ProgramStep::kHost) {
        if (result_.classes[r].ended[awaited] == RankOutcome::kNever) {
          rank.blocked = true;
          rank.blocked_on = awaited;
          return;
        }
        pass(r, awaited);
      } else {
        ++rank.next;
      }
    }
  }

  // The host continues after waiting for `awaited`, whose end is known.
  void pass(std::uint32_t r, std::uint32_t awaited) {
    RankState& rank = ranks_[r];
    RankOutcome& outcome = result_.classes[r];
    const ProgramStep& step = rank.program->steps[rank.next];
    const Picos until = outcome.ended[awaited];
    const bool works = step.kind == StepKind::compute;
    // For its own work the host is busy, not waiting. Differences of Picos are never negative, so a
    // wait for a step that has already ended adds 0.
    if (!works) outcome.waiting += until - rank.now;
    rank.now = std::max(rank.now, until);
    if (step.kind == StepKind::wait) outcome.ended[rank.next] = rank.now;
    ++rank.next;
  }

  static std::uint32_t stream_index(const RankState& rank, const ProgramStep& step) {
    const bool host = step.stream == ProgramStep::kHost;
    return host ? static_cast<std::uint32_t>(rank.streams.size() - 1) : step.stream;
  }
  StreamState& stream_of(RankState& rank, const ProgramStep& step) {
    return rank.streams[stream_index(rank, step)];
  }

  // Puts a step into its stream. Work at the head of a stream gets its end at once. Work after an
  // open collective stays queued, since its begin depends on when that ends.
  void put(std::uint32_t r, std::uint32_t index) {
    RankState& rank = ranks_[r];
    const ProgramStep& step = rank.program->steps[index];
    StreamState& stream = stream_of(rank, step);
    Queued queued{index, 0, rank.now};
    if (step.kind == StepKind::call) queued.number = rank.issued_calls[step.slot]++;
    if (step.kind == StepKind::compute && stream.queued.empty()) {
      compute(r, stream, queued);
    } else {
      stream.queued.push_back(queued);
      if (stream.queued.size() > 1) return;
      drain(r, stream);
    }
    resume(r);
  }

  // Runs the stream's steps, as far as their ends are known.
  void drain(std::uint32_t r, StreamState& stream) {
    RankState& rank = ranks_[r];
    while (!stream.queued.empty()) {
      const Queued head = stream.queued.front();
      const ProgramStep& step = rank.program->steps[head.step];
      // A collective's end is known only when the other members arrive; nothing after it starts.
      if (step.kind == StepKind::call) return arrive(r, stream);
      if (step.kind == StepKind::compute) {
        compute(r, stream, head);
      } else if (!follow(r, stream, head)) {
        rank.stalled.push_back(stream_index(rank, step));
        return;
      }
      stream.queued.pop_front();
      wake(r);
    }
  }

  // Runs the streams that waited for an end that is known now. Each may make others go on.
  void resume(std::uint32_t r) {
    RankState& rank = ranks_[r];
    for (std::size_t i = 0; i < rank.stalled.size();) {
      StreamState& stream = rank.streams[rank.stalled[i]];
      const std::uint32_t awaited = rank.program->steps[stream.queued.front().step].index;
      if (result_.classes[r].ended[awaited] == RankOutcome::kNever) {
        ++i;
        continue;
      }
      rank.stalled.erase(rank.stalled.begin() + static_cast<std::ptrdiff_t>(i));
      drain(r, stream);
      i = 0;
    }
  }

  // The stream goes on when the step that this one follows has ended. False: that is not known yet.
  bool follow(std::uint32_t r, StreamState& stream, const Queued& queued) {
    RankOutcome& outcome = result_.classes[r];
    const ProgramStep& step = ranks_[r].program->steps[queued.step];
    LOCKSTEP_CHECK(step.index < queued.step, "a stream waits for an earlier step");
    const Picos awaited = outcome.ended[step.index];
    if (awaited == RankOutcome::kNever) return false;
    const Picos begin = std::max(stream.free, queued.issued);
    if (options_.record_issues) outcome.began[queued.step] = begin;
    stream.free = std::max(begin, awaited);
    outcome.ended[queued.step] = stream.free;
    return true;
  }

  void compute(std::uint32_t r, StreamState& stream, const Queued& queued) {
    Picos duration = ranks_[r].program->steps[queued.step].duration;
    if (options_.variation != nullptr && options_.variation->work)
      duration = options_.variation->work(r, queued.step, duration);
    const Picos begin = std::max(stream.free, queued.issued);
    if (options_.record_issues) result_.classes[r].began[queued.step] = begin;
    stream.free = begin + duration;
    result_.classes[r].ended[queued.step] = stream.free;
    result_.classes[r].compute += duration;
  }

  // The head of the stream, a collective, has its turn: it arrives.
  void arrive(std::uint32_t r, StreamState& stream) {
    const Queued& head = stream.queued.front();
    const ProgramStep& step = ranks_[r].program->steps[head.step];
    const std::uint32_t group_class = ranks_[r].groups[step.slot];
    const std::uint32_t number = head.number;
    std::optional<OpenCollectives::Held> held = collectives_.arrive(
        group_class, number, {r, head.step}, step.index, std::max(stream.free, head.issued));
    if (held) hold(group_class, number, std::move(*held));
  }

  // All members have arrived: fixes the end of the call for each of them, or leaves that to the
  // links. Their hosts continue
  // later, from `awake_`, and their streams from `moving_`, so that the recursion stays bounded.
  void hold(std::uint32_t group_class, std::uint32_t number, OpenCollectives::Held&& held_call) {
    Picos duration =
        cost_(folding_.group_representatives[group_class], job_.calls[held_call.call]).time;
    if (options_.variation != nullptr && options_.variation->call_duration)
      duration = options_.variation->call_duration(group_class, number, duration);
    if (on_links_) {
      const ProgramCall& call = job_.calls[held_call.call];
      if (const auto kind = options_.links->kind_of(group_class, call)) {
        const std::uint32_t id = free_place();
        const double bytes =
            options_.links->bytes_are_whole ? 1 : static_cast<double>(call.bytes.value);
        on_links_->begin(held_call.last, duration, *kind, bytes, id);
        under_way_[id] = std::move(held_call);
        return;
      }
    }
    const Picos end = held_call.last + duration;
    end_call(std::move(held_call), end);
  }

  std::uint32_t free_place() {
    if (spare_.empty()) {
      under_way_.emplace_back();
      return static_cast<std::uint32_t>(under_way_.size() - 1);
    }
    const std::uint32_t id = spare_.back();
    spare_.pop_back();
    return id;
  }

  void end_call(OpenCollectives::Held&& held_call, Picos end) {
    for (const Arrival& arrival : held_call.arrivals) {
      RankState& rank = ranks_[arrival.rank];
      StreamState& stream = stream_of(rank, rank.program->steps[arrival.step]);
      stream.free = end;
      stream.queued.pop_front();
      result_.classes[arrival.rank].ended[arrival.step] = end;
      if (options_.record_issues)
        result_.classes[arrival.rank].began[arrival.step] = held_call.last;
      moving_.push_back(arrival);
    }
    collectives_.reuse(std::move(held_call.arrivals));
    // advance() may complete the next collective and get here again. The outermost call drains
    // `moving_`; inner ones only add to it. Otherwise a chain of 100,000 collectives would nest
    // 100,000 frames.
    if (advancing_) return;
    advancing_ = true;
    while (!moving_.empty()) {
      const Arrival arrival = moving_.back();
      moving_.pop_back();
      advance(arrival);
    }
    advancing_ = false;
  }

  // Continues the streams after a call that ended, and the host, if it waited for this call.
  void advance(const Arrival& arrival) {
    RankState& rank = ranks_[arrival.rank];
    wake(arrival.rank);
    drain(arrival.rank, stream_of(rank, rank.program->steps[arrival.step]));
    resume(arrival.rank);
  }

  // Unblocks the host if the end that it waits for is known now.
  void wake(std::uint32_t r) {
    RankState& rank = ranks_[r];
    if (!rank.blocked || result_.classes[r].ended[rank.blocked_on] == RankOutcome::kNever) return;
    rank.blocked = false;
    pass(r, rank.blocked_on);
    awake_.push_back(r);
  }

  void finish(std::uint32_t r) {
    const RankState& rank = ranks_[r];
    RankOutcome& outcome = result_.classes[r];
    outcome.next = rank.next;
    outcome.end = rank.now;
    outcome.done = rank.next == rank.program->steps.size();
    for (const StreamState& stream : rank.streams) {
      outcome.end = std::max(outcome.end, stream.free);
      outcome.done &= stream.queued.empty();
    }
    result_.stuck |= !outcome.done;
    result_.end = std::max(result_.end, outcome.end);
  }

  const ProgramJob& job_;
  const Folding& folding_;
  const CostOfCall& cost_;
  const ExecutionOptions& options_;
  std::vector<RankState> ranks_;
  OpenCollectives collectives_;
  std::vector<std::uint32_t> awake_;  // ranks whose hosts can continue
  std::vector<Arrival> moving_;       // calls that ended, whose streams can continue
  bool advancing_ = false;
  std::optional<CallsOnLinks> on_links_;
  std::vector<OpenCollectives::Held> under_way_;  // by the id that links know them by
  std::vector<std::uint32_t> spare_;              // ids that are free again
  ExecutionResult result_;
};

}  // namespace

ExecutionResult execute(const ProgramJob& job, const Folding& folding, const CostOfCall& cost,
                        const ExecutionOptions& options) {
  return Executor(job, folding, cost, options).run();
}

namespace {

// Both are below 2^32: the kind in the high half, the call in the low half.
std::uint64_t key(std::uint32_t kind, std::size_t call) {
  return (std::uint64_t{kind} << 32U) | static_cast<std::uint32_t>(call);
}

}  // namespace

Result<Prices> Prices::of(const ProgramJob& job, std::vector<std::uint32_t> kinds,
                          const PriceOfCall& price) {
  Prices out;
  out.kinds_ = std::move(kinds);
  std::set<std::pair<std::uint32_t, std::vector<std::uint32_t>>> seen;
  for (const ProgramJob::Member& member : job.ranks) {
    std::vector<std::uint32_t> slots;
    for (const std::uint32_t group : member.groups) slots.push_back(out.kind_of(group));
    // Ranks with the same program and the same kinds of groups, slot by slot, make calls of the
    // same cost: price one of them.
    const auto [own, is_new] = seen.emplace(member.program, std::move(slots));
    if (!is_new) continue;
    for (const ProgramStep& step : job.programs[member.program].steps) {
      if (step.kind != StepKind::call) continue;
      const auto [found, is_unknown] =
          out.known_.try_emplace(key(own->second[step.slot], step.index));
      if (!is_unknown) continue;
      const Result<CallCost> cost = price(member.groups[step.slot], job.calls[step.index]);
      if (!cost) return cost.error();
      found->second = *cost;
    }
  }
  return out;
}

CostOfCall Prices::cost_in(const ProgramJob& job) const {
  const ProgramCall* const first = job.calls.data();
  return [this, first](std::uint32_t group, const ProgramCall& call) {
    // `call` is an element of job.calls, so that its offset is its index.
    const auto found = known_.find(key(kind_of(group), static_cast<std::size_t>(&call - first)));
    LOCKSTEP_CHECK(found != known_.end(), "a call that was not priced");
    return found->second;
  };
}

}  // namespace lockstep::sim
