// The order of tasks in each schedule, and make_pipeline(), which checks the shape first.

#include "sim/pipeline/schedule.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::sim {

using StageOrder = std::vector<PipelineTask>;

// 1F1B over chunks: micro-batches go in groups of p through chunk 0, 1, …, after 2(p-1-r) + (v-1)p
// forwards. Narayanan et al., SC'21, fig. 4 bottom and section 2.2.
StageOrder interleaved_order(PipelineShape shape, std::int32_t stage);

// Qi et al., "Zero bubble pipeline parallelism", arXiv 2401.10241, section 2.2: forwards and
// backwards in 1F1B's order. Stage r delays each weight part by r micro-batches, which keeps memory
// at p activations on every stage.
StageOrder zb_h1_order(PipelineShape shape, std::int32_t stage);

// The same, section 2.3: 2(p - r) - 1 forwards come first and weight parts are delayed by 2r
// micro-batches. This leaves no bubble between the parts, for twice the memory.
StageOrder zb_h2_order(PipelineShape shape, std::int32_t stage);

// The same, section 6: two chunks per stage; the second one goes through the stages backwards.
StageOrder zbv_order(PipelineShape shape, std::int32_t stage);

namespace {

struct Named {
  PipelineSchedule schedule;
  std::string_view name;
  bool split;
};

constexpr std::array<Named, 6> kSchedules = {{
    {PipelineSchedule::gpipe, "gpipe", false},
    {PipelineSchedule::one_f_one_b, "1f1b", false},
    {PipelineSchedule::interleaved, "interleaved", false},
    {PipelineSchedule::zb_h1, "zb-h1", true},
    {PipelineSchedule::zb_h2, "zb-h2", true},
    {PipelineSchedule::zbv, "zbv", true},
}};

const Named& row(PipelineSchedule schedule) {
  return *std::find_if(kSchedules.begin(), kSchedules.end(),
                       [&](const Named& named) { return named.schedule == schedule; });
}

Error refusal(std::string message, std::string fix) {
  return Error{std::move(message), {}, std::move(fix)};
}

Status check_counts(const PipelineShape& shape) {
  struct Count {
    std::string_view flag;
    std::int32_t value;
  };
  for (const Count& count :
       {Count{"--stages", shape.stages}, Count{"--micro-batches", shape.micro_batches},
        Count{"--chunks", shape.chunks}})
    if (count.value < 1)
      return refusal(fmt::format("{} is {}; a pipeline has at least 1", count.flag, count.value),
                     fmt::format("give {} a positive number", count.flag));
  if (shape.stages > kMaxPipelineStages)
    return refusal(fmt::format("--stages is {}; at most {} are simulated: a stage has at least a "
                               "layer, and no model has as many",
                               shape.stages, kMaxPipelineStages),
                   "give --stages the number of GPUs that the layers are dealt over");
  return Status::ok();
}

Status check_size(const PipelineShape& shape, bool split) {
  const std::int64_t passes = split ? 3 : 2;
  const std::int64_t most = kMaxPipelineTasks / passes;
  const std::int64_t per_stage = std::int64_t{shape.micro_batches} * shape.chunks;
  if (per_stage <= most && per_stage * shape.stages <= most) return Status::ok();
  return refusal(
      fmt::format("the schedule would have more than {} tasks (--stages x --micro-batches x "
                  "--chunks x {})",
                  kMaxPipelineTasks, passes),
      "simulate fewer --micro-batches: a pipeline's middle only repeats itself");
}

Status check_chunks(PipelineSchedule schedule, const PipelineShape& shape) {
  const std::string name(pipeline_schedule_name(schedule));
  if (schedule == PipelineSchedule::zbv && shape.chunks != 2)
    return refusal(
        fmt::format("--chunks is {}; --schedule zbv lays the model over the stages and back, in 2 "
                    "chunks",
                    shape.chunks),
        "leave --chunks out, or give 2");
  if (schedule != PipelineSchedule::zbv && schedule != PipelineSchedule::interleaved &&
      shape.chunks != 1)
    return refusal(fmt::format("--chunks is {}; --schedule {} has one piece of the model per stage",
                               shape.chunks, name),
                   "leave --chunks out, or use --schedule interleaved");
  if (schedule == PipelineSchedule::interleaved && shape.micro_batches % shape.stages != 0)
    return refusal(
        fmt::format("--micro-batches {} is not a multiple of --stages {}: --schedule interleaved "
                    "sends micro-batches through each chunk in groups of one per stage",
                    shape.micro_batches, shape.stages),
        fmt::format("use --micro-batches {}, or --schedule 1f1b",
                    (std::int64_t{shape.micro_batches} / shape.stages + 1) * shape.stages));
  return Status::ok();
}

StageOrder order_of(PipelineSchedule schedule, PipelineShape shape, std::int32_t stage) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
    case PipelineSchedule::one_f_one_b:
      return stage_order(schedule, shape.stages - 1 - stage, shape.micro_batches);
    case PipelineSchedule::interleaved:
      return interleaved_order(shape, stage);
    case PipelineSchedule::zb_h1:
      return zb_h1_order(shape, stage);
    case PipelineSchedule::zb_h2:
      return zb_h2_order(shape, stage);
    case PipelineSchedule::zbv:
      return zbv_order(shape, stage);
  }
  return {};
}

}  // namespace

