#include "runtime/strategies/pipeline_schedule.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep {
namespace {

using Kind = PipelineOp::Kind;
using Schedule = Scenario::Strategy::Schedule;

// Forwards and backwards alone.
std::vector<PipelineOp> computations(int stages_behind, int micro_batches, Schedule schedule) {
  const int warm_up = schedule == Schedule::gpipe ? micro_batches : stages_behind;
  const int ahead = std::min(warm_up, micro_batches);
  std::vector<PipelineOp> ops;
  for (int m = 0; m < ahead; ++m) ops.push_back({Kind::forward, m});
  for (int m = ahead; m < micro_batches; ++m) {
    ops.push_back({Kind::forward, m});
    ops.push_back({Kind::backward, m - ahead});
  }
  for (int m = micro_batches - ahead; m < micro_batches; ++m) ops.push_back({Kind::backward, m});
  return ops;
}

// Around each computation, its messages. Sends are settled where they are known to have arrived:
// those of the image stage with the gradient that answers them; those of the text stage under 1F1B
// with features that the image stage sent after taking them.
class Messages {
 public:
  Messages(PipelineStage stage, Schedule schedule, bool at_once)
      : receives_for_(stage == PipelineStage::image ? Kind::backward : Kind::forward),
        sends_after_(stage == PipelineStage::image ? Kind::forward : Kind::backward),
        answers_(stage == PipelineStage::image       ? 0
                 : schedule == Schedule::one_f_one_b ? kPipelineStages
                                                     : kNever),
        at_once_(at_once) {}

  void around(const PipelineOp& op) {
    if (op.kind == receives_for_) ops_.push_back({Kind::receive, op.micro_batch});
    ops_.push_back(op);
    if (op.kind == receives_for_ && answers_ != kNever) settle_up_to(op.micro_batch - answers_);
    if (op.kind != sends_after_) return;
    ops_.push_back({Kind::send, op.micro_batch});
    sent_ = op.micro_batch + 1;
    if (at_once_) settle_up_to(op.micro_batch);
  }

  std::vector<PipelineOp> take() {
    settle_up_to(sent_ - 1);
    return std::move(ops_);
  }

 private:
  static constexpr int kNever = -1;

  void settle_up_to(int last) {
    while (settled_ <= last && settled_ < sent_) ops_.push_back({Kind::settle, settled_++});
  }

  Kind receives_for_, sends_after_;
  int answers_;  // a message of micro-batch m says that this stage's of m - answers_ was taken
  bool at_once_;
  int sent_ = 0, settled_ = 0;
  std::vector<PipelineOp> ops_;
};

}  // namespace

std::vector<PipelineOp> pipeline_schedule(PipelineStage stage, int micro_batches, Schedule schedule,
                                          bool crossed) {
  LOCKSTEP_CHECK(micro_batches > 0, "a step without micro-batches");
  const bool image = stage == PipelineStage::image;
  const bool at_once = crossed && schedule == Schedule::one_f_one_b;
  const Schedule own = crossed && image ? Schedule::one_f_one_b : schedule;
  Messages messages(stage, own, at_once);
  for (const PipelineOp& op : computations(image ? 1 : 0, micro_batches, own)) messages.around(op);
  return messages.take();
}

}  // namespace lockstep
