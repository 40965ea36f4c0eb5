#include "sim/engine/step_program.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"

namespace lockstep::sim {
namespace {

using Kind = StepWork::Kind;

using Of = StepExchange::Of;

// Indices of ProgramJob::calls; after them pairs for each exchange, to gather and to reduce.
constexpr std::uint32_t kMessage = kMessageCall, kNorm = 1;
// Slots of a rank's groups; after them a pair for each of its channels, to send and to receive.
constexpr std::uint16_t kExchangeSlot = 0, kNormSlot = 1, kAroundSlot = 2, kFirstChannel = 3;

// Messages of one direction (forward or backward) from one stage to another. In a vee a stage's
// chunks send different ways, so that each has a channel; else a stage's forward results all go to
// the stage after it, in the order in which that one takes them, and its gradients to the stage
// before it.
struct StageChannel {
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
  StepBuilder(const PipelineProgram& order, const std::vector<StepReplica>& replicas,
              const std::vector<StageExchange>& exchange, Picos update)
      : order_(order), replicas_(replicas), exchanges_(exchange), update_(update) {}

  StepProgram build() {
    add_call(trace::Op::send, replicas_[0].costs.send);
    add_call(trace::Op::all_reduce, Picos{});
    add_groups();
    add_exchanges();
    for (const StepReplica& replica : replicas_)
      for (std::int32_t stage = 0; stage < order_.shape.stages; ++stage) {
        Program program;
        program.streams =
            first_exchange_stream() +
            static_cast<std::uint32_t>(exchanges_[static_cast<std::size_t>(stage)].size());
        program.slots = kFirstChannel + 2 * channels();
        const std::size_t tasks = order_.tasks[static_cast<std::size_t>(stage)].size();
        program.steps.reserve(4 * tasks);
        out_.job.programs.push_back(std::move(program));
        out_.work.emplace_back().reserve(4 * tasks);
        replica_ = &replica;
        stage_ = stage;
        add_stage();
      }
    return std::move(out_);
  }

 private:
  std::uint32_t add_call(trace::Op op, Picos time) {
    ProgramCall call;
    call.op = op;
    out_.job.calls.push_back(call);
    out_.call_times.push_back(time);
    return static_cast<std::uint32_t>(out_.job.calls.size() - 1);
  }

  std::uint32_t channels() const { return order_.shape.stages == 1 ? 0 : order_.vee ? 4 : 2; }
  std::uint32_t number_of(const StageChannel& channel) const {
    return 2 * static_cast<std::uint32_t>(channel.chunk) + (channel.backward ? 1 : 0);
  }
  // Sends and receives of a channel have a stream each, the exchanges one each after them.
  std::uint32_t first_exchange_stream() const { return 2 * channels(); }

  // The stage that receives what `stage` sends. A channel without messages has one, too.
  std::uint32_t receiver(std::uint32_t stage, std::uint32_t channel) const {
    const bool backward = channel % 2 == 1;
    const bool returns = channel / 2 == 1;  // the second chunk of a vee
    const auto stages = static_cast<std::uint32_t>(order_.shape.stages);
    return (stage + (backward != returns ? stages - 1 : 1)) % stages;
  }

  // The groups of the stages, that of all, that of the stages with exchanges of `around`, that of
  // the others, and those of each replica's channels.
  void add_groups() {
    const auto stages = static_cast<std::uint32_t>(order_.shape.stages);
    const auto ranks = static_cast<std::uint32_t>(replicas_.size()) * stages;
    ProgramJob& job = out_.job;
    job.ranks.resize(ranks);
    job.groups.resize(stages + 3);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto member = static_cast<std::int32_t>(rank);
      job.groups[rank % stages].members.push_back(member);
      job.groups[stages].members.push_back(member);
      const StageExchange& exchanges = exchanges_[rank % stages];
      const bool has_around = !exchanges.empty() && exchanges.back().of == Of::around;
      const std::uint32_t around = has_around ? stages + 1 : stages + 2;
      job.groups[around].members.push_back(member);
      job.ranks[rank].program = rank;
      job.ranks[rank].groups.assign(kFirstChannel + 2 * channels(), 0);
      job.ranks[rank].groups[kExchangeSlot] = rank % stages;
      job.ranks[rank].groups[kNormSlot] = stages;
      job.ranks[rank].groups[kAroundSlot] = around;
    }
    out_.first_channel = stages + 3;
    for (std::uint32_t channel = 0; channel < channels(); ++channel)
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const std::uint32_t to = rank - rank % stages + receiver(rank % stages, channel);
        const auto group = static_cast<std::uint32_t>(job.groups.size());
        job.ranks[rank].groups[kFirstChannel + 2 * channel] = group;
        job.ranks[to].groups[kFirstChannel + 2 * channel + 1] = group;
        job.groups.push_back({{static_cast<std::int32_t>(rank), static_cast<std::int32_t>(to)}});
      }
  }

