#include "reports/filter/filter.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/numbers.h"
#include "base/text.h"
#include "verify/rules/rules.h"

namespace lockstep::reports {
namespace {

bool any_matches(const std::vector<std::string>& globs, std::string_view text) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return glob_matches(glob, text); });
}

bool serious(const verify::Finding& finding) { return finding.severity != verify::Severity::note; }

// The verdict over the findings that are left, by verify()'s rules. Setting findings aside cannot
// make a run clean if a part of it was never read.
verify::Verdict judge(const verify::Report& report, const trace::Run& run, verify::Verdict before) {
  if (std::any_of(report.findings.begin(), report.findings.end(), serious))
    return verify::Verdict::findings;
  // Notes alone do not change the verdict, and an inconclusive one stays.
  if (before != verify::Verdict::findings) return before;
  const bool blind =
      !report.ranks_missing.empty() || !report.ranks_damaged.empty() || !run.unreadable.empty() ||
      run.ranks.empty() ||
      std::any_of(report.findings.begin(), report.findings.end(),
                  [](const verify::Finding& f) { return f.rule == verify::RuleId::rank_killed; });
  return blind ? verify::Verdict::inconclusive : verify::Verdict::clean;
}

bool wanted(const Filter& filter, verify::RuleId rule) {
  return (filter.only.empty() || filter.only.contains(rule)) && !filter.disable.contains(rule);
}

std::string left_out_note(std::uint64_t count) {
  return fmt::format("{} of rules that were not asked for {} left out (--only, --disable)",
                     plural(count, "finding"), count == 1 ? "is" : "are");
}

// Applies suppressions and remembers which of them matched, for the notes.
class Suppressor {
 public:
  Suppressor(const std::vector<Suppression>& all, std::chrono::sys_days today)
      : all_(all), used_(all.size(), false), today_(today) {}

  const Suppression* find(const verify::Finding& finding) {
    const Suppression* found = nullptr;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (!matches(all_[i], finding)) continue;
      // Expired ones are marked as well, but do not apply: the note then says that the finding is
      // back.
      used_[i] = true;
      if (found == nullptr && !expired(all_[i])) found = &all_[i];
    }
    return found;
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const std::string name = fmt::format("{}: the suppression of {}", all_[i].location.str(),
                                           verify::rule(all_[i].rule).name);
      if (expired(all_[i]))
        out.push_back(fmt::format(
            "{} expired on {}{}", name, date_text(*all_[i].last_day),
            used_[i] ? fmt::format(" and no longer holds; its reason was: {}", all_[i].reason)
                     : "; it matches no finding: remove it"));
      else if (!used_[i])
        out.push_back(fmt::format("{} matches no finding: remove it if the defect is fixed", name));
    }
    return out;
  }

 private:
  bool expired(const Suppression& one) const { return one.last_day && *one.last_day < today_; }

  const std::vector<Suppression>& all_;
  std::vector<bool> used_;
  std::chrono::sys_days today_;
};

}  // namespace

std::string_view to_string(SetAside::Why why) {
  return why == SetAside::Why::known ? "known" : "suppressed";
}

std::string set_aside_in_words(const SetAside& one) {
  std::string out = fmt::format("{}: {}, {}", to_string(one.why),
                                verify::rule(one.finding.rule).name, one.finding.message);
  if (!one.reason.empty()) out += fmt::format(" Reason: {}", one.reason);
  if (!one.expires.empty()) out += fmt::format(" (until {})", one.expires);
  return out;
}

bool matches(const Suppression& suppression, const verify::Finding& finding) {
  if (finding.rule != suppression.rule) return false;
  if (suppression.group && finding.group != *suppression.group) return false;
  if (!suppression.what.empty()) {
    const bool all = std::all_of(finding.what.begin(), finding.what.end(), [&](const auto& name) {
      return any_matches(suppression.what, name);
    });
    // "All names match" would be true of no names.
    if (finding.what.empty() || !all) return false;
  }
  if (!suppression.at.empty() && std::none_of(finding.evidence.begin(), finding.evidence.end(),
                                              [&](const verify::Evidence& seen) {
                                                return any_matches(suppression.at, seen.at);
                                              }))
    return false;
  if (suppression.ranks.empty()) return true;
  const std::vector<trace::Rank>& who = finding.culprits.empty() ? finding.ranks : finding.culprits;
  return !who.empty() &&
         std::includes(suppression.ranks.begin(), suppression.ranks.end(), who.begin(), who.end());
}

