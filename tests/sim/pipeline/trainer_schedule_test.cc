// The trainer orders the forwards and backwards of its stages, which form a tree, as the simulator
// orders those of a chain: by stage_order(). What the trainer adds are messages.
#include <vector>

#include <gtest/gtest.h>

#include "runtime/strategies/pipeline_schedule.h"
#include "sim/pipeline/schedule.h"

namespace lockstep {
namespace {

using TrainerSchedule = runtime::Scenario::Strategy::Schedule;

struct Computation {
  bool forward;
  int micro_batch;

  friend bool operator==(const Computation&, const Computation&) = default;
};

std::vector<Computation> trained(const runtime::PipelineStage& stage, int micro_batches,
                                 TrainerSchedule schedule) {
  std::vector<Computation> out;
  for (const runtime::PipelineOp& op : pipeline_schedule(stage, micro_batches, schedule))
    if (op.kind == runtime::PipelineOp::Kind::forward ||
        op.kind == runtime::PipelineOp::Kind::backward)
      out.push_back({op.kind == runtime::PipelineOp::Kind::forward, op.micro_batch});
  return out;
}

std::vector<Computation> simulated(const sim::PipelineProgram& program, int stage) {
  std::vector<Computation> out;
  for (const sim::PipelineTask& task : program.tasks[static_cast<std::size_t>(stage)])
    out.push_back({task.work == sim::Work::forward, task.micro_batch});
  return out;
}

TEST(TrainerSchedule, OrdersTheWorkOfAStageAsTheSimulatorDoes) {
  for (const int count : {2, 4})
    for (const int micro_batches : {1, 2, 3, 4, 5, 8, 13})
      for (const auto& [trainer, simulator] :
           {std::pair{TrainerSchedule::gpipe, sim::PipelineSchedule::gpipe},
            std::pair{TrainerSchedule::one_f_one_b, sim::PipelineSchedule::one_f_one_b}})
        for (const runtime::PipelineStage& stage : runtime::pipeline_stages(count)) {
          // The longest way through the tree, as a chain: four stages have a depth of three.
          const int depth = runtime::pipeline_stages(count).front().stages_after + 1;
          const auto program = sim::make_pipeline(simulator, {depth, micro_batches, 1});
          ASSERT_TRUE(program) << program.error().str();
          EXPECT_EQ(trained(stage, micro_batches, trainer),
                    simulated(*program, depth - 1 - stage.stages_after))
              << stage.name << " of " << count << ", " << micro_batches << " micro-batches";
        }
}

}  // namespace
}  // namespace lockstep