  // The calls of the exchanges. Those of `around` are one for all stages.
  void add_exchanges() {
    const auto stages = static_cast<std::uint32_t>(exchanges_.size());
    std::vector<ExchangeIndex> around;
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      std::vector<ExchangeIndex>& out = out_.exchanges.emplace_back();
      std::size_t of_around = 0;
      for (const StepExchange& exchange : exchanges_[stage]) {
        const bool shared = exchange.of == Of::around;
        if (shared && of_around < around.size()) {
          out.push_back(around[of_around++]);
          continue;
        }
        const std::uint32_t gather = add_call(trace::Op::all_gather, exchange.gather);
        const std::uint32_t reduce = add_call(trace::Op::reduce_scatter, exchange.reduce);
        out.push_back({shared ? stages + 1 : stage, gather, reduce});
        if (shared) around.push_back(out.back()), ++of_around;
      }
    }
  }

  // The channel by which the result of a task of the piece goes on; empty: nobody else needs it.
  std::optional<StageChannel> sent_by(const PipelineTask& task, std::int32_t piece) const {
    if (task.work == Work::weight) return std::nullopt;
    const bool backward = task.work == Work::backward;
    const std::int32_t to = backward ? piece - 1 : piece + 1;
    if (to < 0 || to == order_.shape.pieces() || order_.stage_of(to) == order_.stage_of(piece))
      return std::nullopt;
    return StageChannel{backward, order_.vee ? order_.chunk_of(piece) : 0};
  }

  std::optional<StageChannel> received_by(const PipelineTask& task, std::int32_t piece) const {
    const std::int32_t from = task.work == Work::forward ? piece - 1 : piece + 1;
    if (from < 0 || from == order_.shape.pieces()) return std::nullopt;
    return sent_by(task, from);
  }

  // --- One stage of one replica: `stage_` of `replica_`.

  std::uint32_t add(const ProgramStep& step, const StepWork& work) {
    std::vector<ProgramStep>& steps = out_.job.programs.back().steps;
    steps.push_back(step);
    out_.work.back().push_back(work);
    return static_cast<std::uint32_t>(steps.size() - 1);
  }
  std::uint32_t compute(Picos time, const StepWork& work) {
    ProgramStep step;
    step.duration = time;
    step.stream = ProgramStep::kHost;
    return add(step, work);
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
  std::uint32_t add_exchange(Kind kind, std::size_t x, bool blocks, std::int32_t chunk) {
    const ExchangeIndex& index = out_.exchanges[static_cast<std::size_t>(stage_)][x];
    return call(kind == Kind::gather ? index.gather : index.reduce,
                exchanges()[x].of == Of::around ? kAroundSlot : kExchangeSlot,
                static_cast<std::uint8_t>(first_exchange_stream() + x), blocks, {kind, 0, chunk});
  }

  const StageExchange& exchanges() const { return exchanges_[static_cast<std::size_t>(stage_)]; }
  // Encoders are on the first chunk of a stage.
  std::int32_t chunks_of(const StepExchange& exchange) const {
    return exchange.of == Of::tasks || exchange.of == Of::model ? order_.shape.chunks : 1;
  }
  std::int32_t buckets_of(const StepExchange& exchange) const {
    return exchange.buckets * chunks_of(exchange);
  }
  // How many buckets are reduced in the step.
  std::int64_t reduces_of(const StepExchange& exchange) const {
    return std::int64_t{buckets_of(exchange)} *
           (exchange.each_micro_batch ? order_.shape.micro_batches : 1);
  }

  void add_stage() {
    const std::vector<PipelineTask>& tasks = order_.tasks[static_cast<std::size_t>(stage_)];
    gathered_.assign(exchanges().size(), {});
    reduced_.assign(exchanges().size(), {});
    for (std::size_t x = 0; x < exchanges().size(); ++x) {
      const StepExchange& exchange = exchanges()[x];
      if (exchange.gather.value == 0) continue;
      if (exchange.buckets == 0) add_exchange(Kind::gather, x, true, 0);
      for (std::int32_t b = 0; b < buckets_of(exchange); ++b)
        gathered_[x].push_back(add_exchange(Kind::gather, x, false, b / exchange.buckets));
    }
    add_encoding(Work::forward, replica_->before);
    received_.clear();
    // A message that takes no time is there when it is sent: nothing is gained by posting it early.
    if (out_.call_times[kMessage].value > 0)
      for (const PipelineTask& task : tasks) received_.push_back(receive(task, false));
    std::uint32_t last = 0;
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if (received_.empty())
        receive(tasks[t], true);
      else if (received_[t])
        wait(*received_[t]);
      last = add_task(tasks[t]);
      const std::int32_t piece = order_.piece(stage_, tasks[t].chunk);
      if (const auto channel = sent_by(tasks[t], piece)) {
        const std::uint32_t number = number_of(*channel);
        call(kMessage, static_cast<std::uint16_t>(kFirstChannel + 2 * number),
             static_cast<std::uint8_t>(2 * number), false,
             {Kind::message, tasks[t].micro_batch, tasks[t].chunk});
      }
    }
    out_.last_task.push_back(last);
    add_encoding(Work::backward, replica_->after);
    if (const Picos slowed = slowdown(); slowed.value > 0) compute(slowed, {Kind::slowed});
    // The last of all gradients are complete by now; those of others were before.
    for (std::size_t x = 0; x < exchanges().size(); ++x)
      if (exchanges()[x].reduce.value > 0 && (exchanges()[x].buckets == 0 || is_last(x)))
        add_exchange(Kind::reduce, x, true, 0);
    for (std::size_t x = 0; x < exchanges().size(); ++x)
      if (!reduced_[x].empty() && !is_last(x)) wait(reduced_[x].back());
    if (out_.job.ranks.size() > 1) call(kNorm, kNormSlot, ProgramStep::kHost, true, {Kind::norm});
    compute(update_, {Kind::update});
  }

  bool is_last(std::size_t exchange) const { return exchange + 1 == exchanges().size(); }

  // What encoders do before the tasks and after them.
  void add_encoding(Work direction, Picos time) {
    Picos done;
    for (const Bucket& bucket : buckets_in(Of::around, direction, 0, {}, time)) {
      if (bucket.at > done) compute(bucket.at - done, {Kind::encode});
      done = std::max(done, bucket.at);
      exchange_bucket(bucket, direction, 0);
    }
    if (time > done) compute(time - done, {Kind::encode});
  }

  // Where in a task a bucket is needed, or is complete.
  struct Bucket {
    Picos at;
    std::size_t exchange = 0;
    std::int32_t number = 0;
  };

  // Those of exchanges that belong to the work from `begin` to `end`. `summed`: it adds the last
  // micro-batch's gradients.
  std::vector<Bucket> buckets_in(Of of, Work direction, std::int32_t chunk, Picos begin, Picos end,
                                 bool summed = true) const {
    std::vector<Bucket> out;
    for (std::size_t x = 0; x < exchanges().size(); ++x) {
      const StepExchange& exchange = exchanges()[x];
      const bool gathers = direction == Work::forward;
      if (exchange.of != of || exchange.buckets == 0 || chunk >= chunks_of(exchange)) continue;
      if ((gathers ? exchange.gather : exchange.reduce).value == 0) continue;
      if (!gathers && !summed && !exchange.each_micro_batch) continue;
      // Parameters are needed at the begin of their part, gradients complete at its end. Shares of
      // a whole, so that the parts sum up to it.
      for (std::int32_t b = 0; b < exchange.buckets; ++b) {
        const std::int32_t parts = gathers ? b : b + 1;
        const double whole = static_cast<double>((end - begin).value);
        out.push_back({parts == exchange.buckets ? end
                                                 : begin + Picos{static_cast<std::int64_t>(
                                                               whole * parts / exchange.buckets)},
                       x, b});
      }
    }
    return out;
  }

  // Waits for the parameters, or begins to reduce gradients. The last bucket of the stage's last
  // exchange is left to add_stage().
  void exchange_bucket(const Bucket& bucket, Work direction, std::int32_t chunk) {
    const StepExchange& exchange = exchanges()[bucket.exchange];
    if (direction == Work::forward) {
      const std::int32_t index = chunk * exchange.buckets + bucket.number;
      return wait(gathered_[bucket.exchange][static_cast<std::size_t>(index)]);
    }
    std::vector<std::uint32_t>& reduced = reduced_[bucket.exchange];
    const auto before = static_cast<std::int64_t>(reduced.size());
    if (is_last(bucket.exchange) && before + 1 == reduces_of(exchange)) return;
    const bool waits = exchange.waits && bucket.number + 1 == exchange.buckets;
    reduced.push_back(add_exchange(Kind::reduce, bucket.exchange, waits, chunk));
  }

  // Posts what a task receives, and waits for it if `blocks`. Empty: it receives nothing.
  std::optional<std::uint32_t> receive(const PipelineTask& task, bool blocks) {
    const auto channel = received_by(task, order_.piece(stage_, task.chunk));
    if (!channel) return std::nullopt;
    const std::uint32_t number = number_of(*channel);
    return call(kMessage, static_cast<std::uint16_t>(kFirstChannel + 2 * number + 1),
                static_cast<std::uint8_t>(2 * number + 1), blocks,
                {Kind::message, task.micro_batch, task.chunk});
  }

  // A task, in as many parts as it shares with buckets. Returns its last step.
  std::uint32_t add_task(const PipelineTask& task) {
    const PieceCost& cost =
        replica_->costs.of(order_.shape, order_.piece(stage_, task.chunk), task.micro_batch);
    const Picos time = task.work == Work::forward    ? cost.forward
                       : task.work == Work::backward ? cost.backward
                                                     : cost.weight;
    Picos done;
    std::optional<std::uint32_t> last;
    for (const Bucket& bucket : buckets_in_task(task, cost, time)) {
      if (bucket.at > done) last = add_part(task, cost, done, bucket.at);
      done = std::max(done, bucket.at);
      exchange_bucket(bucket, task.work == Work::forward ? Work::forward : Work::backward,
                      task.chunk);
    }
    if (time > done || !last) last = add_part(task, cost, done, time);
    return *last;
  }

  std::vector<Bucket> buckets_in_task(const PipelineTask& task, const PieceCost& cost,
                                      Picos time) const {
    const bool gathers = task.work == Work::forward && task.micro_batch == 0;
    const bool reduces = task.work == (order_.split ? Work::weight : Work::backward);
    if (!gathers && !reduces) return {};
    // Gradients are complete when the last micro-batch has added its own.
    const bool summed = task.micro_batch + 1 == order_.shape.micro_batches;
    const Work direction = gathers ? Work::forward : Work::backward;
    // Encoders come first in the forward, last in the backward. Split off, the weights' part is all
    // of both.
    Picos begin, end = time, encode_begin, encode_end = time;
    if (gathers) {
      begin = encode_end = std::clamp(cost.encode_forward, Picos{}, time);
    } else if (!order_.split) {
      end = encode_begin = std::clamp(cost.backward - cost.encode_backward, Picos{}, time);
    }
    std::vector<Bucket> out = buckets_in(Of::tasks, direction, task.chunk, {}, time, summed);
    for (const Bucket& bucket : buckets_in(Of::model, direction, task.chunk, begin, end, summed))
      out.push_back(bucket);
    for (const Bucket& bucket :
         buckets_in(Of::encoders, direction, task.chunk, encode_begin, encode_end, summed))
      out.push_back(bucket);
    std::stable_sort(out.begin(), out.end(),
                     [](const Bucket& a, const Bucket& b) { return a.at < b.at; });
    return out;
  }

  // The part of a task between two times of its own: an encoder's part is a step of its own.
  std::uint32_t add_part(const PipelineTask& task, const PieceCost& cost, Picos begin, Picos end) {
    StepWork first{kind_of(task.work), task.micro_batch, task.chunk}, second = first;
    Picos cut = end;
    if (task.work == Work::forward && cost.encode_forward.value > 0) {
      cut = std::clamp(cost.encode_forward, begin, end);
      first.kind = Kind::encode;
    } else if (task.work == Work::backward && cost.encode_backward.value > 0) {
      cut = std::clamp(cost.backward - cost.encode_backward, begin, end);
      second.kind = Kind::encode;
    }
    if (cut == begin) return compute(end - begin, second);
    const std::uint32_t last = compute(cut - begin, first);
    return cut == end ? last : compute(end - cut, second);
  }

  // How much longer the tasks take that the exchanges overlap: of each exchange all buckets but the
  // first gathered and the last reduced one overlap tasks; where each micro-batch reduces its own
  // and is waited for, all but its last one.
  Picos slowdown() const {
    double seconds = 0;
    for (const StepExchange& exchange : exchanges()) {
      const double gathers = std::max(0, buckets_of(exchange) - 1);
      const auto all = static_cast<double>(reduces_of(exchange));
      const double reduces =
          exchange.waits ? all * (exchange.buckets - 1) / exchange.buckets : std::max(0.0, all - 1);
      const double hidden = gathers * static_cast<double>(exchange.gather.value) +
                            reduces * static_cast<double>(exchange.reduce.value);
      seconds += exchange.slowdown * hidden * 1e-12;
    }
    return picos_of_seconds(seconds);
  }

  const PipelineProgram& order_;
  const std::vector<StepReplica>& replicas_;
  const std::vector<StageExchange>& exchanges_;
  Picos update_;
  StepProgram out_;
  // What is at hand: by exchange the calls that gather its buckets, by chunk, and those that reduce
  // them; what each task receives.
  const StepReplica* replica_ = nullptr;
  std::int32_t stage_ = 0;
  std::vector<std::vector<std::uint32_t>> gathered_, reduced_;
  std::vector<std::optional<std::uint32_t>> received_;
};

}  // namespace

