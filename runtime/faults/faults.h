// Deliberate mistakes (runtime/job/fault.h): each is a variant of what it is a mistake in. Whoever
// builds the loop, a strategy or a remedy asks here, and gets the right one where there is no
// fault.
#pragma once

#include <memory>

#include "runtime/groups/process_groups.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

class Recorder;
class Remedy;
struct RemedyParts;
class StepLog;
class Strategy;
struct StrategyParts;
class TrainLoop;
struct WorkerResult;

// The loop that trains the scenario, with its fault if it is Fault::clip_before_sync,
// clip_local_norm, local_overflow, barrier_on_rank_0 or zero_grad_forgotten. Arguments and
// exceptions are those of TrainLoop's constructor. Other faults are implemented in the strategy,
// the remedy or the data.
std::unique_ptr<TrainLoop> make_train_loop(const Scenario& scenario, ProcessGroups& groups,
                                           Recorder& recorder, WorkerResult& result,
                                           StepLog* log = nullptr,
                                           const Scenario* data_of = nullptr);

// ManualSync, with the mistake of parts.fault if it is Fault::gradients_summed or
// gradients_not_reduced.
std::unique_ptr<Strategy> make_manual_sync(const Scenario::Strategy& options, StrategyParts parts);

// DummyFill, with the mistake of parts.fault if it is Fault::dummy_outside_graph,
// dummy_not_recomputed, dummy_in_batchnorm, mask_decayed or diluted_average.
std::unique_ptr<Remedy> make_dummy_fill(const Scenario::Remedy& options, RemedyParts parts);

// With Fault::stalled_network: a transport that loses every reduce-scatter from step 1 on. All
// ranks make the call, and on none does it complete; what else they call goes on. Null without the
// fault, and for a rank that runs alone, which has no network. `recorder` must outlive the
// transport.
ProcessGroups::Transport transport_of(Fault fault, const ProcessGroups& groups, Recorder& recorder);

}  // namespace lockstep::runtime
