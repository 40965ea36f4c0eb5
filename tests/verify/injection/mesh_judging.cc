#include "tests/verify/injection/mesh_judging.h"

#include <algorithm>
#include <array>

namespace lockstep::verify::injection {

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

std::vector<int> culprits_of(const Report& report) {
  std::vector<int> out;
  for (const trace::Rank r : report.findings.at(0).culprits) out.push_back(r.value);
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

}  // namespace lockstep::verify::injection
