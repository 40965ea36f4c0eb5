#include "verify/final_loss.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "verify/numbers/rounding.h"

namespace lockstep {

namespace {

// The last step that a rank finished, and the mean loss of the ranks that recorded one.
std::optional<std::pair<std::int64_t, double>> last_loss(const Run& run) {
  std::optional<std::int64_t> last;
  double sum = 0;
  int ranks = 0;
  for (const RankTrace& trace : run.ranks) {
    for (const StepMark& step : trace.steps) {
      if (last && step.n < *last) continue;
      if (!last || step.n > *last) {
        last = step.n;
        sum = 0;
        ranks = 0;
      }
      if (!step.loss) continue;
      sum += *step.loss;
      ++ranks;
    }
  }
  if (!last || ranks == 0) return std::nullopt;
  return std::pair{*last, sum / ranks};
}

}  // namespace

double loss_tolerance(std::string_view dtype) {
  const double u = unit_roundoff(dtype).value_or(0);
  return std::sqrt(u > 0 ? u : kFloat32Roundoff);
}

std::optional<FinalLoss> final_loss(const Run& run, const Run& reference, std::string_view dtype) {
  const auto own = last_loss(run);
  const auto other = last_loss(reference);
  if (!own || !other || own->first != other->first) return std::nullopt;
  FinalLoss out;
  out.step = own->first;
  out.loss = own->second;
  out.reference = other->second;
  out.tolerance = loss_tolerance(dtype);
  const double difference = std::abs(out.loss - out.reference);
  out.apart = difference == 0 ? 0 : difference / std::abs(out.reference);
  return out;
}

}  // namespace lockstep
