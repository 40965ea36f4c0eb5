// Jobs for the tests of the engines.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/engine/executor.h"

namespace lockstep::sim {

// A job in which every rank does the same, in one group of all.
inline ProgramJob alike(std::uint32_t ranks, std::vector<ProgramStep> steps,
                        std::vector<ProgramCall> calls, std::uint32_t streams) {
  ProgramJob job;
  job.programs.push_back({std::move(steps), streams, 1});
  job.calls = std::move(calls);
  job.groups.emplace_back();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    job.groups[0].members.push_back(static_cast<std::int32_t>(r));
    job.ranks.push_back({0, {0}});
  }
  return job;
}

inline ProgramStep compute(std::int64_t picos, std::uint8_t stream = ProgramStep::kHost) {
  ProgramStep step;
  step.duration = Picos{picos};
  step.stream = stream;
  return step;
}
inline ProgramStep issue(std::uint32_t call, std::uint8_t stream, bool blocks = false,
                         std::uint16_t slot = 0) {
  ProgramStep step;
  step.kind = StepKind::call;
  step.index = call;
  step.slot = slot;
  step.stream = stream;
  step.blocks = blocks;
  return step;
}
inline ProgramStep wait(std::uint32_t awaited) {
  ProgramStep step;
  step.kind = StepKind::wait;
  step.index = awaited;
  return step;
}

inline ProgramStep follow(std::uint32_t awaited, std::uint8_t stream) {
  ProgramStep step;
  step.kind = StepKind::follow;
  step.index = awaited;
  step.stream = stream;
  return step;
}

inline CostOfCall constant(std::int64_t picos) {
  return [picos](std::uint32_t, const ProgramCall&) { return CallCost{Picos{picos}}; };
}

// Numbers that look drawn and are the same in every run.
class Draw {
 public:
  std::uint32_t operator()(std::uint32_t below) {
    state_ = state_ * 1664525U + 1013904223U;
    return (state_ >> 16U) % below;
  }

 private:
  std::uint32_t state_ = 1;
};

// Rows and columns of a grid of 16 ranks, drawn programs of one or two kinds, some of which hang.
inline ProgramJob drawn_job(Draw& random) {
  ProgramJob job;
  job.calls.resize(1);
  for (std::uint32_t p = 0; p < 1 + random(2); ++p) {
    Program program{{}, 2, 2};
    for (std::uint32_t s = 0; s < 6; ++s) {
      program.steps.push_back(compute(1 + random(9)));
      const auto slot = static_cast<std::uint8_t>(random(8) == 0 ? 1 : s % 2);
      program.steps.push_back(issue(0, slot, random(3) != 0, slot));
    }
    job.programs.push_back(program);
  }
  job.groups.resize(8);
  for (std::uint32_t r = 0; r < 16; ++r) {
    const bool odd = job.programs.size() > 1 && random(6) == 0;
    job.ranks.push_back({odd ? 1U : 0U, {r / 4, 4 + r % 4}});
    job.groups[r / 4].members.push_back(static_cast<std::int32_t>(r));
    job.groups[4 + r % 4].members.push_back(static_cast<std::int32_t>(r));
  }
  return job;
}

}  // namespace lockstep::sim
