// All-reduce times of measured machines: a few (bytes, seconds) points per machine and number of
// ranks, and what lies between them.
//
// NCCL changes algorithm and protocol with the size, so one line of latency and bandwidth leaves
// 14-27 % error on published tables. Between two points of a curve the time is a straight line in
// the logarithms, and behind the last one in proportion to the bytes, unless the curve has only
// two: then it is latency plus bytes over bandwidth. Between the rank counts of a machine, times
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
  std::vector<Point> points;  // by bytes, at least two
};

// Reads `text` of the YAML file `file`: "curves: [{machine: a100, ranks: 8, points: [[1048576,
// 92.8], …]}, …]", times in microseconds.
// Errors, with the place: a key that is missing, fewer than two points, numbers out of order.
Result<std::vector<NcclCurve>> parse_nccl_curves(const std::string& text, const std::string& file);

// Seconds of an all-reduce. Errors: a machine that has no curve, or none for so many ranks (nor for
// fewer and for more): the message lists those that there are.
Result<double> nccl_seconds(const std::vector<NcclCurve>& curves, const std::string& machine,
                            std::int64_t ranks, double bytes);

}  // namespace lockstep::sim