Picos picos_of_seconds(double seconds) {
  // Beyond 2^63 llround() says nothing.
  return seconds < 9.2e6 ? Picos{std::llround(seconds * 1e12)} : Picos::forever();
}

StepProgram make_step_program(const PipelineProgram& order,
                              const std::vector<StepReplica>& replicas,
                              const std::vector<StageExchange>& exchange, Picos update) {
  LOCKSTEP_CHECK(!replicas.empty() && exchange.size() == order.tasks.size(),
                 "a step has a replica, and an exchange for each stage");
  return StepBuilder(order, replicas, exchange, update).build();
}

Result<ExecutionResult> execute_step(const StepProgram& step, bool record_issues) {
  const ProgramCall* const first = step.job.calls.data();
  const CostOfCall cost = [&](std::uint32_t, const ProgramCall& call) {
    return CallCost{step.call_times[static_cast<std::size_t>(&call - first)]};
  };
  ExecutionOptions options;
  options.record_issues = record_issues;
  SharedLinks links;
  if (step.links) {
    links.capacities = step.links->capacities;
    links.kinds = step.links->kinds;
    links.kind_of = [&](std::uint32_t group,
                        const ProgramCall& call) -> std::optional<std::uint32_t> {
      const auto found =
          step.links->kind_of.find({group, static_cast<std::uint32_t>(&call - first)});
      if (found == step.links->kind_of.end()) return std::nullopt;
      return found->second;
    };
    // Uses are of a whole call.
    links.bytes_are_whole = true;
    options.links = &links;
  }
  ExecutionResult result = execute(step.job, unfolded(step.job), cost, options);
  LOCKSTEP_CHECK(!result.stuck, "a step whose stages wait for each other");
  if (result.end.is_forever())
    return Error{"the step takes longer than the clock reaches (106 days)",
                 {},
                 "use fewer or shorter micro-batches, more ranks or a smaller model"};
  return result;
}

