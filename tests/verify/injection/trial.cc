#include "tests/verify/injection/trial.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "tests/verify/injection/devices.h"
#include "tests/verify/injection/dumps.h"
#include "tests/verify/injection/healthy_jobs.h"
#include "tests/verify/injection/judging.h"

namespace lockstep::verify::injection {

namespace {

// What Flight Recorder records: no parameters, steps, modalities, reduce operations, roots, splits.
Recording dump_recording(Random& random) {
  Recording r;
  r.what = r.step = r.modality = r.redop = r.root = r.splits = false;
  r.at = chance(random, 0.7);
  r.snapshot = true;
  return r;
}

Recording recording_for(Form form, Random& random) {
  return form == Form::dumps ? dump_recording(random) : any_recording(random);
}

DeviceBehaviour on_devices(const Behaviour& behaviour, Random& random) {
  DeviceBehaviour d;
  d.silent = behaviour.mismatch == Behaviour::Mismatch::silent;
  d.eager_sends = behaviour.buffered_sends;
  d.host_blocks = chance(random, 0.4);
  d.syncs_steps = chance(random, 0.7);
  d.run_ahead = pick(random, 3, 50);
  return d;
}

std::string words_of(const DeviceBehaviour& d, const DumpStyle& s) {
  return std::string("; devices") + (d.silent ? ", silent" : "") +
         (d.host_blocks ? ", host blocks" : "") + (d.syncs_steps ? ", syncs steps" : "") +
         ", run-ahead " + std::to_string(d.run_ahead) + (s.timing ? ", timing" : "") +
         (s.frames ? ", frames" : "") + (s.only_active ? ", only active" : "") + ", ring " +
         std::to_string(s.ring);
}

bool is_shown(const std::vector<Entry>& all, std::size_t i, const DumpStyle& style) {
  return i + style.ring >= all.size() &&
         !(style.only_active && all[i].state == Entry::State::completed);
}

constexpr std::int64_t kHidden = -1;  // the size of a message that the dump does not show

// A dump's view of one group of one rank.
struct View {
  std::map<std::int64_t, std::string> shown;  // the calls by their place, as they look
  std::int64_t issued = 0;
};

View view_of(const std::vector<Entry>& all, const std::string& group, const DumpStyle& style,
             const Recording& recording) {
  View view;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Entry& e = all[i];
    if (e.call.group != group || e.point_to_point) continue;
    ++view.issued;
    if (!is_shown(all, i, style)) continue;
    view.shown[e.collective_seq - 1] = visible(e.call, recording);
  }
  return view;
}

// Whether the dumps show both sides of a message whose sizes differ.
bool shows_sizes(const DeviceOutcome& outcome, const DumpStyle& style) {
  std::map<std::string, std::vector<std::int64_t>> sent, received;  // by channel: what is shown
  for (std::size_t r = 0; r < outcome.ranks.size(); ++r) {
    const std::vector<Entry>& all = outcome.ranks[r].entries;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const CallSpec& c = all[i].call;
      const bool sends = c.op == "send";
      if (!sends && c.op != "recv") continue;
      const std::vector<std::int64_t>& shape = sends ? c.in : c.out;
      const auto self = static_cast<int>(r);
      (sends ? sent : received)[fmt::format("{} {}>{} tag {}", c.group, sends ? self : c.peer,
                                            sends ? c.peer : self, c.ptag)]
          .push_back(is_shown(all, i, style) ? shape.at(0) : kHidden);
    }
  }
  return std::any_of(sent.begin(), sent.end(), [&](const auto& channel) {
    const std::vector<std::int64_t>& other = received[channel.first];
    for (std::size_t i = 0; i < std::min(channel.second.size(), other.size()); ++i) {
      if (channel.second[i] != other[i] && channel.second[i] != kHidden && other[i] != kHidden)
        return true;
    }
    return false;
  });
}

// Whether the ring forgot a call that a rank waits in.
bool forgot_a_wait(const DeviceOutcome& outcome, const DumpStyle& style) {
  return std::any_of(outcome.ranks.begin(), outcome.ranks.end(), [&](const RankOutcome& rank) {
    const auto& entries = rank.entries;
    const auto open = std::find_if(entries.begin(), entries.end(), [](const Entry& e) {
      return e.state != Entry::State::completed;
    });
    return entries.end() - open > static_cast<std::ptrdiff_t>(style.ring);
  });
}

