// A sweep of nine points: what fits, does not fit, hangs, is refused and fails.
#pragma once

#include <cstdint>
#include <string>

#include "reports/sweeps/report.h"

namespace lockstep::sim {

inline Row plan_row(std::int64_t ranks, const std::string& strategy, double step_ms, double samples,
                    double gigabytes) {
  Row out;
  out.machine = "machines/h100.yaml";
  out.values = {{"ranks", ranks}, {"strategy", strategy}};
  out.outcome = Outcome::trains;
  out.ranks = ranks;
  out.step_seconds = step_ms / 1e3;
  out.samples_per_second = samples;
  out.memory_bytes = gigabytes * 1e9;
  out.memory_counted = true;
  out.device_bytes = 80e9;
  return out;
}

inline Row broken(Outcome outcome, const std::string& reason) {
  Row out;
  out.machine = "machines/h100.yaml";
  out.values = {{"ranks", 3}, {"strategy", "pipeline"}};
  out.outcome = outcome;
  out.reason = reason;
  return out;
}

inline reports::Summary small_sweep() {
  reports::Summary out;
  out.scenario = "a job";
  out.keys = {"ranks", "strategy"};
  out.grid_points = 10;
  out.rows = {plan_row(2, "ddp", 10, 200, 40),
              plan_row(4, "ddp", 11, 380, 40),
              plan_row(4, "fsdp", 12, 350, 20),
              plan_row(4, "manual", 13, 340, 30),  // beaten by fsdp
              plan_row(8, "ddp", 12, 700, 90),     // more than the machine has
              broken(Outcome::hangs, "modality-divergence: rank 1 never came"),
              broken(Outcome::refused, "ranks should be even\x1b[31m"),
              broken(Outcome::refused, "ranks should be even\x1b[31m"),
              broken(Outcome::failed, "the worker was killed by SIGKILL"),
              broken(Outcome::wrong, "modality-divergence: rank 0 summed another tensor")};
  return out;
}

}  // namespace lockstep::sim
