#include "tests/verify/injection/meshes/mesh_tally.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/verify/injection/judging.h"
#include "verify/verify.h"

namespace lockstep::verify::injection {

namespace {

std::size_t bytes_of(const Files& files) {
  std::size_t sum = 0;
  for (const auto& [name, content] : files) sum += content.size();
  return sum;
}

std::string wanted(const MeshView& view) {
  const Expectation& e = view.expected;
  return fmt::format("want {}{}, rules {}group {}seq {}step {}{}{}", text_of(*e.culprits),
                     e.culprits_needed ? "" : " or nobody", joined(e.rules), joined(e.groups),
                     joined(e.seqs), joined(e.steps), e.may_be_open ? "or inconclusive" : "",
                     view.may_be_clean ? "or clean" : "");
}

void judge_case(MeshFault fault, std::uint32_t seed, MeshTally& tally) {
  const auto made = make_mesh_case(fault, seed);
  if (!made) return;
  ++tally.programs;
  struct Answer {
    const MeshView* view = nullptr;
    Report report;
  };
  std::vector<Answer> answers;
  const auto fail = [&](const MeshView& view, const std::string& complaint,
                        const std::string& got) {
    std::string text =
        fmt::format("{} seed {} form {} ({};{})\n  {}; {}\n  got {}", to_string(fault), seed,
                    to_string(view.form), made->words, view.words, complaint, wanted(view), got);
    tally.failures.push_back(
        {view.form, fault, complaint, seed, bytes_of(view.files), std::move(text)});
  };
  for (const MeshView& view : made->views) {
    Report report = verify(read_files(view.files));
    const MeshJudgement judgement = judge(report, fault, view);
    MeshScore& score =
        tally.scores[static_cast<std::size_t>(view.form)][static_cast<std::size_t>(fault)];
    ++score.cases;
    ++score.marks[static_cast<std::size_t>(judgement.mark)];
    const bool decided = judgement.mark == Mark::exact && report.verdict == Verdict::findings;
    score.decided += decided ? 1 : 0;
    score.rule += judgement.rule ? 1 : 0;
    score.location += judgement.location ? 1 : 0;
    const std::string wrong = complaint(judgement, fault, view);
    if (!wrong.empty()) fail(view, wrong, text_of(report));
    answers.push_back({&view, std::move(report)});
  }
  bool differs = false;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    for (std::size_t j = i + 1; j < answers.size(); ++j) {
      if (agree(answers[i].report, answers[j].report)) continue;
      differs = true;
      fail(*answers[j].view, fmt::format("differs from {}", to_string(answers[i].view->form)),
           text_of(answers[j].report) + "\n  and " + text_of(answers[i].report));
    }
  }
  tally.differing += differs ? 1 : 0;
}

std::string share(int part, int whole) {
  return whole == 0 ? "–" : fmt::format("{} %", 100 * part / whole);
}

std::string row(const std::string& name, const MeshScore& s) {
  return fmt::format("| {} | {} | {} | {} | {} |\n", name, s.cases, fmt::join(s.marks, " | "),
                     share(s.rule, s.decided), share(s.location, s.decided));
}

std::string healthy_row(const std::string& name, const MeshScore& s) {
  return fmt::format("| {} | {} | {} | {} | {} | {} |\n", name, s.cases, s.count(Mark::exact),
                     s.count(Mark::undecided), s.count(Mark::missed), s.count(Mark::innocents));
}

void add(MeshScore& to, const MeshScore& s) {
  to.cases += s.cases;
  to.rule += s.rule;
  to.location += s.location;
  to.decided += s.decided;
  for (std::size_t m = 0; m < kMarks; ++m) to.marks[m] += s.marks[m];
}

const char* title(MeshForm form) {
  switch (form) {
    case MeshForm::profiler:
      return "T: what NCCL's profiler records (starts and completions of the device, no waits)";
    case MeshForm::recorder:
      return "P: our recorder over NCCL (waits that are over at once, completions)";
    case MeshForm::blocking:
      return "G: waits that block (Gloo)";
    case MeshForm::issues:
      return "I: issue lines alone";
    case MeshForm::flight_recorder:
      return "F: Flight Recorder dumps";
  }
  return "";
}

}  // namespace

MeshScore MeshTally::total(MeshForm form, bool healthy) const {
  MeshScore out;
  for (int f = 0; f < kMeshFaults; ++f) {
    if (is_healthy(static_cast<MeshFault>(f)) != healthy) continue;
    add(out, scores[static_cast<std::size_t>(form)][static_cast<std::size_t>(f)]);
  }
  return out;
}

void MeshTally::merge(const MeshTally& other) {
  programs += other.programs;
  differing += other.differing;
  failures.insert(failures.end(), other.failures.begin(), other.failures.end());
  for (std::size_t form = 0; form < kMeshForms; ++form) {
    for (std::size_t f = 0; f < kMeshFaults; ++f) add(scores[form][f], other.scores[form][f]);
  }
}

