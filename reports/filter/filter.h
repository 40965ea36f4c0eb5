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

// The suppressions file: findings that a team has accepted, each with a reason and a date at which
// it wants to be asked again. YAML, a list of entries:
//
//   - rule: never-waited
//     group: dp0                   # optional, as are the next three; all that are given must hold
//     what: image.proj.*           # a glob, or a list of them: every parameter matches one
//     at: "*/legacy_sync.py:*"     # a glob, or a list of them: one place of the evidence matches
//     ranks: [0, 1]                # the culprits are among these
//     reason: fixed by the new scheduler, TICKET-12
//     expires: 2026-12-31          # the last day that it holds (UTC), or `never`
//
// The entries in `text`, the contents of `file`; a file without entries gives none. Errors, with
// line and column: not YAML, an unknown key or rule, no reason, no date or none that exists.
Result<std::vector<Suppression>> parse_suppressions(const std::string& text,
                                                    const std::string& file);

// The baseline: which findings were there before, so that a CI gate fails on new ones only.
//
//   {"lockstep_baseline":1,"tool":"lockstep 0.1.0","findings":[
//     {"fingerprint":"9f…","rule":"never-waited","message":"…"}]}
//
// Only the fingerprint counts: it says rule, group, operation and parameters, no ranks or times.
// The rest is for the person who reads the file. Sorted, a line per finding, so that a version
// control system shows well what changed.

// All that the filtered report has found, apart from what is suppressed: known findings stay known.
std::string baseline_text(const FilteredReport& filtered);

// The fingerprints in `text`, the contents of `file`. Errors: no JSON (with line and column),
// another kind of file, a later version, a finding without a fingerprint.
Result<std::set<std::string, std::less<>>> parse_baseline(const std::string& text,
                                                          const std::string& file);

}  // namespace lockstep::reports
