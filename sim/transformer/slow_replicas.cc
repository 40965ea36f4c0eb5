#include "sim/transformer/slow_replicas.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::sim {

ReplicaClasses replicas_of(const TrainingPlan& plan, const std::vector<Machine::Slow>& slow) {
  ReplicaClasses out;
  out.class_of.resize(static_cast<std::size_t>(plan.data));
  if (slow.empty()) {
    out.alike = {{std::vector<double>(static_cast<std::size_t>(plan.pipeline), 1), 1}};
    return out;
  }
  std::map<std::vector<double>, std::vector<std::int64_t>> found;
  const std::int64_t together = std::int64_t{plan.tensor} * plan.context;
  for (std::int64_t replica = 0; replica < plan.data; ++replica) {
    std::vector<double> stages;
    for (std::int64_t stage = 0; stage < plan.pipeline; ++stage) {
      const std::int64_t first = (stage * plan.data + replica) * together;
      stages.push_back(slowest_of(slow, first, together));
    }
    found[std::move(stages)].push_back(replica);
  }
  for (const auto& [stages, replicas] : found)
    out.alike.push_back({stages, static_cast<std::int64_t>(replicas.size())});
  std::stable_sort(out.alike.begin(), out.alike.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  for (std::size_t i = 0; i < out.alike.size(); ++i)
    for (const std::int64_t replica : found.at(out.alike[i].slowness))
      out.class_of[static_cast<std::size_t>(replica)] = static_cast<std::int32_t>(i);
  return out;
}

double slowest_of(const std::vector<Machine::Slow>& slow, std::int64_t first, std::int64_t count) {
  double most = 0;
  for (std::int64_t rank = first; rank < first + count; ++rank)
    most = std::max(most, slowness_of(slow, rank));
  return most;
}

CostParameters slowed(CostParameters cost, double factor) {
  cost.peak_flops /= factor;
  cost.memory_bandwidth /= factor;
  return cost;
}

}  // namespace lockstep::sim
