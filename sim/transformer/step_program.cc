#include "sim/transformer/step_program.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"

namespace lockstep::sim {
namespace {

using Kind = StepWork::Kind;

// Indices of ProgramJob::calls.
constexpr std::uint32_t kMessage = 0, kGather = 1, kReduce = 2, kMeeting = 3;
// Slots of a rank's groups; after them a pair for each of its channels, to send and to receive.
constexpr std::uint16_t kExchangeSlot = 0, kMeetingSlot = 1, kFirstChannel = 2;

// Messages of one direction (forward or backward) from one stage to another. In a vee a stage's
// chunks send different ways, so that each has a channel; else a stage's forward results all go to
// the stage after it, in the order in which that one takes them, and its gradients to the stage
// before it.
struct Channel {
  bool backward = false;
  std::int32_t chunk = 0;  // in a vee; else 0
};

Kind kind_of(Work work) {
  return work == Work::forward    ? Kind::forward
         : work == Work::backward ? Kind::backward
                                  : Kind::weight;
}

class StepBuilder {
 public:
  StepBuilder(const PipelineProgram& order, const PipelineCosts& costs,
              const StepExchange& exchange, Picos update)
      : order_(order), costs_(costs), exchange_(exchange), update_(update) {}

  StepProgram build() {
    const std::int32_t stages = order_.shape.stages;
    for (const trace::Op op : {trace::Op::send, trace::Op::all_gather, trace::Op::reduce_scatter,
                               trace::Op::all_reduce}) {
      ProgramCall call;
      call.op = op;
      out_.job.calls.push_back(call);
    }
    out_.call_times = {costs_.send, exchange_.gather, exchange_.reduce, Picos{}};
    add_groups();
    for (std::int32_t stage = 0; stage < stages; ++stage) {
      Program program;
      program.streams = exchange_stream() + 1U;
      program.slots = kFirstChannel + 2 * channels();
      const std::size_t tasks = order_.tasks[static_cast<std::size_t>(stage)].size();
      program.steps.reserve(4 * tasks);
      out_.job.programs.push_back(std::move(program));
      out_.work.emplace_back().reserve(4 * tasks);
      add_stage(stage);
    }
    return std::move(out_);
  }

 private:
  std::uint32_t channels() const { return order_.shape.stages == 1 ? 0 : order_.vee ? 4 : 2; }
  std::uint32_t number_of(const Channel& channel) const {
    return 2 * static_cast<std::uint32_t>(channel.chunk) + (channel.backward ? 1 : 0);
  }
  // Sends and receives of a channel have a stream each, the exchange one after them.
  std::uint8_t exchange_stream() const { return static_cast<std::uint8_t>(2 * channels()); }

  // The stage that receives what `stage` sends. A channel without messages has one, too.
  std::int32_t receiver(std::int32_t stage, std::uint32_t channel) const {
    const bool backward = channel % 2 == 1;
    const bool returns = channel / 2 == 1;  // the second chunk of a vee
    const std::int32_t stages = order_.shape.stages;
    return (stage + (backward != returns ? stages - 1 : 1)) % stages;
  }

  void add_groups() {
    const auto stages = static_cast<std::uint32_t>(order_.shape.stages);
    ProgramJob& job = out_.job;
    job.ranks.resize(stages);
    ProgramGroup all;
    for (std::uint32_t s = 0; s < stages; ++s) {
      all.members.push_back(static_cast<std::int32_t>(s));
      job.ranks[s].program = s;
      job.ranks[s].groups.assign(kFirstChannel + 2 * channels(), 0);
      job.ranks[s].groups[kExchangeSlot] = s;
      job.ranks[s].groups[kMeetingSlot] = stages;
      job.groups.push_back({{static_cast<std::int32_t>(s)}});
    }
    job.groups.push_back(std::move(all));
    for (std::uint32_t channel = 0; channel < channels(); ++channel)
      for (std::uint32_t s = 0; s < stages; ++s) {
        const std::int32_t to = receiver(static_cast<std::int32_t>(s), channel);
        const auto group = static_cast<std::uint32_t>(job.groups.size());
        job.ranks[s].groups[kFirstChannel + 2 * channel] = group;
        job.ranks[static_cast<std::size_t>(to)].groups[kFirstChannel + 2 * channel + 1] = group;
        job.groups.push_back({{static_cast<std::int32_t>(s), to}});
      }
  }