std::int32_t PipelineProgram::piece(std::int32_t stage, std::int32_t chunk) const {
  return vee && chunk == 1 ? 2 * shape.stages - 1 - stage : chunk * shape.stages + stage;
}

std::int32_t PipelineProgram::stage_of(std::int32_t piece) const {
  return vee && piece >= shape.stages ? 2 * shape.stages - 1 - piece : piece % shape.stages;
}

std::int32_t PipelineProgram::chunk_of(std::int32_t piece) const { return piece / shape.stages; }

std::vector<std::int64_t> peak_in_flight(const PipelineProgram& program) {
  const Work last = program.split ? Work::weight : Work::backward;
  std::vector<std::int64_t> out;
  for (const std::vector<PipelineTask>& tasks : program.tasks) {
    std::int64_t now = 0, most = 0;
    for (const PipelineTask& task : tasks) {
      if (task.work == Work::forward) most = std::max(most, ++now);
      if (task.work == last) --now;
    }
    out.push_back(most);
  }
  return out;
}

std::vector<Bytes> peak_bytes(const PipelineProgram& program,
                              const std::vector<KeptBytes>& pieces) {
  std::vector<Bytes> out;
  for (std::size_t stage = 0; stage < program.tasks.size(); ++stage) {
    std::int64_t now = 0, most = 0;
    for (const PipelineTask& task : program.tasks[stage]) {
      const KeptBytes& kept = pieces[static_cast<std::size_t>(
          program.piece(static_cast<std::int32_t>(stage), task.chunk))];
      const std::int64_t later = program.split ? kept.for_weight.value : 0;
      if (task.work == Work::forward)
        most = std::max(most, now += kept.activation.value);
      else
        now -= task.work == Work::weight ? later : kept.activation.value - later;
    }
    out.push_back(Bytes{most});
  }
  return out;
}

std::string_view pipeline_schedule_name(PipelineSchedule schedule) { return row(schedule).name; }

const std::vector<std::string>& pipeline_schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    out.reserve(kSchedules.size());
    for (const Named& named : kSchedules) out.emplace_back(named.name);
    return out;
  }();
  return names;
}

Result<PipelineSchedule> parse_pipeline_schedule(std::string_view name) {
  for (const Named& named : kSchedules)
    if (named.name == name) return named.schedule;
  const std::vector<std::string>& names = pipeline_schedule_names();
  return refusal(fmt::format("--schedule \"{}\" is not known", printable(name)),
                 did_you_mean(name, names, fmt::format("use one of {}", join_and(names))));
}

bool splits_backward(PipelineSchedule schedule) { return row(schedule).split; }

Result<PipelineProgram> make_pipeline(PipelineSchedule schedule, PipelineShape shape) {
  if (const Status counts = check_counts(shape); !counts) return counts.error();
  if (const Status chunks = check_chunks(schedule, shape); !chunks) return chunks.error();
  if (const Status size = check_size(shape, splits_backward(schedule)); !size) return size.error();
  PipelineProgram program;
  program.schedule = schedule;
  program.shape = shape;
  program.vee = schedule == PipelineSchedule::zbv;
  program.split = splits_backward(schedule);
  program.tasks.reserve(static_cast<std::size_t>(shape.stages));
  for (std::int32_t stage = 0; stage < shape.stages; ++stage)
    program.tasks.push_back(order_of(schedule, shape, stage));
  return program;
}

