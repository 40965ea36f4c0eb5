#include "tests/verify/injection/judging.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::verify::injection {

Recording any_recording(Random& random) {
  Recording r;
  r.what = chance(random, 0.6);
  r.step = chance(random, 0.7);
  r.at = chance(random, 0.5);
  r.modality = chance(random, 0.5);
  r.times = chance(random, 0.9);
  r.dtype = chance(random, 0.9);
  r.redop = chance(random, 0.9);
  r.step_marks = chance(random, 0.3);
  return r;
}

Behaviour any_behaviour(Random& random) {
  Behaviour b;
  b.mismatch = static_cast<Behaviour::Mismatch>(pick(random, 0, 2));
  b.death = static_cast<Behaviour::Death>(pick(random, 0, 1));
  b.buffered_sends = chance(random, 0.3);
  return b;
}

std::string text_of(const std::vector<int>& ranks) {
  return fmt::format("[{}]", fmt::join(ranks, ","));
}

namespace {

std::vector<int> numbers(const std::vector<trace::Rank>& ranks) {
  std::vector<int> out;
  for (const trace::Rank r : ranks) out.push_back(r.value);
  return out;
}

std::string finding_text(const Finding& f) {
  const auto number = [](const auto& known) { return known ? fmt::to_string(*known) : "-"; };
  return fmt::format("{} {} {} culprits {} {}#{} step {}: {}", rule(f.rule).name,
                     to_string(f.severity), to_string(f.certainty), text_of(numbers(f.culprits)),
                     f.group, number(f.seq), number(f.step), f.message);
}

}  // namespace

std::string text_of(const Report& report) {
  std::string out = std::string(to_string(report.verdict));
  for (const Finding& f : report.findings) out += "\n    " + finding_text(f);
  return out;
}

namespace {

// Empty: every finding is as certain as its rule may be.
std::string unlisted_certainty(const Report& report) {
  for (const Finding& f : report.findings) {
    if (rule(f.rule).certainties.has(f.certainty)) continue;
    return fmt::format("{} may not be {}", rule(f.rule).name, to_string(f.certainty));
  }
  return "";
}

}  // namespace

Judgement judge(const Report& report, const Expectation& e) {
  Judgement out;
  out.open = report.verdict == Verdict::inconclusive;
  const bool named = out.open && !report.findings.empty() &&
                     e.rules.contains(std::string(rule(report.findings[0].rule).name));
  if (report.verdict != Verdict::findings && !(e.may_be_open && named)) {
    if (!out.open || !e.may_be_open) out.complaint = "missed";
    return out;
  }
  out.open = false;
  out.found = true;
  const auto complain = [&](const std::string& text) {
    if (out.complaint.empty()) out.complaint = text;
  };
  complain(unlisted_certainty(report));
  const Finding& f = report.findings[0];
  const std::string name(rule(f.rule).name);
  if (e.vague.contains(name)) {
    out.vague = out.rule = out.culprit = out.location = true;
    return out;
  }
  out.rule = e.rules.contains(name);
  if (!out.rule) complain("rule, want " + joined(e.rules));
  const auto culprits = numbers(f.culprits);
  out.culprit = !e.culprits || culprits == *e.culprits || (!e.culprits_needed && culprits.empty());
  if (!out.culprit) complain("culprits, want " + text_of(*e.culprits));
  const auto in = [](const std::set<std::int64_t>& wanted, auto got) {
    return wanted.empty() || (got && wanted.contains(static_cast<std::int64_t>(*got)));
  };
  const bool group = e.groups.empty() || e.groups.contains(f.group);
  const bool seq = in(e.seqs, f.seq);
  const bool step = in(e.steps, f.step);
  out.location = group && seq && step;
  if (!group) complain("group, want " + joined(e.groups));
  if (!seq) complain("seq, want " + joined(e.seqs));
  if (!step) complain("step, want " + joined(e.steps));
  if (!e.certainty.empty() && to_string(f.certainty) != e.certainty) {
    complain("certainty, want " + e.certainty);
  }
  const auto errors = std::count_if(report.findings.begin(), report.findings.end(),
                                    [](const Finding& x) { return x.severity == Severity::error; });
  if (errors > 1) complain(fmt::format("one cause, but {} errors", errors));
  return out;
}

std::string describe(const Job& job, const Recording& r, const Behaviour& b) {
  static const char* const kMismatch[] = {"hangs", "silent", "aborts"};
  return fmt::format("{}, {} ranks, {} steps,{}{}{}{}{}; mismatch {}{}{}", job.shape, job.world(),
                     job.steps, r.what ? " what" : "", r.step ? " step" : "",
                     r.modality ? " modality" : "", r.times ? "" : " no-times",
                     r.step_marks ? " step-marks" : "", kMismatch[static_cast<int>(b.mismatch)],
                     b.death == Behaviour::Death::peers_raise ? ", peers raise" : "",
                     b.buffered_sends ? ", buffered sends" : "");
}

void keep(const Files& files) {
  const char* folder = std::getenv("INJECTION_DUMP");
  if (folder == nullptr) return;
  std::filesystem::create_directories(folder);
  for (const auto& [name, bytes] : files) {
    std::ofstream(std::string(folder) + "/" + name, std::ios::binary) << bytes;
  }
}

void for_each_seed(int count, const std::function<void(std::uint32_t)>& judge) {
  if (const char* only = std::getenv("INJECTION_SEED"); only != nullptr) {
    judge(static_cast<std::uint32_t>(std::strtoul(only, nullptr, 10)));
    return;
  }
  for (int seed = 0; seed < count; ++seed) judge(static_cast<std::uint32_t>(seed));
}

}  // namespace lockstep::verify::injection
