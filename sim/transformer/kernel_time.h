// Times of single kernels and collectives inside a training step, on one GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/collectives/price.h"
#include "sim/transformer/calibration.h"
#include "trace/signature.h"

namespace lockstep::sim {

// A product [rows, depth] x [depth, columns]; `batch` of them in one launch.
struct Gemm {
  double rows = 0, columns = 0, depth = 0, batch = 1;
  double flops() const { return 2 * rows * columns * depth * batch; }
};

// Time of a product. Each processor computes a tile of 256 x 128 or 128 x 256 of the result, the
// sizes at which cuBLAS is the most efficient, whichever takes less time; where the result is
// narrower, so is the tile, in steps of 64. A tile at the edge takes as long as a whole one. Tiles
// go to the processors in waves, and the last wave may be mostly empty (NVIDIA, "Matrix
// multiplication background user's guide", tile and wave quantization). A short inner dimension
// does not fill the pipeline of loads. At least the time to read and write the 16-bit operands.
// With `fp8`, of 8-bit operands, multiplying is `fp8_gain` times as fast.
double gemm_seconds(const CostParameters& cost, const Gemm& gemm, bool fp8 = false);

// Time of element-wise kernels that read and write `bytes` in total.
double traffic_seconds(const CostParameters& cost, double bytes);

// The ranks of a collective.
struct Group {
  int ranks = 1;
  int per_node = 1;  // of them on one node; equal to `ranks` where they use no network
  int stride = 1;    // how far they are apart
  // GPUs among which all groups like this one call at once; 0: this one calls alone.
  std::int64_t all = 0;
  bool wraps = false;  // of a message: the last of those GPUs also send to the first
};

// `ranks` ranks that are `stride` apart.
Group group_of(const CostParameters& cost, int ranks, int stride, std::int64_t all = 0);

// price() of a call at the calibration's speed of its level, and where its group is. Empty: beyond
// the clock's range.
struct PricedGroup {
  GroupLayout layout;
  std::optional<Price> price;
};
PricedGroup price_group(const CostParameters& cost, trace::Op op, double bytes, const Group& group);

// Seconds; no plan is priced with a longer piece.
inline constexpr double kLongestPiece = 1e5;

// Time of a call inside a training step: price_group(), longer where all such groups together fill
// links of the network (sim/transformer/plan_network.h), plus call_overhead x log2(ranks). `bytes`
// as nccl-tests counts them.
double collective_seconds(const CostParameters& cost, trace::Op op, double bytes, Group group);

}  // namespace lockstep::sim
