// What a CI gate does to a Report before it counts: leave out rules, set aside what was accepted
// (suppressions) or was there before (a baseline), and judge what is left.
//
//   FilteredReport judged = filtered(verify(run), run, filter, today);
//   judged.report      what counts: its verdict is over what is left
//   judged.set_aside   what does not count, and why
//
// A finding is set aside as a whole, with its consequences; a consequence is never judged by
// itself. Nothing here makes a run with missing or damaged ranks clean: without findings it is
// inconclusive.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "trace/ids.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

// Accepts the findings that meet all of its conditions; a condition that is not given holds.
struct Suppression {
  verify::RuleId rule{};
  std::optional<std::string> group;
  std::vector<std::string> what;   // globs; every name of the finding must match one of them
  std::vector<std::string> at;     // globs; a source place of its evidence must match one of them
  std::vector<trace::Rank> ranks;  // sorted; the culprits (where there are none: all ranks
                                   // concerned) must be among these
  std::string reason;
  std::optional<std::chrono::sys_days> last_day;  // it holds through this day; nothing: for ever
  Place place;                                    // of the entry, for messages
};

bool matches(const Suppression& suppression, const verify::Finding& finding);

struct Filter {
  std::set<verify::RuleId> only = {};  // empty: all
  std::set<verify::RuleId> disable = {};
  std::vector<Suppression> suppressions = {};  // the first that matches counts
  // Fingerprints of findings that were there before; nothing: no baseline.
  std::optional<std::set<std::string, std::less<>>> baseline = std::nullopt;
};

struct SetAside {
  enum class Why {
    suppressed,  // by a suppression
    known,       // by the baseline
  };
  verify::Finding finding;
  Why why = Why::suppressed;
  std::string reason;   // the suppression's
  std::string expires;  // "2026-12-31"; empty: never
};
std::string_view to_string(SetAside::Why why);
// "suppressed: never-waited, rank 1 … Reason: … (until 2026-12-31)".
std::string set_aside_in_words(const SetAside& one);

struct FilteredReport {
  FilteredReport() = default;
  FilteredReport(verify::Report all) : report(std::move(all)) {}  // NOLINT: nobody filtered it

  verify::Report report;
  std::vector<SetAside> set_aside;  // in the report's order
  bool compared = false;            // with a baseline: what is left is new
  // What the user should know of the filter: an expired suppression, one that matches nothing.
  std::vector<std::string> notes;
};

// O(findings × suppressions). `today` decides which suppressions have expired.
// `run` is what the report judges.
FilteredReport filtered(verify::Report report, const trace::Run& run, const Filter& filter,
                        std::chrono::sys_days today);

// The day it is, UTC. Read once per command and passed on.
std::chrono::sys_days today_utc();

// "2026-12-31", in the Gregorian calendar. Nothing where it is no such date.
std::optional<std::chrono::sys_days> parse_date(std::string_view text);
std::string date_text(std::chrono::sys_days day);

// Shell-like patterns, for names of parameters and source places.

// Whether `pattern` describes all of `text`: "*" stands for any bytes, also none and also "/"; "?"
// for one byte; everything else for itself. O(|pattern|·|text|) at worst, no recursion.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace lockstep::reports
