#include "tests/verify/injection/meshes/mesh_trial.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "tests/verify/injection/device_traces.h"
#include "tests/verify/injection/dumps.h"
#include "tests/verify/injection/meshes/mesh_expectation.h"
#include "tests/verify/injection/meshes/mesh_jobs.h"

namespace lockstep::verify::injection {

const char* to_string(MeshForm form) {
  static constexpr std::array kNames = {"T", "P", "G", "I", "F"};
  static_assert(kNames.size() == kMeshForms);
  return kNames[static_cast<std::size_t>(form)];
}

namespace {

Recording any_nccl_recording(MeshForm form, Random& random) {
  Recording r;
  r.backend = form == MeshForm::blocking ? "gloo" : "nccl";
  const bool ours = form == MeshForm::recorder || form == MeshForm::blocking;
  // What NCCL itself sees has neither names nor steps; joined with a trainer's lines it has.
  r.what = chance(random, ours ? 0.8 : 0.4);
  r.step = chance(random, ours ? 0.8 : 0.4);
  r.modality = ours && r.step && chance(random, 0.6);
  r.world_steps = !ours || chance(random, 0.7);
  r.at = ours && chance(random, 0.7);
  r.step_marks = ours && chance(random, 0.5);
  if (form == MeshForm::flight_recorder) {
    r.what = r.step = r.modality = r.redop = r.root = r.splits = false;
    r.snapshot = true;
  }
  return r;
}

std::string words_of(const Recording& r, const Knowledge& k) {
  return std::string(r.what ? " what" : "") + (r.step ? " step" : "") +
         (r.modality ? " modality" : "") + (r.world_steps ? "" : " stepless-world") +
         (r.at ? " at" : "") + (k.starts ? " starts" : "") + (k.ends ? " ends" : "") +
         (k.past ? "" : " only-active");
}

DeviceBehaviour any_devices(Random& random) {
  DeviceBehaviour d;
  d.silent = chance(random, 0.5);
  d.one_at_a_time = chance(random, 0.3);
  d.host_blocks = chance(random, 0.15);
  d.syncs_steps = chance(random, 0.6);
  d.eager_sends = chance(random, 0.2);
  d.run_ahead = 100000;
  return d;
}

std::string words_of(const DeviceBehaviour& d) {
  return std::string(d.silent ? ", silent" : "") + (d.one_at_a_time ? ", one kernel a time" : "") +
         (d.host_blocks ? ", host blocks" : "") + (d.syncs_steps ? ", syncs steps" : "") +
         (d.eager_sends ? ", eager sends" : "");
}

// Faults of devices, and looks at one moment, are not the blocking executor's.
bool blocks_like_gloo(MeshFault fault) {
  switch (fault) {
    case MeshFault::never_starts:
    case MeshFault::never_completes:
    case MeshFault::link_stall:
    case MeshFault::straggler:
    case MeshFault::straggler_came:
    case MeshFault::preempted:
      return false;
    default:
      return true;
  }
}

// A dump does not say why it was written. That of a job that runs has the very entries of one that
// hangs: whoever is waited for there may come at the next moment.
bool shows_in_dumps(MeshFault fault, const Calls& calls) {
  if (fault == MeshFault::preempted || fault == MeshFault::straggler_came) return false;
  return fault != MeshFault::wrong_redop || calls.hung;
}

class CaseMaker {
 public:
  CaseMaker(MeshFault fault, std::uint32_t seed)
      : fault_(fault), random_(seed * 131U + static_cast<std::uint32_t>(fault) * 7919U + 17U) {}

  std::optional<MeshCase> make() {
    std::optional<Deviation> found;
    for (int attempt = 0; attempt < 30 && !found; ++attempt) {
      devices_ = any_devices(random_);
      const int most[] = {8, 8, 16, 64};
      healthy_ = mesh_job(most[pick(random_, 0, 3)], random_);
      job_ = healthy_;
      found = inject(fault_, job_, devices_, random_);
    }
    if (!found) return std::nullopt;
    out_.fault = fault_;
    out_.deviation = std::move(*found);
    out_.words = job_.shape + ", " + std::to_string(job_.world()) + " ranks, " +
                 std::to_string(job_.steps) + " steps" + words_of(devices_);
    outcome_ = execute_on_devices(job_, devices_, random_);
    if (is_healthy(fault_) && outcome_.hung) {
      throw std::logic_error("a healthy program hangs: " + out_.words);
    }
    const bool is_look = fault_ == MeshFault::straggler_came || fault_ == MeshFault::preempted;
    if (is_look && !outcome_.stopped) return std::nullopt;
    const Calls calls = calls_of(outcome_);
    add_traces(MeshForm::profiler, calls);
    add_traces(MeshForm::recorder, calls);
    if (blocks_like_gloo(fault_)) add_blocking();
    add_traces(MeshForm::issues, calls);
    if (shows_in_dumps(fault_, calls)) add_dumps(calls);
    if (out_.views.empty()) return std::nullopt;
    return std::move(out_);
  }

