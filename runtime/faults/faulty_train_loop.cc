// Deliberate faults in the training loop. Each acts in the hook of TrainLoop at which a program
// would do the same by mistake.
#include <memory>

#include "runtime/faults/faults.h"
#include "runtime/train/train_loop.h"

namespace lockstep::runtime {

namespace {

class FaultyTrainLoop final : public TrainLoop {
 public:
  using TrainLoop::TrainLoop;

 protected:
  void clear_gradients() override {
    if (fault() != Fault::zero_grad_forgotten) TrainLoop::clear_gradients();
  }

  // As code under "if rank == 0" does.
  void wait_after_checkpoint() override {
    if (fault() != Fault::barrier_on_rank_0 || groups().who().rank == 0)
      TrainLoop::wait_after_checkpoint();
  }

  void update() override {
    switch (fault()) {
      case Fault::clip_before_sync:
        return clip_before_sync();
      case Fault::clip_local_norm:
        return clip_local_norm();
      case Fault::local_overflow:
        return overflow_locally();
      default:
        return TrainLoop::update();
    }
  }

 private:
  void clip_before_sync() {
    const ClipFactors factors = clip({});
    synchronise();
    step_optimizer(factors);
  }

  void clip_local_norm() {
    synchronise();
    if (overflowed()) return leave_step_out();
    step_optimizer(clip({}));
  }

  // Looks at this rank's own gradients, and leaves the whole update out, the communication
  // included.
  void overflow_locally() {
    if (overflowed(LossScaler::Overflow::on_this_rank)) return leave_step_out();
    synchronise();
    step_optimizer(clip(norm_over_shards()));
  }
};

}  // namespace

std::unique_ptr<TrainLoop> make_train_loop(const Scenario& scenario, ProcessGroups& groups,
                                           Recorder& recorder, WorkerResult& result, StepLog* log,
                                           const Scenario* data_of) {
  if (scenario.fault != Fault::none)
    return std::make_unique<FaultyTrainLoop>(scenario, groups, recorder, result, log, data_of);
  return std::make_unique<TrainLoop>(scenario, groups, recorder, result, log, data_of);
}

}  // namespace lockstep::runtime
