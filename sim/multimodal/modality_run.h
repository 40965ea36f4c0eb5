// A step in which the ranks of an encoder diverge (modality_check.h), as a run: the calls of its
// ranks. The verifier judges it, in the words of a real hang.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "sim/multimodal/modality_check.h"
#include "trace/run.h"

namespace lockstep::sim {

// The calls of the encoder's ranks in step divergence.first: what each gathers and sums; if their
// order matters, with those of the LLM and of other encoders. At most kMaxRanksShown ranks: those
// that differ, and others.
inline constexpr std::size_t kMaxRanksShown = 64;
Result<trace::Run> modality_run(const MultimodalPlan& plan, const ModalityDivergence& divergence);

}  // namespace lockstep::sim
