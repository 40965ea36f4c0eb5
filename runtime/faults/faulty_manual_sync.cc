// Deliberate faults in the hand-written synchronisation of gradients.
#include <memory>
#include <utility>

#include "runtime/faults/faults.h"
#include "runtime/strategies/manual.h"

namespace lockstep::runtime {

namespace {

// The step is taken with the sum over the ranks: too long by the number of ranks, on all alike.
class SummedGradients final : public ManualSync {
 public:
  using ManualSync::ManualSync;

 protected:
  void divide() override {}
};

// Every rank trains a model of its own.
class UnreducedGradients final : public ManualSync {
 public:
  using ManualSync::ManualSync;

 protected:
  void reduce(Synced&) override {}
  void divide() override {}
};

}  // namespace

std::unique_ptr<Strategy> make_manual_sync(const Scenario::Strategy& options, StrategyParts parts) {
  if (parts.fault == Fault::gradients_summed)
    return std::make_unique<SummedGradients>(options, std::move(parts));
  if (parts.fault == Fault::gradients_not_reduced)
    return std::make_unique<UnreducedGradients>(options, std::move(parts));
  return std::make_unique<ManualSync>(options, std::move(parts));
}

}  // namespace lockstep::runtime
