#include "sim/transformer/kernel_time.h"

#include <algorithm>
#include <cmath>

#include "sim/collectives/collective.h"
#include "sim/transformer/plan_network.h"

namespace lockstep::sim {
namespace {

constexpr double kMaxBytes = 1e18;  // of a call: far beyond any, and within 64 bits

}  // namespace

double gemm_seconds(const CostParameters& cost, const Gemm& gemm, bool fp8) {
  constexpr double kTile = 128;  // rows and columns of the result that one processor computes
  const double tiles =
      std::ceil(gemm.rows / kTile) * std::ceil(gemm.columns / kTile) * std::max(gemm.batch, 1.0);
  // Example: 110 tiles on 108 processors take two waves, with 51 % of the processors busy.
  const double waves = std::ceil(tiles / cost.processors);
  const double filled = tiles / (waves * cost.processors);
  // What is not faster in 8 bits: loading and storing at the ends of a tile.
  const double speed = fp8 ? cost.fp8_gain : 1;
  const double efficiency =
      cost.gemm_efficiency * filled * gemm.depth / (gemm.depth + speed * cost.gemm_half_depth);
  const double bytes =
      2 * gemm.batch *
      (gemm.rows * gemm.depth + gemm.depth * gemm.columns + gemm.rows * gemm.columns);
  return std::max(gemm.flops() / (cost.peak_flops * speed * efficiency),
                  traffic_seconds(cost, bytes));
}

double traffic_seconds(const CostParameters& cost, double bytes) {
  return bytes / cost.memory_bandwidth;
}

Group group_of(const CostParameters& cost, int ranks, int stride, std::int64_t all) {
  // Ranks `stride` apart: with 8 ranks per node and stride 4, two of them are on one node.
  const auto per_node = static_cast<int>(std::max<std::int64_t>(1, cost.ranks_per_node / stride));
  return {ranks, std::min(ranks, per_node), stride, all};
}

PricedGroup price_group(const CostParameters& cost, trace::Op op, double bytes,
                        const Group& group) {
  // NCCL's model needs equally many members on each node: 5 ranks, of which two fit on a node, are
  // priced as if each were on a node of its own.
  int per_node = group.per_node;
  while (group.ranks % per_node != 0) --per_node;
  PricedGroup out{{group.ranks, group.ranks / per_node, per_node}, std::nullopt};
  add_hops(cost, group, out.layout);
  const Call call{op, Bytes{static_cast<std::int64_t>(std::llround(std::min(bytes, kMaxBytes)))}};
  const Result<Price> priced =
      price(call, out.layout, cost, out.layout.nodes == 1 ? cost.node_speed : cost.network_speed);
  if (priced) out.price = *priced;
  return out;
}

double collective_seconds(const CostParameters& cost, trace::Op op, double bytes, Group group) {
  if (group.ranks <= 1) return 0;
  const PricedGroup priced = price_group(cost, op, bytes, group);
  // The time is beyond the clock's range. priced_tasks() refuses a piece that takes this long.
  if (!priced.price) return 10 * kLongestPiece;
  double seconds = priced.price->time.seconds();
  if (cost.network)
    seconds *= crowding(cost, {op, Bytes{std::llround(std::min(bytes, kMaxBytes))}}, group,
                        priced.layout, *priced.price, seconds);
  // Launching the call, and waiting for its last member. The largest of n random delays grows with
  // log n.
  return seconds + cost.call_overhead * std::log2(group.ranks);
}

}  // namespace lockstep::sim