 private:
  // A rank that nobody misses any more, or a call that meets its like by luck, is not a fault.
  bool is_worth(const Calls& calls) const {
    if (is_healthy(fault_)) return true;
    switch (fault_) {
      case MeshFault::realigned:
      case MeshFault::swapped:
      case MeshFault::wrong_size:
      case MeshFault::wrong_op:
      case MeshFault::wrong_dtype:
      case MeshFault::wrong_root:
      case MeshFault::wrong_redop:
        return true;
      default:
        return calls.hung;
    }
  }

  void add(MeshForm form, Files files, const Calls& calls, const Recording& recording,
           Knowledge known, const std::string& words) {
    if (!is_worth(calls)) return;
    for (const int r : out_.deviation.not_recorded) {
      const std::string rank = std::to_string(r);
      files.erase("rank_" + rank + ".trace.jsonl");
      files.erase("nccl_trace_rank_" + rank);
    }
    known.complete = static_cast<int>(files.size()) == job_.world();
    MeshView view;
    view.form = form;
    view.files = std::move(files);
    view.words = words_of(recording, known) + words;
    view.expected = expectation_of(fault_, out_.deviation, healthy_, job_, calls, recording, known);
    view.may_be_clean = !shows(job_, calls, recording, known);
    out_.views.push_back(std::move(view));
  }

  void add_traces(MeshForm form, const Calls& calls) {
    const Recording recording = any_nccl_recording(form, random_);
    Knowledge known;
    known.starts = form == MeshForm::profiler;
    known.completions = form != MeshForm::issues;
    known.exceptions = form == MeshForm::recorder;
    known.ends = form != MeshForm::issues || chance(random_, 0.5);
    DeviceOutcome seen = outcome_;
    if (seen.stopped) {
      for (RankOutcome& rank : seen.ranks) rank.end = "killed";
    }
    const Recorder recorder = form == MeshForm::profiler   ? Recorder::profiler
                              : form == MeshForm::recorder ? Recorder::recorder
                                                           : Recorder::issues;
    add(form, trace_files(device_traces(job_, seen, recorder, recording, known.ends, random_)),
        calls, recording, known, "");
  }

  void add_blocking() {
    const Recording recording = any_nccl_recording(MeshForm::blocking, random_);
    Behaviour behaviour;
    behaviour.mismatch = devices_.silent ? Behaviour::Mismatch::silent : Behaviour::Mismatch::hangs;
    behaviour.buffered_sends = devices_.eager_sends;
    Knowledge known;
    known.completions = known.exceptions = true;
    const Outcome outcome = execute(job_, recording, behaviour, random_);
    add(MeshForm::blocking, trace_files(outcome.traces), calls_of(job_, outcome), recording, known,
        "");
  }

  void add_dumps(const Calls& calls) {
    const Recording recording = any_nccl_recording(MeshForm::flight_recorder, random_);
    DumpStyle style;
    style.timing = chance(random_, 0.4);
    style.frames = recording.at || chance(random_, 0.5);
    // Only the past shows what most ranks left out.
    const bool needs_past =
        fault_ == MeshFault::left_out_by_most || fault_ == MeshFault::modality_skip_by_most;
    style.only_active = chance(random_, 0.15) && !needs_past;
    style.json = chance(random_, 0.2);
    Knowledge known;
    known.starts = style.timing;
    known.completions = true;
    known.past = !style.only_active;
    // PyTorch calls the group of all ranks "0".
    Job job = job_;
    DeviceOutcome outcome = outcome_;
    name_as_torch(job);
    for (RankOutcome& rank : outcome.ranks) {
      for (Entry& e : rank.entries) {
        if (e.call.group == "world") e.call.group = "0";
      }
    }
    add(MeshForm::flight_recorder, dump_files(job, outcome, style), calls, recording, known,
        std::string(style.frames ? " frames" : "") + (style.json ? " json" : ""));
    if (out_.views.empty() || out_.views.back().form != MeshForm::flight_recorder) return;
    std::set<std::string>& groups = out_.views.back().expected.groups;
    if (groups.erase("world") > 0) groups.insert("0");
  }

  const MeshFault fault_;
  Random random_;
  Job healthy_, job_;
  DeviceBehaviour devices_;
  DeviceOutcome outcome_;
  MeshCase out_;
};

}  // namespace

std::optional<MeshCase> make_mesh_case(MeshFault fault, std::uint32_t seed) {
  return CaseMaker(fault, seed).make();
}

}  // namespace lockstep::verify::injection
