#include "verify/injection/mesh_trial.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <utility>

#include "verify/injection/device_traces.h"
#include "verify/injection/dumps.h"
#include "verify/injection/executor.h"
#include "verify/injection/mesh_jobs.h"

namespace lockstep::injection {

const char* to_string(MeshForm form) {
  static constexpr std::array kNames = {"T", "P", "G", "I", "F"};
  static_assert(kNames.size() == kMeshForms);
  return kNames[static_cast<std::size_t>(form)];
}

const char* to_string(Mark mark) {
  static constexpr std::array kNames = {"exact",     "among",     "nobody",
                                        "innocents", "undecided", "missed"};
  static_assert(kNames.size() == kMarks);
  return kNames[static_cast<std::size_t>(mark)];
}

namespace {

bool contains(const std::vector<int>& ranks, int r) {
  return std::find(ranks.begin(), ranks.end(), r) != ranks.end();
}

// What was called, whoever ran it.
struct Calls {
  std::vector<std::vector<const CallSpec*>> ranks;  // in their order
  std::vector<bool> raised;                         // by rank
  // By rank: the first collective that never completed; null: none, or nobody knows.
  std::vector<const CallSpec*> open;
  std::vector<bool> waits;  // by rank: some call of it never completed; empty: nobody knows
  bool hung = false;

  std::vector<const CallSpec*> collectives(int r, const std::string& group) const {
    std::vector<const CallSpec*> out;
    for (const CallSpec* c : ranks[static_cast<std::size_t>(r)]) {
      if (c->group == group && !is_point_to_point(*c)) out.push_back(c);
    }
    return out;
  }
};

Calls calls_of(const DeviceOutcome& outcome) {
  Calls out;
  for (const RankOutcome& rank : outcome.ranks) {
    out.ranks.emplace_back();
    out.raised.push_back(rank.end == "exception");
    out.open.push_back(nullptr);
    out.waits.push_back(false);
    for (const Entry& e : rank.entries) {
      out.ranks.back().push_back(&e.call);
      if (e.state != Entry::State::completed) out.waits.back() = true;
      const bool is_open = e.state != Entry::State::completed && !e.point_to_point;
      if (is_open && out.open.back() == nullptr) out.open.back() = &e.call;
    }
  }
  out.hung = outcome.hung;
  return out;
}

Calls calls_of(const Job& job, const Outcome& outcome) {
  Calls out;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    out.ranks.emplace_back();
    out.raised.push_back(false);
    out.open.push_back(nullptr);
    for (std::size_t i = 0; i < outcome.reached[r]; ++i) {
      const Action& a = job.ranks[r][i];
      if (a.kind == Action::Kind::raise) out.raised.back() = true;
      if (a.kind == Action::Kind::issue) out.ranks.back().push_back(&a.call);
    }
  }
  out.hung = outcome.hung;
  return out;
}

// What a view's recorder knows apart from the calls.
struct Knowledge {
  bool starts = false, completions = false;
  bool ends = true;         // that the ranks hung, or how else they ended
  bool exceptions = false;  // that a rank raised
  bool past = true;         // completed calls are listed
  bool complete = true;     // every rank's file is there
};

// Whether anything that such a recording shows differs between the members of a group.
bool shows(const Job& job, const Calls& calls, const Recording& recording, const Knowledge& known) {
  if (calls.hung) return true;
  if (!known.past) return false;
  for (const auto& [group, members] : job.groups) {
    std::vector<std::string> first;
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::vector<std::string> seen;
      for (const CallSpec* c : calls.collectives(members[i], group)) {
        seen.push_back(visible(*c, recording));
      }
      if (i == 0) first = seen;
      if (seen != first) return true;
    }
  }
  std::map<int, std::vector<std::string>> batches;
  for (const Actions& actions : job.ranks) {
    for (const Action& a : actions) {
      if (!recording.modality || a.kind != Action::Kind::modality) continue;
      if (batches.emplace(a.n, a.names).first->second != a.names) return true;
    }
  }
  return false;
}

class Expecting {
 public:
  Expecting(MeshFault fault, const Deviation& deviation, const Job& healthy, const Job& job,
            const Calls& calls, const Recording& recording, const Knowledge& known)
      : fault_(fault),
        deviation_(deviation),
        healthy_(healthy),
        job_(job),
        calls_(calls),
        recording_(recording),
        known_(known) {}

