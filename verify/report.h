// The result of an analysis: a verdict and findings, each with who, what, where, why and a fix.
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
  std::string at;                  // source location in the user's program; may be empty
  std::string text;
  std::optional<std::int32_t> step = {};  // of the call, where known
  // The text is a sentence that says which ranks and where: "ranks 4, 5 wait in all_reduce (call 7
  // of group world, train.py:120) for rank 3". Reports put neither before it.
  bool sentence = false;
};

// The same defect in another group: the same rule at the same line of the program.
struct Elsewhere {
  std::string group, group_label;
  std::optional<std::uint64_t> seq;
  std::vector<trace::Rank> culprits, ranks;  // sorted; the finding's own lists contain them
};

struct Finding {
  RuleId rule{};
  Severity severity = Severity::error;
  Certainty certainty = Certainty::observed;
  std::string group;                 // empty: it concerns no group
  std::optional<std::uint64_t> seq;  // sequence number in the group, from 0
  // For people: the group by its description, "TENSOR_PARALLEL", or by its name, "group world"; and
  // `seq` as the source counts it (RankTrace::first_number). verify() sets both.
  std::string group_label;
  std::optional<std::uint64_t> number;
  std::optional<std::int64_t> step;
  std::vector<trace::Rank> culprits;  // sorted
  std::vector<trace::Rank> ranks;     // all ranks that it concerns, sorted
  std::vector<std::string> what;      // the parameters that it concerns
  std::string message;                // one or two sentences, in the user's terms
  std::string why;                    // the reasoning that leads to it; may be empty
  std::string fix;
  // Where ranks stopped and others wait for them: who, where, how long ago, before which call, and
  // how many wait; the shell command to run next; and the ranks that wait for them in that
  // call, or, if it is a message, in any. Empty for other findings.
  std::string headline, next;
  std::vector<trace::Rank> waiting;  // sorted
  std::vector<Elsewhere> also;       // the same in other groups, by group
  std::vector<Evidence> evidence;
  std::vector<Finding> consequences;  // they follow from this cause and do not affect the verdict

  // Equal in all runs with the same defect: made from rule, group, operation and parameters, not
  // from ranks or times.
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
  bool hung = false;                 // judged as VerifyOptions::hung says
  std::vector<Finding> findings;     // worst first: severity, certainty, then first to happen
  std::vector<std::string> unknown;  // what the data cannot show
  std::string sources;  // which recordings provided calls and which evidence; may be empty
};

}  // namespace lockstep::verify
