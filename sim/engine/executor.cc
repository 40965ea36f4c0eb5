#include "sim/engine/executor.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "sim/engine/meetings.h"

namespace lockstep::sim {
namespace {

// An operation in a stream that has no end yet.
struct Queued {
  std::uint32_t step = 0;
  std::uint32_t number = 0;  // meet: of the call in its group
  Picos issued;
};

struct StreamState {
  Picos free;                 // when what had an end is done
  std::deque<Queued> queued;  // the first has come to its meeting
};

struct RankState {
  const Program* program = nullptr;
  Picos now;  // of the host
  std::uint32_t next = 0;
  bool blocked = false;
  std::uint32_t blocked_on = 0;         // step
  std::vector<StreamState> streams;     // the host's own is the last one
  std::vector<std::uint32_t> groups;    // of each slot: its class
  std::vector<std::uint32_t> meetings;  // of each slot: how many the host issued
};

class Executor {
 public:
  Executor(const ProgramJob& job, const Folding& folding, const CostOfCall& cost,
           const ExecutionOptions& options)
      : job_(job), folding_(folding), cost_(cost), options_(options), meetings_(job, folding) {
    result_.classes.resize(folding.representatives.size());
    for (const std::uint32_t representative : folding.representatives) {
      RankState rank;
      rank.program = &job.programs[job.ranks[representative].program];
      rank.streams.resize(rank.program->streams + 1);
      for (const std::uint32_t group : job.ranks[representative].groups)
        rank.groups.push_back(folding.group_class_of[group]);
      rank.meetings.resize(rank.groups.size());
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
      while (!awake_.empty()) {
        const std::uint32_t next = awake_.back();
        awake_.pop_back();
        walk(next);
      }
    }
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) finish(r);
    return std::move(result_);
  }

 private:
  // Lets the host of `r` go on until it waits for what has no end.
  void walk(std::uint32_t r) {
    RankState& rank = ranks_[r];
    const std::vector<ProgramStep>& steps = rank.program->steps;
    while (rank.next < steps.size() && !rank.blocked) {
      const std::uint32_t index = rank.next;
      const ProgramStep& step = steps[index];
      if (options_.record_issues) result_.classes[r].issued[index] = rank.now;
      std::uint32_t awaited = index;
      if (step.kind == StepKind::wait) {
        LOCKSTEP_CHECK(step.index < index, "a wait for a later step");
        awaited = step.index;
      } else {
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

  // The host waited for the end of `awaited`, which is known, and goes on.
  void pass(std::uint32_t r, std::uint32_t awaited) {
    RankState& rank = ranks_[r];
    RankOutcome& outcome = result_.classes[r];
    const ProgramStep& step = rank.program->steps[rank.next];
    const Picos until = outcome.ended[awaited];
    const bool works = step.kind == StepKind::compute;
    if (!works) outcome.waiting += until - rank.now;
    rank.now = std::max(rank.now, until);
    if (step.kind == StepKind::wait) outcome.ended[rank.next] = rank.now;
    ++rank.next;
  }

  StreamState& stream_of(RankState& rank, const ProgramStep& step) {
    const bool host = step.stream == ProgramStep::kHost;
    return host ? rank.streams.back() : rank.streams[step.stream];
  }

  void put(std::uint32_t r, std::uint32_t index) {
    RankState& rank = ranks_[r];
    const ProgramStep& step = rank.program->steps[index];
    StreamState& stream = stream_of(rank, step);
    Queued queued{index, 0, rank.now};
    if (step.kind == StepKind::meet) queued.number = rank.meetings[step.slot]++;
    if (step.kind == StepKind::compute && stream.queued.empty()) return compute(r, stream, queued);
    stream.queued.push_back(queued);
    if (stream.queued.size() == 1) arrive(r, stream);
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

  // The first of the stream, a meeting, has its turn.
  void arrive(std::uint32_t r, StreamState& stream) {
    const Queued& head = stream.queued.front();
    const ProgramStep& step = ranks_[r].program->steps[head.step];
    const std::uint32_t group_class = ranks_[r].groups[step.slot];
    const std::uint32_t number = head.number;
    std::optional<Meetings::Held> held = meetings_.arrive(
        group_class, number, {r, head.step}, step.index, std::max(stream.free, head.issued));
    if (held) hold(group_class, number, std::move(*held));
  }

  // Everybody came: gives the call its end, and lets everybody go on later (`awake_`), so that the
  // depth of calls stays bounded.
  void hold(std::uint32_t group_class, std::uint32_t number, Meetings::Held meeting) {
    Picos duration =
        cost_(folding_.group_representatives[group_class], job_.calls[meeting.call]).time;
    if (options_.variation != nullptr && options_.variation->meeting)
      duration = options_.variation->meeting(group_class, number, duration);
    const Picos end = meeting.last + duration;
    for (const Arrival& arrival : meeting.arrivals) {
      RankState& rank = ranks_[arrival.rank];
      StreamState& stream = stream_of(rank, rank.program->steps[arrival.step]);
      stream.free = end;
      stream.queued.pop_front();
      result_.classes[arrival.rank].ended[arrival.step] = end;
      if (options_.record_issues) result_.classes[arrival.rank].began[arrival.step] = meeting.last;
      moving_.push_back(arrival);
    }
    meetings_.reuse(std::move(meeting.arrivals));
    if (advancing_) return;
    advancing_ = true;
    while (!moving_.empty()) {
      const Arrival arrival = moving_.back();
      moving_.pop_back();
      advance(arrival);
    }
    advancing_ = false;
  }

  // What stands behind a call that ended, in its stream; and the host, if it waited for it.
  void advance(const Arrival& arrival) {
    RankState& rank = ranks_[arrival.rank];
    StreamState& stream = stream_of(rank, rank.program->steps[arrival.step]);
    wake(arrival.rank);
    while (!stream.queued.empty()) {
      const Queued head = stream.queued.front();
      if (rank.program->steps[head.step].kind == StepKind::meet) {
        return arrive(arrival.rank, stream);
      }
      compute(arrival.rank, stream, head);
      stream.queued.pop_front();
      wake(arrival.rank);
    }
  }

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
  Meetings meetings_;
  std::vector<std::uint32_t> awake_;  // ranks whose hosts can go on
  std::vector<Arrival> moving_;       // calls that ended, whose streams can go on
  bool advancing_ = false;
  ExecutionResult result_;
};

}  // namespace

ExecutionResult execute(const ProgramJob& job, const Folding& folding, const CostOfCall& cost,
                        const ExecutionOptions& options) {
  return Executor(job, folding, cost, options).run();
}

namespace {

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
    const auto [own, is_new] = seen.emplace(member.program, std::move(slots));
    if (!is_new) continue;
    for (const ProgramStep& step : job.programs[member.program].steps) {
      if (step.kind != StepKind::meet) continue;
      const auto [place, is_unknown] =
          out.known_.try_emplace(key(own->second[step.slot], step.index));
      if (!is_unknown) continue;
      const Result<CallCost> cost = price(member.groups[step.slot], job.calls[step.index]);
      if (!cost) return cost.error();
      place->second = *cost;
    }
  }
  return out;
}

CostOfCall Prices::cost_in(const ProgramJob& job) const {
  const ProgramCall* const first = job.calls.data();
  return [this, first](std::uint32_t group, const ProgramCall& call) {
    const auto found = known_.find(key(kind_of(group), static_cast<std::size_t>(&call - first)));
    LOCKSTEP_CHECK(found != known_.end(), "a call that was not priced");
    return found->second;
  };
}

}  // namespace lockstep::sim
