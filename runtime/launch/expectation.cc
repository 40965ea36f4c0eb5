#include "runtime/launch/expectation.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/text.h"
#include "verify/rules/rules.h"

namespace lockstep::runtime {

namespace {

std::string numbers_text(const std::vector<int>& sorted) {
  return sorted.empty() ? "none" : ranges(std::vector<std::int32_t>(sorted.begin(), sorted.end()));
}

// An end in the words of the key "expect: ends"; it has none for an interrupted job.
std::string ends(JobEnd end) {
  switch (end) {
    case JobEnd::completed:
      return "completed";
    case JobEnd::stopped:
      return "stopped";
    case JobEnd::failed:
    case JobEnd::timed_out:
      return "failed";
    case JobEnd::interrupted:
      return "interrupted";
  }
  return "";
}

std::string ends(Scenario::Expect::Ends end) {
  switch (end) {
    case Scenario::Expect::Ends::completed:
      return "completed";
    case Scenario::Expect::Ends::stopped:
      return "stopped";
    case Scenario::Expect::Ends::failed:
      return "failed";
  }
  return "";
}

void compare(std::vector<std::string>& out, const std::string& what, const std::string& expected,
             const std::string& found) {
  if (expected != found)
    out.push_back(fmt::format("expected {} {}, found {}", what, expected, found));
}

// Whether a rank failed by itself, and we ended the others when their hang was proven. With Gloo a
// failure closes everybody's connections, so all fail; with NCCL ranks that wait on their devices
// do not notice. Both count as "failed".
bool was_stopped_after_a_failure(const JobOutcome& outcome) {
  return outcome.end == JobEnd::stopped &&
         std::any_of(outcome.workers.begin(), outcome.workers.end(),
                     [](const WorkerOutcome& w) { return !w.ended_by_us && !w.end.success(); });
}

void compare_finding(std::vector<std::string>& out, const Scenario::Expect& expected,
                     const verify::Finding& leading) {
  const std::string name(verify::rule(leading.rule).name);
  const auto& rules = expected.rules;
  if (!rules.empty() && std::find(rules.begin(), rules.end(), name) == rules.end())
    out.push_back(fmt::format("expected rule {}, found {}", join_and(rules), name));
  if (expected.culprits) {
    std::vector<int> culprits;
    for (const trace::Rank rank : leading.culprits) culprits.push_back(rank.value);
    compare(out, "culprits", numbers_text(*expected.culprits), numbers_text(culprits));
  }
  if (expected.step)
    compare(out, "step", std::to_string(*expected.step),
            leading.step ? std::to_string(*leading.step) : "none");
}

}  // namespace

std::vector<std::string> differences(const Scenario::Expect& expected, const JobOutcome& outcome) {
  std::vector<std::string> out;
  const verify::Report& report = outcome.report;
  compare(out, "verdict", expected.verdict, std::string(verify::to_string(report.verdict)));
  if (expected.ends &&
      !(*expected.ends == Scenario::Expect::Ends::failed && was_stopped_after_a_failure(outcome))) {
    compare(out, "the job to be", ends(*expected.ends), ends(outcome.end));
  }
  if (!report.findings.empty())
    compare_finding(out, expected, report.findings.front());
  else if (!expected.rules.empty())
    out.push_back(fmt::format("expected rule {}, found none", join_and(expected.rules)));
  return out;
}

}  // namespace lockstep::runtime