  // The channel by which the result of a task of the piece goes on; empty: nobody else needs it.
  std::optional<Channel> sent_by(const PipelineTask& task, std::int32_t piece) const {
    if (task.work == Work::weight) return std::nullopt;
    const bool backward = task.work == Work::backward;
    const std::int32_t to = backward ? piece - 1 : piece + 1;
    if (to < 0 || to == order_.shape.pieces() || order_.stage_of(to) == order_.stage_of(piece))
      return std::nullopt;
    return Channel{backward, order_.vee ? order_.chunk_of(piece) : 0};
  }

  std::optional<Channel> received_by(const PipelineTask& task, std::int32_t piece) const {
    const std::int32_t from = task.work == Work::forward ? piece - 1 : piece + 1;
    if (from < 0 || from == order_.shape.pieces()) return std::nullopt;
    return sent_by(task, from);
  }

  // --- One stage.

  std::uint32_t add(const ProgramStep& step, const StepWork& work) {
    std::vector<ProgramStep>& steps = out_.job.programs.back().steps;
    steps.push_back(step);
    out_.work.back().push_back(work);
    return static_cast<std::uint32_t>(steps.size() - 1);
  }
  void compute(Picos time, const StepWork& work) {
    ProgramStep step;
    step.duration = time;
    step.stream = ProgramStep::kHost;
    add(step, work);
  }
  std::uint32_t call(std::uint32_t index, std::uint16_t slot, std::uint8_t stream, bool blocks,
                     const StepWork& work) {
    ProgramStep step;
    step.kind = StepKind::call;
    step.index = index;
    step.slot = slot;
    step.stream = stream;
    step.blocks = blocks;
    return add(step, work);
  }
  void wait(std::uint32_t awaited) {
    ProgramStep step;
    step.kind = StepKind::wait;
    step.index = awaited;
    add(step, StepWork(out_.work.back()[awaited]));
  }
  std::uint32_t exchange(Kind kind, bool blocks, std::int32_t chunk) {
    return call(kind == Kind::gather ? kGather : kReduce, kExchangeSlot, exchange_stream(), blocks,
                {kind, 0, chunk});
  }

  bool beside(Picos bucket) const { return bucket.value > 0 && exchange_.buckets > 0; }

  void add_stage(std::int32_t stage) {
    const std::vector<PipelineTask>& tasks = order_.tasks[static_cast<std::size_t>(stage)];
    gathered_.clear();
    reduced_ = 0;
    if (beside(exchange_.gather)) {
      for (std::int32_t chunk = 0; chunk < order_.shape.chunks; ++chunk)
        for (std::int32_t b = 0; b < exchange_.buckets; ++b)
          gathered_.push_back(exchange(Kind::gather, false, chunk));
    } else if (exchange_.gather.value > 0) {
      exchange(Kind::gather, true, 0);
    }
    received_.clear();
    // A message that takes no time is there when it is sent: nothing is gained by posting it early.
    if (costs_.send.value > 0)
      for (const PipelineTask& task : tasks) received_.push_back(receive(stage, task, false));
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if (received_.empty())
        receive(stage, tasks[t], true);
      else if (received_[t])
        wait(*received_[t]);
      add_task(stage, tasks[t]);
      const std::int32_t piece = order_.piece(stage, tasks[t].chunk);
      if (const auto channel = sent_by(tasks[t], piece)) {
        const std::uint32_t number = number_of(*channel);
        call(kMessage, static_cast<std::uint16_t>(kFirstChannel + 2 * number),
             static_cast<std::uint8_t>(2 * number), false,
             {Kind::message, tasks[t].micro_batch, tasks[t].chunk});
      }
    }
    // The last task of a stage completes its last gradients.
    if (const Picos slowed = slowdown(); slowed.value > 0) compute(slowed, {Kind::slowed});
    if (exchange_.reduce.value > 0) exchange(Kind::reduce, true, 0);
    if (order_.shape.stages > 1)
      call(kMeeting, kMeetingSlot, ProgramStep::kHost, true, {Kind::meeting});
    compute(update_, {Kind::update});
  }

