// Deliberate faults in the remedies that compute a dummy image. Each overrides the one step of
// DummyFill in which it differs.
#include <memory>
#include <utility>

#include "runtime/faults/faults.h"
#include "runtime/models/checkpointing.h"
#include "runtime/remedies/dummy_fill.h"

namespace lockstep::runtime {

namespace {

// The dummy is computed and thrown away: autograd does not reach the image path.
class DummyOutsideGraph final : public DummyFill {
 public:
  using DummyFill::DummyFill;

 protected:
  at::Tensor joined(const at::Tensor& loss, const at::Tensor&) const override { return loss; }
};

// As code under "if self.gradient_checkpointing and self.training" does: a dummy goes through the
// encoder in evaluation mode.
class DummyNotRecomputed final : public DummyFill {
 public:
  using DummyFill::DummyFill;

 protected:
  at::Tensor dummy() override {
    const NoCheckpointing as_in_evaluation;
    return DummyFill::dummy();
  }
};

class DummyInBatchNorm final : public DummyFill {
 public:
  using DummyFill::DummyFill;

 protected:
  DummyBatchNorm batch_norm() const override { return DummyBatchNorm::learns; }
};

// Gradients of zero stay where no rank had an image: weight decay and momentum move the weights.
class DecayedMask final : public DummyFill {
 public:
  using DummyFill::DummyFill;

 protected:
  bool leaves_unused() const override { return false; }
};

// The traces declare a mean over the contributors, and it is one over all ranks.
class DilutedAverage final : public DummyFill {
 public:
  using DummyFill::DummyFill;

 protected:
  bool averages_over_contributors() const override { return false; }
};

}  // namespace

std::unique_ptr<Remedy> make_dummy_fill(const Scenario::Remedy& options, RemedyParts parts) {
  switch (parts.fault) {
    case Fault::dummy_outside_graph:
      return std::make_unique<DummyOutsideGraph>(options, std::move(parts));
    case Fault::dummy_not_recomputed:
      return std::make_unique<DummyNotRecomputed>(options, std::move(parts));
    case Fault::dummy_in_batchnorm:
      return std::make_unique<DummyInBatchNorm>(options, std::move(parts));
    case Fault::mask_decayed:
      return std::make_unique<DecayedMask>(options, std::move(parts));
    case Fault::diluted_average:
      return std::make_unique<DilutedAverage>(options, std::move(parts));
    default:
      return std::make_unique<DummyFill>(options, std::move(parts));
  }
}

}  // namespace lockstep::runtime