  Expectation expectation() {
    Expectation e;
    e.rules = rules();
    e.culprits = deviation_.culprits;
    e.culprits_needed = deviation_.has_reference || history_tells();
    e.groups = deviation_.groups;
    if (deviation_.seq != kUnset) e.seqs = {deviation_.seq};
    if (recording_.step && deviation_.step != kUnset) e.steps = {deviation_.step};
    see_place(e);
    // It raises when the next step begins.
    if (fault_ == MeshFault::ddp_unused && recording_.step) e.steps.insert(deviation_.step + 1);
    // Who knows of a call without its step may tell it by the batches, or by the calls around it.
    if (!recording_.world_steps) e.steps.clear();
    e.may_be_open = !known_.ends || !known_.past || !known_.complete;
    if (!known_.past || !known_.complete) e.culprits_needed = false;
    weaken_stalls(e);
    if (recording_.snapshot) weaken_looks(e);
    // Of two sides that nothing tells apart, one has too few calls or the other too many.
    if (!e.culprits_needed && e.rules.contains("missing-collective")) {
      e.rules.insert("extra-collective");
    }
    if (!e.culprits_needed && e.rules.contains("extra-collective")) {
      e.rules.insert("missing-collective");
    }
    return e;
  }

 private:
  std::set<std::string> rules() const {
    switch (fault_) {
      case MeshFault::left_out:
      case MeshFault::left_out_by_several:
      case MeshFault::left_out_by_subgroup:
      case MeshFault::left_out_all_to_all:
      case MeshFault::bystander_missing:
        return with_ends({"missing-collective", "cross-group-deadlock"});
      case MeshFault::one_too_many:
        return at_last({"extra-collective", "op-mismatch", "size-mismatch"});
      case MeshFault::modality_skip:
        if (recording_.modality && recording_.step) return {"modality-divergence"};
        return with_ends({"modality-divergence", "missing-collective", "cross-group-deadlock"});
      case MeshFault::ddp_unused:
        if (known_.exceptions && any_raised()) return {"unused-parameter", "modality-divergence"};
        return with_ends({"unused-parameter", "modality-divergence", "missing-collective",
                          "cross-group-deadlock", "host-stall"});
      case MeshFault::swapped:
        return {"order-swap", "missing-collective", "size-mismatch", "op-mismatch"};
      case MeshFault::groups_swapped:
        return {"cross-group-deadlock", "deadlock", "order-swap"};
      case MeshFault::wrong_size:
        return {"size-mismatch"};
      case MeshFault::wrong_op:
        return {"op-mismatch"};
      case MeshFault::wrong_dtype:
        return {"dtype-mismatch"};
      case MeshFault::wrong_root:
        return {"root-mismatch"};
      case MeshFault::wrong_redop:
        return {"redop-mismatch"};
      case MeshFault::realigned:
        return with_ends({"modality-divergence", "step-mismatch", "missing-collective",
                          "identity-mismatch", "order-swap", "cross-group-deadlock"});
      case MeshFault::host_stall:
      case MeshFault::killed:
      case MeshFault::culprit_missing:
        return {"host-stall", "missing-collective"};
      case MeshFault::exception:
        if (known_.exceptions) return {"rank-exception"};
        return {"host-stall", "missing-collective", "rank-exception"};
      case MeshFault::never_starts:
      case MeshFault::link_stall:
        return {"device-stall", "host-stall"};
      case MeshFault::never_completes:
        return lags() ? std::set<std::string>{"device-stall", "host-stall", "missing-collective"}
                      : std::set<std::string>{"device-stall"};
      case MeshFault::lone_send:
        return {"p2p-unmatched", "deadlock", "missing-collective"};
      case MeshFault::left_out_message:
        return {"p2p-unmatched", "deadlock", "missing-collective", "p2p-cycle"};
      case MeshFault::lone_barrier:
        return at_last(
            {"extra-collective", "cross-group-deadlock", "missing-collective", "op-mismatch"});
      default:
        return {};
    }
  }

  // What went before, or comes later, shows what a step looks like.
  bool history_tells() const {
    if (deviation_.culprits.empty()) return false;
    const int r = deviation_.culprits[0];
    std::set<std::string> kinds;
    bool later = false;
    Recording stepless = recording_;
    stepless.step = false;
    for (const CallSpec* c : calls_.ranks[static_cast<std::size_t>(r)]) {
      kinds.insert(c->group + visible(*c, stepless));
      later |= c->step > deviation_.step;
    }
    // The broadcast at the beginning and one kind of call repeat nothing that could be missed.
    return deviation_.is_regular && kinds.size() > 2 &&
           (deviation_.step >= 1 || (recording_.step && later));
  }

  bool any_raised() const {
    return std::any_of(deviation_.culprits.begin(), deviation_.culprits.end(),
                       [&](int r) { return calls_.raised[static_cast<std::size_t>(r)]; });
  }

