// What `lockstep simulate pipeline` answers, as text and as JSON.
#pragma once

#include <string>

#include "sim/pipeline/run_pipeline.h"
#include "sim/pipeline/schedule.h"

namespace lockstep {

struct PipelineAnswer {
  sim::PipelineProgram program;
  sim::PipelineRun run;
  bool sized = false;  // activations have sizes
};

// A table of the stages and the timeline, at most 80 columns wide; ends with a line break.
std::string pipeline_text(const PipelineAnswer& answer);

// {"schedule", "stages", "micro_batches", "chunks", "time_ps", "period_ps", "bubble", "busy_ps":
// [], "idle_ps": [], "peak_in_flight": []} and, where sized, "peak_bytes": []; lists by stage.
// "bubble" is the idle share of the period. Ends with a line break.
std::string pipeline_json(const PipelineAnswer& answer);

}  // namespace lockstep