MeshTally judge_meshes(const MeshRange& range) {
  std::vector<MeshFault> faults;
  for (int f = 0; f < kMeshFaults; ++f) {
    const auto fault = static_cast<MeshFault>(f);
    if (range.only.empty() || range.only == to_string(fault)) faults.push_back(fault);
  }
  if (faults.empty()) return {};
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<MeshTally> parts(threads);
  std::atomic<int> next = 0;
  {
    std::vector<std::jthread> workers;
    workers.reserve(parts.size());
    for (MeshTally& part : parts) {
      workers.emplace_back([&] {
        for (int i = next++; i < range.programs; i = next++) {
          const auto n = static_cast<std::size_t>(i);
          const auto round = static_cast<std::uint32_t>(n / faults.size());
          judge_case(faults[n % faults.size()], range.first + round, part);
        }
      });
    }
  }
  MeshTally out;
  for (const MeshTally& part : parts) out.merge(part);
  std::sort(out.failures.begin(), out.failures.end(), [](const auto& a, const auto& b) {
    return std::tie(a.form, a.fault, a.complaint, a.bytes, a.seed) <
           std::tie(b.form, b.fault, b.complaint, b.bytes, b.seed);
  });
  return out;
}

std::string mesh_tables(const MeshTally& tally) {
  std::string out = fmt::format(
      "{} programs, each seen in all forms that it can take. Of {} of them the answers to two "
      "forms name different ranks.\n\n",
      tally.programs, tally.differing);
  for (int i = 0; i < kMeshForms; ++i) {
    const auto form = static_cast<MeshForm>(i);
    out += fmt::format("### {}\n\n| fault | cases", title(form));
    for (int m = 0; m < kMarks; ++m) out += fmt::format(" | {}", to_string(static_cast<Mark>(m)));
    out += " | rule right | place right |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    std::string healthy =
        "| nothing is wrong | cases | right | undecided | called clean | false alarms |\n"
        "|---|--:|--:|--:|--:|--:|\n";
    for (int f = 0; f < kMeshFaults; ++f) {
      const auto fault = static_cast<MeshFault>(f);
      const MeshScore& s = tally.scores[static_cast<std::size_t>(i)][static_cast<std::size_t>(f)];
      if (s.cases == 0) continue;
      is_healthy(fault) ? healthy += healthy_row(to_string(fault), s)
                        : out += row(to_string(fault), s);
    }
    out += row("**all**", tally.total(form, false)) + "\n" + healthy +
           healthy_row("**all**", tally.total(form, true)) + "\n";
  }
  return out;
}

std::string mesh_failures(const MeshTally& tally, bool with_text) {
  struct Class {
    std::string name;
    std::vector<const MeshFailure*> cases;  // the smallest first
  };
  std::vector<Class> classes;
  for (const MeshFailure& f : tally.failures) {
    const std::string name =
        fmt::format("{} {}: {}", to_string(f.form), to_string(f.fault), f.complaint);
    if (classes.empty() || classes.back().name != name) classes.push_back({name, {}});
    classes.back().cases.push_back(&f);
  }
  std::stable_sort(classes.begin(), classes.end(),
                   [](const Class& a, const Class& b) { return a.cases.size() > b.cases.size(); });
  std::string out;
  for (const Class& c : classes) {
    out += fmt::format("{} x {}; seeds", c.cases.size(), c.name);
    for (std::size_t i = 0; i < std::min<std::size_t>(24, c.cases.size()); ++i) {
      out += fmt::format(" {}", c.cases[i]->seed);
    }
    out += "\n";
    if (with_text) out += fmt::format("  {}\n", c.cases[0]->text);
  }
  return out;
}

const char* to_string(Mark mark) {
  static constexpr std::array kNames = {"exact",     "among",     "nobody",
                                        "innocents", "undecided", "missed"};
  static_assert(kNames.size() == kMarks);
  return kNames[static_cast<std::size_t>(mark)];
}

namespace {

std::vector<int> culprits_of(const Report& report) {
  std::vector<int> out;
  for (const trace::Rank r : report.findings.at(0).culprits) out.push_back(r.value);
  return out;
}

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int r) { return std::find(b.begin(), b.end(), r) != b.end(); });
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

// A run with a trace missing, or one that was cut off, cannot be called clean.
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
  // A cycle has no first call; an exception has a call of its own, in no group.
  const std::string_view name = rule(f.rule).name;
  const bool no_location =
      name == "cross-group-deadlock" || name == "deadlock" ||
      ((name == "rank-exception" || name == "unused-parameter") && f.group.empty());
  const bool group = e.groups.empty() || e.groups.contains(f.group);
  out.location =
      out.rule && (no_location || (group && is_in(e.seqs, f.seq))) && is_in(e.steps, f.step);
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
      if (is_healthy(fault) || view.may_be_clean || judgement.location) return "";
      return judgement.rule ? "place" : "rule";
    case Mark::undecided:
      return "";
    default:
      return is_healthy(fault) && judgement.mark == Mark::innocents ? "false alarm"
                                                                    : to_string(judgement.mark);
  }
}

}  // namespace lockstep::verify::injection
