// Times of single kernels and collectives on one GPU, in seconds.
#pragma once

#include "sim/transformer/calibration.h"
#include "trace/signature.h"

namespace lockstep::sim {

// [rows, depth] x [depth, columns], `batch` of them in one launch.
struct Gemm {
  double rows = 0, columns = 0, depth = 0, batch = 1;
  double flops() const { return 2 * rows * columns * depth * batch; }
};

// Tiles of 128 x 128 go to the processors in waves, of which the last one may be mostly empty
// (NVIDIA, "Matrix multiplication background user's guide", wave quantization); a short inner
// dimension leaves the pipeline of loads unfilled. At least the time to read and write the 16-bit
// operands. `speed` multiplies the peak: 8-bit products.
double gemm_seconds(const CostParameters& cost, const Gemm& gemm, double speed = 1);

// Element-wise kernels over so many bytes.
double traffic_seconds(const CostParameters& cost, double bytes);

// Who takes part in a collective.
struct Group {
  int ranks = 1;
  int per_node = 1;  // of them on one node; equal to `ranks` where no network is between them
};

// Ranks that are `stride` apart, as many as `ranks`.
Group group_of(const CostParameters& cost, int ranks, int stride);

// A ring over `bytes` (as nccl-tests counts them): bus_factor(op) x bytes over the slowest link;
// the members of a node bring one network card each.
double collective_seconds(const CostParameters& cost, trace::Op op, double bytes, Group group);

}  // namespace lockstep::sim
