#include "runtime/strategies/pipeline_schedule.h"

#include <utility>

#include "base/check.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::runtime {
namespace {

using OpKind = PipelineOp::Kind;
using Schedule = Scenario::Strategy::Schedule;

// Forwards and backwards without messages: the order in which the simulator runs them, too.
std::vector<PipelineOp> computations(int count_stages_after, int micro_batches, Schedule schedule) {
  const auto named = schedule == Schedule::gpipe ? sim::PipelineSchedule::gpipe
                                                 : sim::PipelineSchedule::one_f_one_b;
  std::vector<PipelineOp> ops;
  for (const sim::PipelineTask& task : sim::stage_order(named, count_stages_after, micro_batches))
    ops.push_back(
        {task.work == sim::Work::forward ? OpKind::forward : OpKind::backward, task.micro_batch});
  return ops;
}

// Adds the messages around each computation. A send is settled once it is known to have been taken:
// a result, when the answer to it arrives; an answer, under 1F1B, when a result arrives that the
// previous stage sent after taking the answer. That stage has one more stage after it than this
// one, so it sends micro-batch m only after it has taken the answer to m - (stages_after + 2).
class Messages {
 public:
  Messages(const PipelineStage& stage, Schedule schedule, bool at_once)
      : has_inputs_(!stage.inputs.empty()),
        has_output_(stage.output.has_value()),
        results_say_(schedule == Schedule::one_f_one_b ? stage.stages_after + 2 : kNothing),
        at_once_(at_once) {}

  void around(const PipelineOp& op) {
    const int m = op.micro_batch;
    if (op.kind == OpKind::forward) {
      if (has_inputs_) ops_.push_back({OpKind::receive, m});
      ops_.push_back(op);
      if (has_inputs_ && results_say_ != kNothing) answers_.settle_up_to(m - results_say_, ops_);
      if (has_output_) results_.send(m, at_once_, ops_);
      return;
    }
    if (has_output_) ops_.push_back({OpKind::receive_answer, m});
    ops_.push_back(op);
    if (has_output_) results_.settle_up_to(m, ops_);
    if (has_inputs_) answers_.send(m, at_once_, ops_);
  }

  std::vector<PipelineOp> take() {
    results_.settle_up_to(results_.sent - 1, ops_);
    answers_.settle_up_to(answers_.sent - 1, ops_);
    return std::move(ops_);
  }

 private:
  static constexpr int kNothing = -1;

  // The messages in one direction.
  struct Direction {
    OpKind send_kind, settle_kind;
    int sent = 0, settled = 0;

    void send(int m, bool at_once, std::vector<PipelineOp>& ops) {
      ops.push_back({send_kind, m});
      sent = m + 1;
      if (at_once) settle_up_to(m, ops);
    }
    void settle_up_to(int last, std::vector<PipelineOp>& ops) {
      while (settled <= last && settled < sent) ops.push_back({settle_kind, settled++});
    }
  };

  bool has_inputs_, has_output_;
  // the result of micro-batch m shows that the answer to m - results_say_ was taken
  int results_say_;
  bool at_once_;
  Direction results_{OpKind::send, OpKind::settle};
  Direction answers_{OpKind::answer, OpKind::settle_answer};
  std::vector<PipelineOp> ops_;
};

}  // namespace

const std::vector<PipelineStage>& pipeline_stages(int count) {
  static const std::vector<PipelineStage> kTwo = {{"image", {}, 1, 1}, {"text", {0}, {}, 0}};
  static const std::vector<PipelineStage> kFour = {{"image_front", {}, 1, 2},
                                                   {"image_back", {0}, 3, 1},
                                                   {"text_front", {}, 3, 1},
                                                   {"text_back", {1, 2}, {}, 0}};
  LOCKSTEP_CHECK(count == 2 || count == 4, "a pipeline of two or four stages");
  return count == 2 ? kTwo : kFour;
}

std::vector<PipelineOp> pipeline_schedule(const PipelineStage& stage, int micro_batches,
                                          Schedule schedule, bool crossed) {
  LOCKSTEP_CHECK(micro_batches > 0, "a step without micro-batches");
  const bool at_once = crossed && schedule == Schedule::one_f_one_b;
  const Schedule own = crossed && stage.inputs.empty() ? Schedule::one_f_one_b : schedule;
  Messages messages(stage, own, at_once);
  for (const PipelineOp& op : computations(stage.stages_after, micro_batches, own))
    messages.around(op);
  return messages.take();
}

}  // namespace lockstep::runtime
