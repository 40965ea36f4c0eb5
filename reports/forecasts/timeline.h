// A pipeline's run as a picture of characters: a line per stage, time to the right.
#pragma once

#include <string>

#include "sim/pipeline/run_pipeline.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::sim {

// Lines of at most `width` columns (at least 24), each ended by a line break, the last one saying
// what the characters mean. Where everything starts and ends on multiples of a unit that fits into
// the width, one column is one unit; else a column shows what runs in its middle. Of more than
// `most_stages` stages the first ones are shown. `run` is that of `program`.
std::string pipeline_timeline(const PipelineProgram& program, const PipelineRun& run,
                              std::size_t width = 80, std::size_t most_stages = 32);

}  // namespace lockstep::sim