  // In the last step, the others are through.
  std::set<std::string> at_last(std::set<std::string> rules) const {
    if (deviation_.step == job_.steps - 1) rules.insert("unequal-iterations");
    return rules;
  }

  // A rank that left out the last call that it would have made just stops.
  std::set<std::string> with_ends(std::set<std::string> rules) const {
    const auto just_stops = [&](int r) {
      const auto& own = calls_.ranks[static_cast<std::size_t>(r)];
      std::size_t i = 0;
      for (const Action& a : healthy_.ranks[static_cast<std::size_t>(r)]) {
        if (i == own.size()) return true;
        if (a.kind != Action::Kind::issue) continue;
        if (visible(a.call, recording_) != visible(*own[i], recording_)) return false;
        if (a.call.group != own[i]->group) return false;
        ++i;
      }
      return true;
    };
    if (std::any_of(deviation_.culprits.begin(), deviation_.culprits.end(), just_stops)) {
      rules.insert({"host-stall", "unequal-iterations"});
    }
    return rules;
  }

  // Whether a culprit never issued what others of its groups did.
  bool lags() const {
    for (const int r : deviation_.culprits) {
      for (const auto& [group, members] : job_.groups) {
        if (!contains(members, r)) continue;
        const std::size_t own = calls_.collectives(r, group).size();
        for (const int m : members) {
          if (calls_.collectives(m, group).size() > own) return true;
        }
      }
    }
    return false;
  }

  // Where names and steps are not recorded, a shift shows only later.
  void see_place(Expectation& e) const {
    const bool is_device = fault_ == MeshFault::never_starts ||
                           fault_ == MeshFault::never_completes || fault_ == MeshFault::link_stall;
    if (e.seqs.empty() || deviation_.culprits.empty() || is_device) return;
    if (fault_ == MeshFault::killed) see_open_call(e);
    for (const int r : deviation_.culprits) {
      for (const std::string& group : deviation_.groups) {
        const Members& members = job_.groups.at(group);
        if (!contains(members, r)) continue;
        std::vector<const CallSpec*> usual;
        for (const Action& a : healthy_.ranks[static_cast<std::size_t>(r)]) {
          const bool collective = a.kind == Action::Kind::issue && !is_point_to_point(a.call);
          if (collective && a.call.group == group) usual.push_back(&a.call);
        }
        const auto own = calls_.collectives(r, group);
        std::size_t i = 0;
        while (i < std::min(usual.size(), own.size()) &&
               visible(*usual[i], recording_) == visible(*own[i], recording_)) {
          ++i;
        }
        e.seqs.insert(static_cast<std::int64_t>(i));
        const CallSpec* there = i < usual.size() ? usual[i] : i < own.size() ? own[i] : nullptr;
        if (recording_.step && there != nullptr) e.steps.insert(there->step);
      }
    }
  }

  // Whoever dies takes along what its device had not done.
  void see_open_call(Expectation& e) const {
    const int r = deviation_.culprits[0];
    const CallSpec* const open = calls_.open[static_cast<std::size_t>(r)];
    if (open == nullptr) return;
    const auto own = calls_.collectives(r, open->group);
    e.groups.insert(open->group);
    e.seqs.insert(std::find(own.begin(), own.end(), open) - own.begin());
    if (recording_.step) e.steps.insert(open->step);
  }

  void weaken_stalls(Expectation& e) const {
    switch (fault_) {
      case MeshFault::never_starts:
      case MeshFault::link_stall:
        // Everybody issued the call, nobody completed it: that is all.
        if (known_.starts) return;
        e.may_be_open = true;
        e.culprits_needed = false;
        return;
      case MeshFault::never_completes:
      case MeshFault::groups_swapped:  // streams of their own let both orders through
        if (known_.completions) return;
        e.may_be_open = true;
        e.culprits_needed = false;
        return;
      case MeshFault::wrong_root:
        if (recording_.root) return;
        e.rules.insert("device-stall");
        e.may_be_open = true;
        e.culprits_needed = false;
        return;
      default:
        return;
    }
  }

  // A dump does not tell that its job hangs: the few who wait may be ahead of the others, and a
  // call that its peers completed may complete at the next moment.
  void weaken_looks(Expectation& e) const {
    int waiting = 0;
    bool victims = false;
    for (int r = 0; r < job_.world(); ++r) {
      if (!calls_.waits[static_cast<std::size_t>(r)]) continue;
      ++waiting;
      victims |= !contains(deviation_.culprits, r);
    }
    if (2 * waiting <= job_.world()) e.may_be_open = true;
    if (!victims) e.culprits_needed = false;
    if (fault_ == MeshFault::never_completes && !lags()) e.may_be_open = true;
  }