// The schedules whose backward pass is one piece: GPipe, 1F1B, interleaved 1F1B.

namespace {

// `warm_up` forwards, then one forward and one backward in turn, then the remaining backwards;
// `total` of each. `forward(i)` and `backward(i)` give the i-th task of their kind. For warm_up 2,
// total 4: F0 F1 F2 B0 F3 B1 B2 B3.
template <class Forward, class Backward>
StageOrder alternate(std::int32_t warm_up, std::int32_t total, Forward forward, Backward backward) {
  StageOrder order;
  order.reserve(2 * static_cast<std::size_t>(total));
  warm_up = std::min(warm_up, total);
  for (std::int32_t i = 0; i < warm_up; ++i) order.push_back(forward(i));
  for (std::int32_t i = warm_up; i < total; ++i) {
    order.push_back(forward(i));
    order.push_back(backward(i - warm_up));
  }
  for (std::int32_t i = total - warm_up; i < total; ++i) order.push_back(backward(i));
  return order;
}

}  // namespace

// GPipe: all forwards, then all backwards (arXiv 1811.06965, fig. 2c). 1F1B: as many forwards as
// there are stages after this one, then one forward and one backward in turn, then the remaining
// backwards (PipeDream-Flush; Narayanan et al., SC'21, arXiv 2104.04473, fig. 4 top).
StageOrder stage_order(PipelineSchedule schedule, std::int32_t stages_after,
                       std::int32_t micro_batches) {
  const bool gpipe = schedule == PipelineSchedule::gpipe;
  LOCKSTEP_CHECK(gpipe || schedule == PipelineSchedule::one_f_one_b,
                 "an order that depends on more than the stages after this one");
  return alternate(
      gpipe ? micro_batches : stages_after, micro_batches,
      [](std::int32_t i) {
        return PipelineTask{Work::forward, i, 0};
      },
      [](std::int32_t i) {
        return PipelineTask{Work::backward, i, 0};
      });
}

StageOrder interleaved_order(PipelineShape shape, std::int32_t stage) {
  const std::int32_t p = shape.stages;
  const std::int32_t v = shape.chunks;
  const auto task = [p, v](Work work, std::int32_t i) {
    // The i-th task: p micro-batches go through chunk 0, then the same p through chunk 1, …; after
    // all chunks the next p. For p = 2, v = 2: micro-batches 0 1 0 1 2 3 2 3 in chunks 0 0 1 1 0 0
    // 1 1. Backwards take the chunks in reverse.
    const std::int32_t turn = i / p % v;
    const std::int32_t micro_batch = i / (p * v) * p + i % p;
    return PipelineTask{work, micro_batch, work == Work::forward ? turn : v - 1 - turn};
  };
  const std::int32_t warm_up = 2 * (p - 1 - stage) + (v - 1) * p;
  return alternate(
      warm_up, shape.micro_batches * v, [&](std::int32_t i) { return task(Work::forward, i); },
      [&](std::int32_t i) { return task(Work::backward, i); });
}

// Schedules that split the backward pass: the weights' gradients can wait, and fill the gaps in
// which a stage has nothing else to do.

