// How much of a machine's peak a job uses.
//
// PaLM (Chowdhery et al., 2022, arXiv 2204.02311, appendix B) tells two figures apart: hardware
// FLOPs utilization (HFU) counts every operation that devices carry out, rematerialisation
// included; model FLOPs utilization (MFU) those alone that the forward and backward pass of the
// model need. What was counted (trace/work_costs.h) is what kernels carry out, in matrix products
// and convolutions, so the figure here is HFU. The trainer rematerialises nothing, so that it is
// MFU as well, but where dummy batches are computed that no sample asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/machine/machine.h"
#include "trace/work_costs.h"

namespace lockstep::sim {

struct FlopUse {
  double flops = 0;         // of all ranks in a step: mean
  double peak_seconds = 0;  // that a rank would take for its part at the peaks of its types: mean
  // Of a step that takes so long; of no time: 0.
  double share(double step_seconds) const {
    return step_seconds > 0 ? peak_seconds / step_seconds : 0;
  }
};

// `costs`: of every rank, repeated where one stands for several. Steps after the first `skipped`
// that a rank made, `count` of them: sim/machine/training_steps.h. O(work of the different ranks +
// ranks).
FlopUse flop_use(const std::vector<const RankCosts*>& costs, const Machine& machine,
                 std::size_t skipped, std::size_t count);

}  // namespace lockstep::sim
