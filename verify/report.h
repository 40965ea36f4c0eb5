// What an analysis says: findings, each with who, what, where, why and what to do, and a verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/ids.h"
#include "verify/rules/rules.h"

namespace lockstep::verify {

struct Evidence {
  trace::Rank rank;
  std::optional<std::int64_t> id;  // of the call in that rank's trace
  std::string at;                  // source place in the user's program; may be empty
  std::string text;
};

struct Finding {
  RuleId rule{};
  Severity severity = Severity::error;
  Certainty certainty = Certainty::observed;
  std::string group;                 // empty: none concerned
  std::optional<std::uint64_t> seq;  // 0-based place in the group's sequence
  std::optional<std::int64_t> step;
  std::vector<trace::Rank> culprits;  // sorted
  std::vector<trace::Rank> ranks;     // all that are concerned, sorted
  std::vector<std::string> what;      // parameters concerned
  std::string message;                // one or two sentences, in the user's terms
  std::string why;                    // the reasoning that leads to it; may be empty
  std::string fix;
  std::vector<Evidence> evidence;
  std::vector<Finding> consequences;  // what follows from this cause; never judged by themselves

  // Stable over runs of the same defect: rule, group, operation and parameters, not ranks or times.
  std::string fingerprint;
};

enum class Verdict : std::uint8_t { clean, findings, inconclusive };
inline std::string_view to_string(Verdict v) {
  switch (v) {
    case Verdict::clean:
      return "clean";
    case Verdict::findings:
      return "findings";
    case Verdict::inconclusive:
      return "inconclusive";
  }
  return "";
}

struct Report {
  Verdict verdict = Verdict::clean;
  std::int32_t ranks_expected = 0;
  std::vector<trace::Rank> ranks_read, ranks_missing, ranks_damaged;
  std::uint64_t events = 0;
  std::vector<Finding> findings;     // worst first: severity, certainty, then first to happen
  std::vector<std::string> unknown;  // what the data cannot show
  std::string sources;  // which recordings were the calls and which the evidence; may be empty
};

}  // namespace lockstep::verify
