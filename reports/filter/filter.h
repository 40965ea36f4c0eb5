// What a CI gate does to a Report before it counts: leave out rules, set aside findings that were
// accepted (suppressions) or existed before (a baseline), and judge the rest.
//
//   FilteredReport judged = filtered(verify(run), run, filter, today);
//   judged.report      what counts, with the verdict over it
//   judged.set_aside   what does not count, and why
//
// A finding is set aside as a whole, with its consequences; consequences are never judged by
// themselves. Nothing here makes a run with missing or damaged ranks clean: without findings it is
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

// Accepts the findings that satisfy all of its conditions; a condition that is not given is
// satisfied.
struct Suppression {
  verify::RuleId rule{};
  std::optional<std::string> group;
  std::vector<std::string> what;  // globs; every name of the finding must match one
  std::vector<std::string> at;    // globs; one source location of its evidence must match one
  std::vector<trace::Rank>
      ranks;  // sorted; must include the culprits, or all concerned ranks if there are no culprits
  std::string reason;
  std::optional<std::chrono::sys_days> last_day;  // valid through this day; empty: forever
  Location location;                              // of the entry, for messages
};

// Whether the finding fits all that the suppression names.
bool matches(const Suppression& suppression, const verify::Finding& finding);

struct Filter {
  std::set<verify::RuleId> only = {};  // empty: all
  std::set<verify::RuleId> disable = {};
  std::vector<Suppression> suppressions = {};  // the first match counts
  // Fingerprints of findings that existed before; empty: no baseline.
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
  bool compared = false;            // with a baseline: the rest is new
  // Notes about the filter: a suppression that has expired or matches nothing.
  std::vector<std::string> notes;
};

// Applies the filter to the report of `run`. `today` decides which suppressions have expired.
// O(findings × suppressions).
FilteredReport filtered(verify::Report report, const trace::Run& run, const Filter& filter,
                        std::chrono::sys_days today);

// Today in UTC. Read once per command and passed on.
std::chrono::sys_days today_utc();

// "2026-12-31" as a day; empty if it is not an existing date.
std::optional<std::chrono::sys_days> parse_date(std::string_view text);
std::string date_text(std::chrono::sys_days day);

// Shell-like patterns, for names of parameters and source locations.

// True if `pattern` matches all of `text`. "*" matches any bytes, including none and "/"; "?" one
// byte; everything else itself. O(|pattern|·|text|) at worst, without recursion.
bool glob_matches(std::string_view pattern, std::string_view text);

// The suppressions file: findings that a team has accepted, each with a reason and a date for a new
// decision. YAML, a list of entries:
//
//   - rule: never-waited
//     group: dp0                   # optional, as are the next three; all given ones must match
//     what: image.proj.*           # a glob, or a list: every parameter matches one
//     at: "*/legacy_sync.py:*"     # a glob, or a list: one location of the evidence matches
//     ranks: [0, 1]                # include the culprits
//     reason: fixed by the new scheduler, TICKET-12
//     expires: 2026-12-31          # the last day on which it is valid (UTC), or `never`
//
// Parses `text`, the contents of `file`; a file without entries gives none. Errors, with line and
// column: not YAML, an unknown key or rule, no reason, no date or one that does not exist.
Result<std::vector<Suppression>> parse_suppressions(const std::string& text,
                                                    const std::string& file);

// The JSON Schema of suppressions files, suppressions.schema.json.
std::string_view suppressions_schema();

// The baseline: the findings that existed before, so that a CI gate fails only on new ones.
//
//   {"lockstep_baseline":1,"tool":"lockstep 0.1.0","findings":[
//     {"fingerprint":"9f…","rule":"never-waited","message":"…"}]}
//
// Only the fingerprint counts. It covers rule, group, operation and parameters, but no ranks or
// times. The rest is for people who read the file. Sorted, one finding per line, so that diffs of
// the file are readable.

// All findings of the filtered report except suppressed ones. Findings that were known stay.
std::string baseline_text(const FilteredReport& filtered);

// The fingerprints in `text`, the contents of `file`. Errors: not JSON (with line and column),
// another kind of file, a later version, a finding without a fingerprint.
Result<std::set<std::string, std::less<>>> parse_baseline(const std::string& text,
                                                          const std::string& file);

// The options that decide what counts; every command that judges has them:
//
//   --only RULE,…  --disable RULE,…      rules that count, rules that do not
//   --suppressions FILE                  accepted findings (filter.h)
//   --baseline FILE                      findings that existed before (filter.h)
//   --write-baseline FILE                writes that file

struct FilterOptions {
  std::vector<std::string> only, disable;              // as given: rule ids
  std::string suppressions, baseline, write_baseline;  // paths; empty: not given

  // True if any option changes what counts.
  bool any() const {
    return !only.empty() || !disable.empty() || !suppressions.empty() || !baseline.empty();
  }
};

// Reads the files. Errors: an unknown rule (with similar ids), a rule in both lists, a file that
// cannot be read or parsed.
Result<Filter> load_filter(const FilterOptions& options);

// Writes the baseline if --write-baseline was given. Errors: the file cannot be written.
Status write_baseline(const FilteredReport& filtered, const FilterOptions& options);

}  // namespace lockstep::reports
