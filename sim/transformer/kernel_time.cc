#include "sim/transformer/kernel_time.h"

#include <algorithm>
#include <cmath>

#include "sim/collectives/collective.h"
#include "sim/transformer/plan_network.h"

namespace lockstep::sim {
namespace {

constexpr double kMaxBytes = 1e18;  // of a call: far beyond any, and within 64 bits

// Sides of the part of a result that one processor computes at once.
constexpr double kLong = 256, kShort = 128, kShortest = 64;

// Operations of all processors in all waves, with what they compute beyond the result. Example: 110
// tiles on 108 processors take two waves, with 51 % of the processors busy.
double padded_flops(const CostParameters& cost, const Gemm& gemm, double rows, double columns) {
  const auto side = [](double most, double size) {
    return std::min(most, kShortest * std::ceil(size / kShortest));
  };
  const double tile_rows = side(rows, gemm.rows), tile_columns = side(columns, gemm.columns);
  const double tiles = std::ceil(gemm.rows / tile_rows) * std::ceil(gemm.columns / tile_columns) *
                       std::max(gemm.batch, 1.0);
  const double waves = std::ceil(tiles / cost.processors);
  return waves * cost.processors * 2 * tile_rows * tile_columns * gemm.depth;
}

}  // namespace

double gemm_seconds(const CostParameters& cost, const Gemm& gemm, bool fp8) {
  const double speed = fp8 ? cost.fp8_gain : 1;
  // What is not faster in 8 bits: loading and storing at the ends of a tile.
  const double rate = cost.peak_flops * speed * cost.gemm_efficiency * gemm.depth /
                      (gemm.depth + speed * cost.gemm_half_depth);
  const double computing =
      std::min(padded_flops(cost, gemm, kLong, kShort), padded_flops(cost, gemm, kShort, kLong)) /
      rate;
  const double bytes =
      2 * gemm.batch *
      (gemm.rows * gemm.depth + gemm.depth * gemm.columns + gemm.rows * gemm.columns);
  return std::max(computing, traffic_seconds(cost, bytes));
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
