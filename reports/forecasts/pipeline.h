// The result of `lockstep simulate pipeline`, as text and as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/engine/step_program.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::reports {

struct PipelineAnswer {
  sim::PipelineProgram program;
  sim::PipelineRun run;
  std::vector<Bytes> peak_bytes;  // of activations, by stage; empty: their sizes are not known
};

// A table of the stages and the timeline, at most `width` columns wide (from 60); ends with a line
// break.
std::string pipeline_text(const PipelineAnswer& answer, std::size_t width);

// {"schedule", "stages", "micro_batches", "chunks", "time_ps", "period_ps", "bubble", "busy_ps":
// [], "idle_ps": [], "peak_in_flight": []} and, where known, "peak_bytes": []; lists by stage.
// "bubble" is the idle share of the period. Ends with a line break.
std::string pipeline_json(const PipelineAnswer& answer);

// A pipeline's run, drawn with characters: a line per stage, time to the right.
//
// Lines of at most `width` columns (at least 24), each ending in a line break; the last one
// explains the characters. If every start and end is a multiple of a unit and the run fits into the
// width, one column is one unit; else a column shows what runs in its middle. Only the first
// `most_stages` stages are shown. `run` is that of `program`.
std::string pipeline_timeline(const sim::PipelineProgram& program, const sim::PipelineRun& run,
                              std::size_t width, std::size_t most_stages = 32);

}  // namespace lockstep::reports
