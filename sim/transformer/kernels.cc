#include "sim/transformer/kernels.h"

#include <algorithm>
#include <cmath>

#include "sim/collectives/collective.h"

namespace lockstep::sim {

double gemm_seconds(const CostParameters& cost, const Gemm& gemm, double speed) {
  constexpr double kTile = 128;
  const double tiles =
      std::ceil(gemm.rows / kTile) * std::ceil(gemm.columns / kTile) * std::max(gemm.batch, 1.0);
  const double waves = std::ceil(tiles / cost.processors);
  const double filled = tiles / (waves * cost.processors);
  const double efficiency =
      cost.gemm_efficiency * filled * gemm.depth / (gemm.depth + cost.gemm_half_depth);
  const double bytes =
      2 * gemm.batch *
      (gemm.rows * gemm.depth + gemm.depth * gemm.columns + gemm.rows * gemm.columns);
  return std::max(gemm.flops() / (cost.peak_flops * speed * efficiency),
                  traffic_seconds(cost, bytes));
}

double traffic_seconds(const CostParameters& cost, double bytes) {
  return bytes / cost.memory_bandwidth;
}

Group group_of(const CostParameters& cost, int ranks, int stride) {
  const double places = std::max(1.0, std::floor(cost.ranks_per_node / stride));
  return {ranks, std::min(ranks, static_cast<int>(places))};
}

double collective_seconds(const CostParameters& cost, Op op, double bytes, Group group) {
  if (group.ranks <= 1) return 0;
  const double volume = bytes * bus_factor(op, group.ranks);
  if (group.per_node == group.ranks)
    return cost.node_latency * (0.5 + group.ranks / 16.0) + volume / cost.node_bandwidth;
  return 2 * cost.network_latency * std::log2(group.ranks) +
         volume / std::min(cost.network_bandwidth * group.per_node, cost.node_bandwidth);
}

}  // namespace lockstep::sim