  const MeshFault fault_;
  const Deviation& deviation_;
  const Job& healthy_;
  const Job& job_;
  const Calls& calls_;
  const Recording& recording_;
  const Knowledge& known_;
};

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

// Who is ahead may be waited for at the next moment: a dump of that moment looks like one of a
// hang.
bool shows_in_dumps(MeshFault fault, const Calls& calls) {
  if (fault == MeshFault::preempted) return false;
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
  // A rank that nobody misses any more, or a call that meets its like by luck, is no fault.
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
    view.expected =
        Expecting(fault_, out_.deviation, healthy_, job_, calls, recording, known).expectation();
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
    style.only_active = fault_ != MeshFault::straggler_came && chance(random_, 0.15);
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

std::vector<int> culprits_of(const Report& report) {
  std::vector<int> out;
  for (const Rank r : report.findings.at(0).culprits) out.push_back(r.value);
  return out;
}

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int r) { return contains(b, r); });
}

Mark mark_of(const Report& report, const MeshView& view) {
  const Expectation& e = view.expected;
  if (report.verdict == Verdict::clean) return view.may_be_clean ? Mark::exact : Mark::missed;
  if (report.verdict != Verdict::findings) {
    return e.may_be_open || view.may_be_clean ? Mark::undecided : Mark::missed;
  }
  const std::vector<int> named = culprits_of(report);
  if (named == *e.culprits) return Mark::exact;
  if (named.empty()) return e.culprits_needed ? Mark::nobody : Mark::exact;
  return overlap(named, *e.culprits) ? Mark::among : Mark::innocents;
}

// A run of which a part is not there, or that was cut off, cannot be called clean.
Mark healthy_mark(const Report& report, MeshFault fault, MeshForm form) {
  if (report.verdict == Verdict::findings) return Mark::innocents;
  const bool is_open = report.verdict == Verdict::inconclusive;
  switch (fault) {
    case MeshFault::missing_trace:
      return is_open ? Mark::exact : Mark::missed;
    case MeshFault::preempted:
    case MeshFault::straggler_came:
      if (form == MeshForm::profiler || form == MeshForm::recorder) {
        return is_open ? Mark::exact : Mark::missed;
      }
      return Mark::exact;  // who looks, and how often, decides what was still open
    default:
      return is_open ? Mark::undecided : Mark::exact;
  }
}

}  // namespace

std::optional<MeshCase> make_mesh_case(MeshFault fault, std::uint32_t seed) {
  return CaseMaker(fault, seed).make();
}

MeshJudgement judge(const Report& report, MeshFault fault, const MeshView& view) {
  MeshJudgement out;
  if (is_healthy(fault)) {
    out.mark = healthy_mark(report, fault, view.form);
    return out;
  }
  out.mark = mark_of(report, view);
  if (out.mark != Mark::exact || report.verdict == Verdict::clean) return out;
  const Expectation& e = view.expected;
  const Finding& f = report.findings[0];
  out.rule = e.rules.contains(std::string(rule(f.rule).name));
  const auto is_in = [](const std::set<std::int64_t>& wanted, auto got) {
    return wanted.empty() || (got && wanted.contains(static_cast<std::int64_t>(*got)));
  };
  // A cycle has no first place; an exception has its own.
  const std::string_view name = rule(f.rule).name;
  const bool placeless =
      name == "cross-group-deadlock" || name == "deadlock" ||
      ((name == "rank-exception" || name == "unused-parameter") && f.group.empty());
  const bool group = e.groups.empty() || e.groups.contains(f.group);
  out.place = out.rule && (placeless || (group && is_in(e.seqs, f.seq))) && is_in(e.steps, f.step);
  return out;
}

bool agree(const Report& a, const Report& b) {
  const bool found_a = a.verdict == Verdict::findings;
  const bool found_b = b.verdict == Verdict::findings;
  if (!found_a || !found_b) return true;
  const std::vector<int> x = culprits_of(a);
  const std::vector<int> y = culprits_of(b);
  return x.empty() || y.empty() || overlap(x, y);
}

std::string complaint(const MeshJudgement& judgement, MeshFault fault, const MeshView& view) {
  switch (judgement.mark) {
    case Mark::exact:
      if (is_healthy(fault) || view.may_be_clean || judgement.place) return "";
      return judgement.rule ? "place" : "rule";
    case Mark::undecided:
      return "";
    default:
      return is_healthy(fault) && judgement.mark == Mark::innocents ? "false alarm"
                                                                    : to_string(judgement.mark);
  }
}

}  // namespace lockstep::injection
