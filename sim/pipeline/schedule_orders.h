// The orders of the single schedules, for make_pipeline(): the shape has been checked.
#pragma once

#include <vector>

#include "sim/pipeline/schedule.h"

namespace lockstep::sim {

using StageOrder = std::vector<PipelineTask>;

// All forwards, then all backwards. GPipe, arXiv 1811.06965, fig. 2c.
StageOrder gpipe_order(PipelineShape shape);

// p - 1 - r forwards, then one forward and one backward in turn, then the backwards left.
// PipeDream-Flush; Narayanan et al., SC'21, arXiv 2104.04473, fig. 4 top.
StageOrder one_f_one_b_order(PipelineShape shape, std::int32_t stage);

// 1F1B over chunks: micro-batches go in groups of p through chunk 0, 1, …; 2(p-1-r) + (v-1)p
// forwards come first. Narayanan et al., SC'21, fig. 4 bottom and section 2.2.
StageOrder interleaved_order(PipelineShape shape, std::int32_t stage);

// Qi et al., "Zero bubble pipeline parallelism", arXiv 2401.10241, section 2.2: 1F1B's order of
// forwards and backwards; stage r puts off each weight part by r micro-batches, which keeps memory
// at p activations everywhere.
StageOrder zb_h1_order(PipelineShape shape, std::int32_t stage);

// The same, section 2.3: 2(p - r) - 1 forwards come first and weight parts wait for 2r
// micro-batches, which leaves no bubble between the parts for twice the memory.
StageOrder zb_h2_order(PipelineShape shape, std::int32_t stage);

// The same, section 6: two chunks per stage, the second one running backwards through the stages.
StageOrder zbv_order(PipelineShape shape, std::int32_t stage);

}  // namespace lockstep::sim
