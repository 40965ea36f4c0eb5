#include "sim/forecast/goodput.h"

#include <algorithm>
#include <cmath>

namespace lockstep::sim {

double goodput(const FailureModel& model, double interval) {
  const double m = model.mtbf;
  const double wall =
      m * std::exp(model.restart / m) * std::expm1((interval + model.checkpoint) / m);
  return std::isfinite(wall) && wall > 0 ? interval / wall : 0;
}

double young_interval(const FailureModel& model) {
  return std::sqrt(2 * model.checkpoint * model.mtbf);
}

double daly_interval(const FailureModel& model) {
  const double d = model.checkpoint;
  const double m = model.mtbf;
  if (d >= 2 * m) return m;
  const double x = std::sqrt(d / (2 * m));
  return std::sqrt(2 * d * m) * (1 + x / 3 + x * x / 9) - d;
}

double best_interval(const FailureModel& model) {
  // The goodput rises to one maximum and falls again, and the maximum is below M: setting the
  // derivative to 0 gives 1 - w/M = e^-((w + d)/M). Halving finds the w where both sides meet.
  double low = 0;
  double high = model.mtbf;
  for (int i = 0; i < 200 && high - low > 1e-6 * high; ++i) {
    const double w = (low + high) / 2;
    const bool rises = 1 - w / model.mtbf > std::exp(-(w + model.checkpoint) / model.mtbf);
    (rises ? low : high) = w;
  }
  return std::max((low + high) / 2, 1e-9);
}

}  // namespace lockstep::sim