std::vector<StepInterval> intervals(const StepProgram& step, std::size_t rank,
                                    const RankOutcome& outcome) {
  std::vector<StepInterval> out;
  const std::vector<ProgramStep>& steps = step.job.programs[rank].steps;
  Picos now;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const bool of_host =
        steps[s].kind == StepKind::wait || steps[s].blocks || steps[s].stream == ProgramStep::kHost;
    if (!of_host || outcome.ended[s] <= now) continue;
    out.push_back({now, outcome.ended[s], step.work[rank][s]});
    now = outcome.ended[s];
  }
  return out;
}

Result<PipelineRun> run_pipeline(const PipelineProgram& order, const PipelineCosts& costs) {
  const StepProgram step = make_step_program(
      order, {StepReplica{costs}}, std::vector<StageExchange>(order.tasks.size()), Picos{});
  const Result<ExecutionResult> result = execute_step(step);
  if (!result) return result.error();
  PipelineRun out;
  for (std::size_t stage = 0; stage < order.tasks.size(); ++stage) {
    const RankOutcome& outcome = result->classes[stage];
    const std::vector<ProgramStep>& steps = step.job.programs[stage].steps;
    const auto first = std::find_if(steps.begin(), steps.end(), [](const ProgramStep& one) {
      return one.kind == StepKind::compute;
    });
    const Picos begin =
        outcome.ended[static_cast<std::size_t>(first - steps.begin())] - first->duration;
    const Picos end = step.tasks_end(stage, *result);
    out.time = std::max(out.time, end);
    out.period = std::max(out.period, end - begin);
    out.busy.push_back(outcome.compute);
    std::vector<StepInterval>& tasks = out.tasks.emplace_back(intervals(step, stage, outcome));
    std::erase_if(tasks, [](const StepInterval& one) { return one.work.kind > Kind::weight; });
  }
  for (const Picos busy : out.busy) out.idle.push_back(out.period - busy);
  return out;
}

}  // namespace lockstep::sim
