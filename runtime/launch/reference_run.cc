#include "runtime/launch/reference_run.h"

#include <string_view>
#include <utility>

#include "base/files/make_folder.h"
#include "runtime/job/reference.h"
#include "runtime/launch/run_folder.h"

namespace lockstep {

namespace {

std::string_view forward_dtype(Scenario::Train::Precision precision) {
  switch (precision) {
    case Scenario::Train::Precision::float32:
      return "float32";
    case Scenario::Train::Precision::bfloat16:
      return "bfloat16";
    case Scenario::Train::Precision::float16:
      return "float16";
  }
  return "float32";
}

}  // namespace

Result<ReferenceRun> run_reference(const Scenario& scenario, const JobOutcome& outcome,
                                   JobOptions options, Interrupts& interrupts) {
  ReferenceRun out;
  if (outcome.end != JobEnd::completed) {
    out.none = "the job did not finish";
    return out;
  }
  if (const Result<Scenario> possible = reference_of(scenario); !possible) {
    out.none = possible.error().message;
    return out;
  }
  Scenario alone = scenario;  // the worker makes the reference of it
  alone.ranks = 1;
  options.folder += "/reference";
  options.more = {"--reference"};
  if (const Status made = make_folder(options.folder); !made) return made.error();
  const Result<JobOutcome> reference = run_job(alone, options, interrupts, {});
  if (!reference) return reference.error();
  if (reference->end != JobEnd::completed) {
    return Error{"the reference did not finish", {log_file(options.folder, 0)}, "its log says why"};
  }
  out.folder = options.folder;
  out.comparison = compare_runs(outcome.run, reference->run);
  out.loss = final_loss(outcome.run, reference->run, forward_dtype(scenario.train.precision));
  return out;
}

}  // namespace lockstep
