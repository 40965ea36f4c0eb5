#include "runtime/strategies/strategy.h"

#include "runtime/faults/faults.h"
#include "runtime/strategies/ddp.h"
#include "runtime/strategies/fsdp.h"
#include "runtime/strategies/pipeline.h"

namespace lockstep::runtime {

std::unique_ptr<Strategy> make_strategy(const Scenario::Strategy& options, StrategyParts parts) {
  switch (options.kind) {
    case Scenario::Strategy::Kind::manual:
      return make_manual_sync(options, std::move(parts));
    case Scenario::Strategy::Kind::ddp:
      return std::make_unique<Ddp>(options, std::move(parts));
    case Scenario::Strategy::Kind::pipeline:
      return std::make_unique<Pipeline>(options, std::move(parts));
    case Scenario::Strategy::Kind::fsdp:
      return std::make_unique<Fsdp>(options, std::move(parts));
  }
  LOCKSTEP_CHECK(false, "a strategy without an implementation");
}

}  // namespace lockstep::runtime