  // Posts what a task receives, and waits for it if `blocks`. Empty: it receives nothing.
  std::optional<std::uint32_t> receive(std::int32_t stage, const PipelineTask& task, bool blocks) {
    const auto channel = received_by(task, order_.piece(stage, task.chunk));
    if (!channel) return std::nullopt;
    const std::uint32_t number = number_of(*channel);
    return call(kMessage, static_cast<std::uint16_t>(kFirstChannel + 2 * number + 1),
                static_cast<std::uint8_t>(2 * number + 1), blocks,
                {Kind::message, task.micro_batch, task.chunk});
  }

  // A task, in as many parts as it shares with buckets. The last bucket of the stage is left to
  // add_stage().
  void add_task(std::int32_t stage, const PipelineTask& task) {
    const PieceCost& cost =
        costs_.of(order_.shape, order_.piece(stage, task.chunk), task.micro_batch);
    const Picos time = task.work == Work::forward    ? cost.forward
                       : task.work == Work::backward ? cost.backward
                                                     : cost.weight;
    const StepWork work{kind_of(task.work), task.micro_batch, task.chunk};
    const bool gathers =
        beside(exchange_.gather) && task.work == Work::forward && task.micro_batch == 0;
    // Gradients are complete when the last micro-batch has added its own.
    const bool reduces = beside(exchange_.reduce) &&
                         task.work == (order_.split ? Work::weight : Work::backward) &&
                         task.micro_batch + 1 == order_.shape.micro_batches;
    if (!gathers && !reduces) return compute(time, work);
    Picos done;
    for (std::int32_t b = 0; b < exchange_.buckets; ++b) {
      if (gathers) wait(gathered_[static_cast<std::size_t>(task.chunk * exchange_.buckets + b)]);
      // Shares of a whole, so that the parts of a task sum up to it.
      const Picos until = b + 1 == exchange_.buckets ? time : share(time, b + 1);
      compute(until - done, work);
      done = until;
      if (reduces && ++reduced_ < buckets()) exchange(Kind::reduce, false, task.chunk);
    }
  }

  std::int32_t buckets() const { return exchange_.buckets * order_.shape.chunks; }

  // What the exchange takes longer of the tasks beside it: all but the first gathering and the last
  // reducing are.
  Picos slowdown() const {
    const double hidden = static_cast<double>(std::max(0, buckets() - 1)) *
                          static_cast<double>((exchange_.gather + exchange_.reduce).value);
    return Picos{std::llround(exchange_.slowdown * hidden)};
  }

  // `parts` of as many as there are buckets of a chunk.
  Picos share(Picos time, std::int32_t parts) const {
    return Picos{
        static_cast<std::int64_t>(static_cast<double>(time.value) * parts / exchange_.buckets)};
  }

  const PipelineProgram& order_;
  const PipelineCosts& costs_;
  const StepExchange& exchange_;
  Picos update_;
  StepProgram out_;
  // Of the stage at hand: the calls that gather its buckets, by chunk; how many it has reduced;
  // what each task receives.
  std::vector<std::uint32_t> gathered_;
  std::int32_t reduced_ = 0;
  std::vector<std::optional<std::uint32_t>> received_;
};

}  // namespace

StepProgram make_step_program(const PipelineProgram& order, const PipelineCosts& costs,
                              const StepExchange& exchange, Picos update) {
  return StepBuilder(order, costs, exchange, update).build();
}

ExecutionResult execute_step(const StepProgram& step, bool record_issues) {
  const ProgramCall* const first = step.job.calls.data();
  const CostOfCall cost = [&](std::uint32_t, const ProgramCall& call) {
    return CallCost{step.call_times[static_cast<std::size_t>(&call - first)]};
  };
  ExecutionOptions options;
  options.record_issues = record_issues;
  ExecutionResult result = execute(step.job, keep_apart(step.job), cost, options);
  LOCKSTEP_CHECK(!result.stuck, "a step whose stages wait for each other");
  return result;
}

std::vector<StepStretch> stretches(const StepProgram& step, std::size_t stage,
                                   const RankOutcome& outcome) {
  std::vector<StepStretch> out;
  const std::vector<ProgramStep>& steps = step.job.programs[stage].steps;
  Picos now;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const bool of_host =
        steps[s].kind == StepKind::wait || steps[s].blocks || steps[s].stream == ProgramStep::kHost;
    if (!of_host || outcome.ended[s] <= now) continue;
    out.push_back({now, outcome.ended[s], step.work[stage][s]});
    now = outcome.ended[s];
  }
  return out;
}

}  // namespace lockstep::sim