FilteredReport filtered(verify::Report report, const trace::Run& run, const Filter& filter,
                        std::chrono::sys_days today) {
  FilteredReport out;
  out.compared = filter.baseline.has_value();
  Suppressor suppressor(filter.suppressions, today);
  std::vector<verify::Finding> findings = std::exchange(report.findings, {});
  std::uint64_t left_out = 0;
  for (verify::Finding& finding : findings) {
    // Asked for every finding, also those of rules that are left out: a suppression that --only
    // hides is not useless.
    const Suppression* suppression = suppressor.find(finding);
    if (!wanted(filter, finding.rule)) {
      ++left_out;
    } else if (suppression != nullptr) {
      out.set_aside.push_back({std::move(finding), SetAside::Why::suppressed, suppression->reason,
                               suppression->last_day ? date_text(*suppression->last_day) : ""});
    } else if (filter.baseline && filter.baseline->contains(finding.fingerprint)) {
      out.set_aside.push_back({std::move(finding), SetAside::Why::known, "", ""});
    } else {
      report.findings.push_back(std::move(finding));
    }
  }
  report.verdict = judge(report, run, report.verdict);
  out.report = std::move(report);
  out.notes = suppressor.notes();
  if (left_out > 0) out.notes.push_back(left_out_note(left_out));
  return out;
}

std::chrono::sys_days today_utc() {
  return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
}

std::optional<std::chrono::sys_days> parse_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const auto year = parse_number<unsigned>(text.substr(0, 4));
  const auto month = parse_number<unsigned>(text.substr(5, 2));
  const auto day = parse_number<unsigned>(text.substr(8, 2));
  if (!year || !month || !day) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date);
}

std::string date_text(std::chrono::sys_days day) {
  const std::chrono::year_month_day date(day);
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

// On a mismatch only the last "*" needs to match more: extending an earlier one would leave less
// text for the same rest of the pattern. So one position to return to is enough.
bool glob_matches(std::string_view pattern, std::string_view text) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = kNone;  // the last "*" so far
  std::size_t taken_to = 0;  // it matches the text up to here
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken_to = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != kNone) {
      p = star + 1;
      t = ++taken_to;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

namespace {

constexpr std::size_t kMaxBaseline = 64 << 20;  // a few hundred thousand findings

Result<std::set<verify::RuleId>> rules_named(const std::vector<std::string>& names,
                                             const std::string& option) {
  std::set<verify::RuleId> out;
  for (const std::string& name : names) {
    const Result<verify::RuleId> rule = verify::rule_named(name);
    if (!rule)
      return Error{fmt::format("{}: {}", option, rule.error().message), {}, rule.error().fix};
    out.insert(*rule);
  }
  return out;
}

Result<std::string> read_text(const std::string& path, std::size_t most, const std::string& fix) {
  Result<std::string> text = read_file(path, most);
  if (!text) return Error{text.error().message, text.error().location, fix};
  return text;
}

}  // namespace

Result<Filter> load_filter(const FilterOptions& options) {
  Filter out;
  Result<std::set<verify::RuleId>> only = rules_named(options.only, "--only");
  if (!only) return only.error();
  out.only = std::move(*only);
  Result<std::set<verify::RuleId>> disable = rules_named(options.disable, "--disable");
  if (!disable) return disable.error();
  out.disable = std::move(*disable);
  for (const verify::RuleId id : out.only)
    if (out.disable.contains(id))
      return Error{fmt::format("the rule {} is in --only and in --disable", verify::rule(id).name),
                   {},
                   "leave it out of one of them"};
  if (!options.suppressions.empty()) {
    const Result<std::string> text =
        read_text(options.suppressions, 1 << 20,
                  "--suppressions takes a YAML file; docs/reports.md describes it");
    if (!text) return text.error();
    Result<std::vector<Suppression>> entries = parse_suppressions(*text, options.suppressions);
    if (!entries) return entries.error();
    out.suppressions = std::move(*entries);
  }
  if (!options.baseline.empty()) {
    const Result<std::string> text = read_text(
        options.baseline, kMaxBaseline,
        fmt::format("write it once with --write-baseline {}", printable(options.baseline)));
    if (!text) return text.error();
    auto known = parse_baseline(*text, options.baseline);
    if (!known) return known.error();
    out.baseline = std::move(*known);
  }
  return out;
}

Status write_baseline(const FilteredReport& filtered, const FilterOptions& options) {
  if (options.write_baseline.empty()) return Status::ok();
  return write_file(options.write_baseline, baseline_text(filtered));
}

}  // namespace lockstep::reports
