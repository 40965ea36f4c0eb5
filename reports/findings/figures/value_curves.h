// The recorded numbers of a run as curves over its training steps: the loss, and the norms of the
// most relevant tensors, with the steps in which ranks differed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

struct CurvePoint {
  std::int64_t n = 0;  // step
  double value = 0;    // finite
};

struct Curve {
  std::vector<trace::Rank> ranks;  // that recorded exactly these values, sorted
  std::vector<CurvePoint> points;
};

struct ValueCurves {
  std::string name;           // the tensor's, or "loss"
  std::string kind;           // "parameter", "gradient after synchronisation" …
  std::vector<Curve> curves;  // those of most ranks first
  std::size_t curves_left_out = 0;
  // For each step that at least two ranks recorded: whether they agree, by hash, else by norm.
  // Empty where ranks may differ (sharded values, gradients before synchronisation, loss).
  struct Agreement {
    std::int64_t n = 0;
    bool agree = true;
  };
  std::vector<Agreement> agreement;
  std::optional<std::int64_t> first_difference;  // the first step in which they do not agree
};

// The mean loss over the ranks, then at most `most` tensors: those that a finding names, then those
// that differ earliest, then those recorded first. Empty if neither was recorded. O(marks log
// marks).
std::vector<ValueCurves> value_curves(const verify::Report& report, const trace::Run& run,
                                      std::size_t most);

}  // namespace lockstep::reports

// Small charts of ValueCurves: a line for each kind of rank, and below it a strip that shows in
// which steps the ranks agreed.

namespace lockstep::reports::html {

// Markup; empty for no curves. Long curves are reduced to as many points as can be seen.
std::string value_charts(const std::vector<ValueCurves>& all);

}  // namespace lockstep::reports::html
