#include "reports/filter/filter_options.h"

#include <cstddef>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/text.h"
#include "reports/filter/filter.h"
#include "verify/rules/rules.h"

namespace lockstep::reports {
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
    const Result<std::string> text =
        read_text(options.baseline, kMaxBaseline,
                  "write it once with --write-baseline " + printable(options.baseline));
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