namespace {

// `warm_up` forwards, then backward, weight part and forward in turn; each weight part comes
// `put_off` micro-batches after its backward.
StageOrder hand_crafted(PipelineShape shape, std::int32_t warm_up, std::int32_t put_off) {
  const std::int32_t m = shape.micro_batches;
  StageOrder order;
  order.reserve(3 * static_cast<std::size_t>(m));
  std::int32_t forwards = 0;
  std::int32_t weights = 0;
  while (forwards < std::min(warm_up, m)) order.push_back({Work::forward, forwards++, 0});
  for (std::int32_t i = 0; i < m; ++i) {
    order.push_back({Work::backward, i, 0});
    if (i >= put_off) order.push_back({Work::weight, weights++, 0});
    if (forwards < m) order.push_back({Work::forward, forwards++, 0});
  }
  while (weights < m) order.push_back({Work::weight, weights++, 0});
  return order;
}

// Counts the tasks of each kind that a stage has done, for ZB-V's two chunks.
//
// The pattern needs at least 2p - 1 micro-batches; tasks of those that do not exist are counted and
// left out. So an order has 6 tasks for each micro-batch, however many rounds the pattern takes.
class VeeOrder {
 public:
  explicit VeeOrder(std::int32_t micro_batches) : micro_batches_(micro_batches) {
    order_.reserve(6 * static_cast<std::size_t>(micro_batches));
  }
  void forward(std::int32_t chunk) { add(Work::forward, chunk); }
  void backward(std::int32_t chunk) { add(Work::backward, chunk); }
  void weight(std::int32_t chunk) { add(Work::weight, chunk); }
  std::int32_t forwards(std::int32_t chunk) const { return done(Work::forward, chunk); }
  StageOrder take() { return std::move(order_); }

  // Runs `round` that many times, at a cost of O(tasks added): since counts only grow, a round that
  // adds nothing is followed by others that add nothing, and they are counted at once.
  template <class Round>
  void repeat(std::int32_t times, Round round) {
    for (std::int32_t i = 0; i < times; ++i) {
      const std::size_t tasks = order_.size();
      const auto before = done_;
      round();
      if (order_.size() > tasks) continue;
      for (std::size_t kind = 0; kind < done_.size(); ++kind)
        done_[kind] += (times - 1 - i) * (done_[kind] - before[kind]);
      return;
    }
  }

  // The weight parts of a chunk whose backwards are done.
  void weights_left(std::int32_t chunk) {
    repeat(done(Work::backward, chunk) - done(Work::weight, chunk), [&] { weight(chunk); });
  }

 private:
  static std::size_t kind(Work work, std::int32_t chunk) {
    return 2 * static_cast<std::size_t>(work) + static_cast<std::size_t>(chunk);
  }
  std::int32_t done(Work work, std::int32_t chunk) const { return done_[kind(work, chunk)]; }
  void add(Work work, std::int32_t chunk) {
    const std::int32_t micro_batch = done_[kind(work, chunk)]++;
    if (micro_batch < micro_batches_) order_.push_back({work, micro_batch, chunk});
  }

  std::int32_t micro_batches_;
  std::array<std::int32_t, 6> done_{};  // by work and chunk
  StageOrder order_;
};

}  // namespace

StageOrder zb_h1_order(PipelineShape shape, std::int32_t stage) {
  return hand_crafted(shape, shape.stages - stage, stage);
}

StageOrder zb_h2_order(PipelineShape shape, std::int32_t stage) {
  return hand_crafted(shape, 2 * (shape.stages - stage) - 1, 2 * stage);
}

StageOrder zbv_order(PipelineShape shape, std::int32_t stage) {
  const std::int32_t p = shape.stages;
  const std::int32_t m = std::max(2 * p - 1, shape.micro_batches);
  VeeOrder order(shape.micro_batches);
  const auto backward_and_weight = [&](std::int32_t chunk) {
    order.backward(chunk);
    order.weight(chunk);
  };
  // Warm-up: fill the first chunk until the first micro-batch comes back on the second one.
  order.repeat(2 * (p - stage) - 1, [&] { order.forward(0); });
  order.repeat(stage, [&] {
    order.forward(1);
    order.forward(0);
  });
  order.repeat(p - stage, [&] {
    order.forward(1);
    backward_and_weight(1);
  });
  // Steady state: one forward, backward and weight part of each chunk, until the first chunk has
  // no forward left; then the rest of the second one's.
  order.repeat(m - order.forwards(0), [&] {
    order.forward(0);
    backward_and_weight(0);
    order.forward(1);
    backward_and_weight(1);
  });
  order.repeat(order.forwards(0) - order.forwards(1), [&] {
    backward_and_weight(0);
    order.forward(1);
    backward_and_weight(1);
  });
  order.repeat(stage, [&] {
    order.backward(0);
    order.backward(1);
  });
  order.repeat(p - stage, [&] { backward_and_weight(0); });
  order.weights_left(1);
  order.weights_left(0);
  return order.take();
}

}  // namespace lockstep::sim
