// The replicas of a plan by how slow their GPUs are, so that one of each kind is simulated.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/machine/machine.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

// Replicas whose stages are slow alike: a stage is as slow as the slowest GPU of its tensor and
// context ranks, which wait for each other in every layer.
struct AlikeReplicas {
  std::vector<double> slowness;  // by stage
  std::int64_t count = 0;
};

struct ReplicaClasses {
  std::vector<AlikeReplicas> alike;    // the most numerous in front
  std::vector<std::int32_t> class_of;  // by replica: index in `alike`
};

// `slow`: the machine's slow ranks. O(GPUs · ranges of slow ranks).
ReplicaClasses replicas_of(const TrainingPlan& plan, const std::vector<Machine::Slow>& slow);

// How slow the slowest of these GPUs is: all of them wait for it. O(GPUs · ranges of slow ranks).
double slowest_of(const std::vector<Machine::Slow>& slow, std::int64_t first, std::int64_t count);

// A machine whose kernels take `factor` times as long; its host and its links do not.
CostParameters slowed(CostParameters cost, double factor);

}  // namespace lockstep::sim
