#include "sim/pipeline/schedule.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "sim/pipeline/schedule_orders.h"

namespace lockstep::sim {
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
      return refusal(std::string(count.flag) + " is " + std::to_string(count.value) +
                         "; a pipeline has at least 1",
                     "give " + std::string(count.flag) + " a positive number");
  return Status::ok();
}

Status check_size(const PipelineShape& shape, bool split) {
  const std::int64_t passes = split ? 3 : 2;
  const std::int64_t most = kMostPipelineTasks / passes;
  const std::int64_t per_stage = std::int64_t{shape.micro_batches} * shape.chunks;
  if (per_stage <= most && per_stage * shape.stages <= most) return Status::ok();
  return refusal("the schedule would have more than " + std::to_string(kMostPipelineTasks) +
                     " tasks (--stages x --micro-batches x --chunks x " + std::to_string(passes) +
                     ")",
                 "simulate fewer --micro-batches: a pipeline's middle only repeats itself");
}

Status check_chunks(PipelineSchedule schedule, const PipelineShape& shape) {
  const std::string name(pipeline_schedule_name(schedule));
  if (schedule == PipelineSchedule::zbv && shape.chunks != 2)
    return refusal("--chunks is " + std::to_string(shape.chunks) +
                       "; --schedule zbv lays the model over the stages and back, in 2 chunks",
                   "leave --chunks out, or give 2");
  if (schedule != PipelineSchedule::zbv && schedule != PipelineSchedule::interleaved &&
      shape.chunks != 1)
    return refusal("--chunks is " + std::to_string(shape.chunks) + "; --schedule " + name +
                       " has one piece of the model per stage",
                   "leave --chunks out, or use --schedule interleaved");
  if (schedule == PipelineSchedule::interleaved && shape.micro_batches % shape.stages != 0)
    return refusal(
        "--micro-batches " + std::to_string(shape.micro_batches) + " is no multiple of --stages " +
            std::to_string(shape.stages) +
            ": --schedule interleaved sends micro-batches through each chunk in groups "
            "of as many as there are stages",
        "use --micro-batches " +
            std::to_string((std::int64_t{shape.micro_batches} / shape.stages + 1) * shape.stages) +
            ", or --schedule 1f1b");
  return Status::ok();
}

StageOrder order_of(PipelineSchedule schedule, PipelineShape shape, std::int32_t stage) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return gpipe_order(shape);
    case PipelineSchedule::one_f_one_b:
      return one_f_one_b_order(shape, stage);
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
  const std::string meant = nearest(name, pipeline_schedule_names());
  return refusal("--schedule \"" + printable(name) + "\" is not known",
                 meant.empty() ? "use one of " + join_and(pipeline_schedule_names())
                               : "did you mean --schedule " + meant + "?");
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

}  // namespace lockstep::sim
