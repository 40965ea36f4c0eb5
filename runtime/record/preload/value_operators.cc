// Operators by which a Python program puts values into its ring file: torch.ops.lockstep.*, for
// runtime/record/python/lockstep_watch.py. They do nothing in a process that is not recorded.
#include <limits>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/library.h>

#include "runtime/device/tensor_fingerprint.h"
#include "runtime/record/c10d/recorded_group.h"
#include "runtime/record/preload/job_record.h"

namespace lockstep::runtime {
namespace {

// Makes the rank's file before its first collective, so that values before that are in it. `group`:
// the name of one that PyTorch knows, whose ranks are all of the job. Makes no collective.
void open_record(const std::string& group) {
  JobRecord::of_process().group(c10d::resolve_process_group(group));
}

bool is_recording() { return JobRecord::of_process().is_open(); }

// `kind`: param, grad (what the optimizer gets), local (a gradient before its reduction) or optim.
// `shared`: all ranks that record a tensor of this name hold the same values; else they are parts
// of something, and not compared. `sketch`: beside hash and norm, by which sums are told from
// means, and how far a part moved; it takes as long as those two.
void record_value(std::int64_t step, const std::string& name, const at::Tensor& value,
                  const std::string& kind, bool shared, bool sketch) {
  if (!is_recording()) return;
  Recorder& recorder = JobRecord::of_process().recorder();
  const Recorder::Timed timed(recorder);
  const trace::Fingerprint print = fingerprint_of(value, sketch ? trace::kSketchValues : 0);
  const bool finite = print.non_finite == 0;
  trace::RingWriter::State state;
  state.n = step;
  state.name = recorder.ring().intern(name);
  state.dtype = recorder.ring().intern(dtype_name(value.scalar_type()));
  state.shape = value.sizes().vec();
  state.hash = print.hash;
  // Values that are not finite have no norm and no sketch to compare.
  state.norm = finite ? print.norm : std::numeric_limits<double>::quiet_NaN();
  if (finite) state.sketch = print.sketch;
  const bool local = kind == "local";
  state.kind = kind == "grad" || local ? trace::StateMark::Kind::grad
               : kind == "optim"       ? trace::StateMark::Kind::optim
                                       : trace::StateMark::Kind::param;
  if (kind == "grad") state.when = trace::StateMark::When::synced;
  if (local) state.when = trace::StateMark::When::local;
  state.sharded = !shared;
  recorder.ring().state(state);
}

// Step n has ended; the calls that follow are of step n + 1.
void record_step(std::int64_t step) {
  if (!is_recording()) return;
  Recorder& recorder = JobRecord::of_process().recorder();
  if (step >= 0) recorder.step(step, std::numeric_limits<double>::quiet_NaN(), -1);
  recorder.context().step = static_cast<std::int32_t>(step + 1);
}

// The samples that the rank reads in step n.
void record_samples(std::int64_t step, std::vector<std::int64_t> indices) {
  if (is_recording()) JobRecord::of_process().recorder().data(step, indices);
}

}  // namespace
}  // namespace lockstep::runtime

TORCH_LIBRARY(lockstep, library) {
  library.def("open_record(str group) -> ()", &lockstep::runtime::open_record);
  library.def("is_recording() -> bool", &lockstep::runtime::is_recording);
  library.def(
      "record_value(int step, str name, Tensor value, str kind, bool shared, bool sketch) -> ()",
      &lockstep::runtime::record_value);
  library.def("record_step(int step) -> ()", &lockstep::runtime::record_step);
  library.def("record_samples(int step, int[] indices) -> ()", &lockstep::runtime::record_samples);
}