// Takes from an expectation what the dumps do not show any more, or never show: false where the
// place itself is gone.
bool still_seen(Expectation& e, const Job& job, const DeviceOutcome& outcome,
                const DumpStyle& style, const Recording& recording) {
  if (forgot_a_wait(outcome, style)) return false;
  if (e.rules.contains("p2p-size") && !shows_sizes(outcome, style)) return false;
  e.may_be_open |= style.only_active;  // without a past, the few that wait may just be ahead
  if (e.groups.size() != 1 || e.seqs.empty() || !e.culprits) return true;
  const std::string& group = *e.groups.begin();
  const std::int64_t seq = *e.seqs.rbegin();
  bool past = false;
  for (const int r : job.groups.at(group)) {
    const View view =
        view_of(outcome.ranks[static_cast<std::size_t>(r)].entries, group, style, recording);
    const auto there = view.shown.find(seq);
    if (there == view.shown.end()) {
      if (seq < view.issued) return false;
      // Its calls just end there: it left one out, or stands still.
      if (r == e.culprits->at(0)) e.rules.insert("host-stall");
      continue;
    }
    past |= std::any_of(view.shown.begin(), there,
                        [&](const auto& before) { return before.second == there->second; });
  }
  if (!past) lose_sight(e);
  return true;
}

struct Ran {
  Files files;
  std::string words;
  bool hung = false;
  bool overwritten = false;
};

Ran run_traces(const Job& job, const Recording& recording, const Behaviour& behaviour,
               Random& random) {
  const Outcome outcome = execute(job, recording, behaviour, random);
  return {trace_files(outcome.traces), describe(job, recording, behaviour), outcome.hung, false};
}

Ran run_dumps(const Job& job, const Recording& recording, const Behaviour& behaviour,
              Expectation& expected, Random& random) {
  const DeviceBehaviour devices = on_devices(behaviour, random);
  DumpStyle style = any_style(random);
  style.frames = recording.at;
  DeviceOutcome outcome = execute_on_devices(job, devices, random);
  Ran out;
  out.overwritten = !still_seen(expected, job, outcome, style, recording);
  forget(outcome, style);
  out.files = dump_files(job, outcome, style);
  out.hung = outcome.hung;
  out.words = describe(job, recording, behaviour) + words_of(devices, style);
  return out;
}

}  // namespace

Program generated_program(const Recording& wish, Random& random) {
  return {healthy_job(any_shape(random), random), wish};
}

std::optional<Trial> make_trial(Fault fault, const Programs& programs, Form form, Random& random) {
  Behaviour behaviour = any_behaviour(random);
  const Recording wish = recording_for(form, random);
  Program program;
  std::optional<Expectation> expected;
  for (int attempt = 0; attempt < 20 && !expected; ++attempt) {
    program = programs(wish, random);
    if (form == Form::dumps) name_as_torch(program.job);
    expected = inject(fault, program.job, program.recording, behaviour, random);
  }
  if (!expected) return std::nullopt;
  // What real programs repeat is not what names would tell apart: any rule of a deviation is right.
  const bool nameless = program.recorded && !program.recording.what;
  if (nameless && expected->groups.size() == 1 && expected->rules.contains("missing-collective")) {
    expected->rules.insert({"order-swap", "size-mismatch", "op-mismatch"});
  }
  if (nameless && expected->rules.contains("extra-collective")) {
    expected->rules.insert("missing-collective");
  }
  Ran run = form == Form::dumps
                ? run_dumps(program.job, program.recording, behaviour, *expected, random)
                : run_traces(program.job, program.recording, behaviour, random);
  // Dumps are taken of jobs that hang; one that got through shows nothing of most faults.
  if (expected->only_if_hung && !run.hung) return std::nullopt;
  return Trial{std::move(run.files), std::move(run.words), std::move(*expected), run.overwritten};
}

Trial make_healthy(const Programs& programs, Form form, Random& random) {
  const Recording wish = recording_for(form, random);
  Program program = programs(wish, random);
  const Behaviour behaviour = any_behaviour(random);
  if (form == Form::traces) {
    Ran run = run_traces(program.job, program.recording, behaviour, random);
    return {std::move(run.files), std::move(run.words), {}, false};
  }
  name_as_torch(program.job);
  const DeviceBehaviour devices = on_devices(behaviour, random);
  DumpStyle style = any_style(random);
  style.frames = program.recording.at;
  DeviceOutcome outcome = execute_on_devices(program.job, devices, random);
  // Where completed calls are left out, a rank that is through and one that stands still look
  // alike.
  if (!style.only_active) skew(program.job, outcome, 4, random);
  forget(outcome, style);
  return {dump_files(program.job, outcome, style),
          describe(program.job, program.recording, behaviour) + words_of(devices, style),
          {},
          false};
}

Trial make_running(const Programs& programs, Random& random) {
  Program program = programs(recording_for(Form::dumps, random), random);
  name_as_torch(program.job);
  const Behaviour behaviour = any_behaviour(random);
  DeviceBehaviour devices = on_devices(behaviour, random);
  std::size_t actions = 0;
  for (const Actions& a : program.job.ranks) actions += a.size();
  devices.stop_after = pick(random, 1, static_cast<int>(actions));
  DumpStyle style = any_style(random);
  style.frames = program.recording.at;
  DeviceOutcome outcome = execute_on_devices(program.job, devices, random);
  forget(outcome, style);
  return {dump_files(program.job, outcome, style),
          describe(program.job, program.recording, behaviour) + words_of(devices, style),
          {},
          false,
          time_in_dumps(outcome.ended_at)};
}

}  // namespace lockstep::verify::injection
