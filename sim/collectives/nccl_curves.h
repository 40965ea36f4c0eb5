// Measured all-reduce times: a few (bytes, seconds) points per machine and number of ranks, and the
// interpolation between them.
//
// NCCL changes algorithm and protocol with the size, so one line of latency and bandwidth leaves an
// error of 14-27 % on published tables. Between two points of a curve the time is a straight line
// in the logarithms; after the last point it grows in proportion to the bytes. A curve of only two
// points is latency plus bytes over bandwidth instead. Between the rank counts of a machine, times
// are interpolated linearly in the number of ranks, at the sizes that put as many bytes on each
// link.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::sim {

struct NcclCurve {
  std::string machine;
  std::int64_t ranks = 0;
  struct Point {
    double bytes = 0, seconds = 0;
  };
  std::vector<Point> points;  // ascending in bytes, at least two
};

// Parses `text`, the contents of the YAML file `file`; times are in microseconds:
//
//   curves:
//     - {machine: a100, ranks: 8, points: [[1048576, 92.8], …]}
//
// Errors, with the location: a missing key, fewer than two points, numbers out of order.
Result<std::vector<NcclCurve>> parse_nccl_curves(const std::string& text, const std::string& file);

// Seconds of an all-reduce. Errors: the machine has no curve, or none with at least and none with
// at most `ranks` ranks; the message lists the curves there are.
Result<double> nccl_seconds(const std::vector<NcclCurve>& curves, const std::string& machine,
                            std::int64_t ranks, double bytes);

}  // namespace lockstep::sim
