// Findings as SARIF 2.1.0. Numbers like 3.11.5 are sections of that standard; comments that name
// GitHub give the limits of its code scanning, which refuses a whole file for one wrong result.
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/tool_version.h"
#include "reports/ci/ci_reports.h"
#include "reports/findings/finding_words.h"
#include "reports/json_text.h"
#include "verify/rules/page.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSarifSchema =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

// A plain text message: braces are doubled (3.11.5), and text that looks like an embedded link
// "[text](target)" is escaped (3.11.6).
Json message(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '(' && out.ends_with(']')) out.insert(out.size() - 1, 1, '\\');
    out += c;
    if (c == '{' || c == '}') out += c;
  }
  return {{"text", out}};
}

// A path relative to the repository as a URI reference (RFC 3986): "a b.py" is "a%20b.py".
std::string uri_of(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/+@=,").find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Json physical_location(const SourceLocation& source) {
  Json region = {{"startLine", source.line}};
  if (source.column) region["startColumn"] = *source.column;
  return {{"artifactLocation", {{"uri", uri_of(source.file)}}}, {"region", region}};
}

std::string rank_name(trace::Rank rank) { return fmt::format("rank {}", rank.value); }

// One location with a file and a line: GitHub refuses the whole file without it.
Json locations(const verify::Finding& finding, const Locator& locator) {
  Json location = {{"physicalLocation", physical_location(locator.of(finding))}};
  for (const trace::Rank rank : finding.culprits)
    location["logicalLocations"].push_back({{"name", rank_name(rank)}, {"kind", "process"}});
  return Json::array({location});
}

// A threadFlow per rank that recorded a location, in the order of the evidence.
Json thread_flows(const verify::Finding& finding, const Locator& locator) {
  std::vector<std::pair<trace::Rank, Json>> flows;
  for (const verify::Evidence& evidence : finding.evidence) {
    const auto source = locator.source(evidence.at);
    if (!source) continue;
    auto flow = flows.begin();
    while (flow != flows.end() && flow->first != evidence.rank) ++flow;
    if (flow == flows.end())
      flow = flows.insert(flow, {evidence.rank, {{"id", rank_name(evidence.rank)}}});
    Json location = {
        {"physicalLocation", physical_location(*source)},
        {"message", message(fmt::format("{}: {}", rank_name(evidence.rank), evidence.text))}};
    flow->second["locations"].push_back({{"location", std::move(location)}});
  }
  Json out = Json::array();
  for (auto& [rank, flow] : flows) out.push_back(std::move(flow));
  return out;
}

Json properties(const verify::Finding& finding) {
  Json out;
  out["certainty"] = verify::to_string(finding.certainty);
  add_subject(out, finding, "groupLabel");
  out["fix"] = finding.fix;
  add_headline(out, finding);
  return out;
}

// printable() would escape line breaks, so the lines are made safe one by one.
Json message_of_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) {
    if (line.empty()) continue;
    out.append(out.empty() ? "" : "\n").append(message(line)["text"].get<std::string>());
  }
  return {{"text", out}};
}

Json result(const verify::Finding& finding, const Locator& locator) {
  Json out;
  out["ruleId"] = verify::rule(finding.rule).name;
  out["ruleIndex"] = static_cast<std::size_t>(finding.rule);  // rules_json() lists them in order
  out["kind"] = "fail";
  out["level"] = verify::to_string(finding.severity);
  out["message"] = message_of_lines(lines_of(finding));
  out["locations"] = locations(finding, locator);
  if (Json flows = thread_flows(finding, locator); !flows.empty())
    out["codeFlows"] = Json::array({{{"threadFlows", std::move(flows)}}});
  if (!finding.fingerprint.empty())
    out["partialFingerprints"] = {{"lockstepFinding/v1", finding.fingerprint}};
  out["properties"] = properties(finding);
  return out;
}

Json suppression(const SetAside& one) {
  Json out = {{"kind", "external"}, {"status", "accepted"}};
  if (!one.reason.empty()) out["justification"] = printable(one.reason);
  if (!one.expires.empty()) out["properties"] = {{"expires", one.expires}};
  return out;
}

// GitHub refuses a run of more results. Findings are sorted: the worst are kept.
constexpr std::size_t kMaxResults = 25'000;

Json results(const FilteredReport& filtered, const Locator& locator) {
  Json out = Json::array();
  for (const verify::Finding& finding : filtered.report.findings) {
    if (out.size() == kMaxResults) return out;
    Json one = result(finding, locator);
    if (filtered.compared) one["baselineState"] = "new";
    out.push_back(std::move(one));
  }
  // Findings that were set aside are results as well: SARIF viewers show or hide them by state.
  for (const SetAside& aside : filtered.set_aside) {
    if (out.size() == kMaxResults) return out;
    Json one = result(aside.finding, locator);
    if (aside.why == SetAside::Why::suppressed)
      one["suppressions"] = Json::array({suppression(aside)});
    else
      one["baselineState"] = "unchanged";
    out.push_back(std::move(one));
  }
  return out;
}

Json rules_json() {
  Json out = Json::array();
  for (const verify::Rule& rule : verify::all_rules()) {
    const verify::RulePage& page = verify::rule_page(rule.id);
    Json one;
    one["id"] = rule.name;
    one["shortDescription"] = {{"text", page.summary}};
    one["fullDescription"] = {{"text", page.meaning}};
    one["help"] = {{"text", fmt::format("{}\n\nWhat to do: {}", page.meaning, page.fix)},
                   {"markdown", fmt::format("{}\n\n**What to do:** {}", page.meaning, page.fix)}};
    one["defaultConfiguration"] = {{"level", verify::to_string(rule.severity)}};
    one["properties"] = {{"tags", Json::array({rule.family})}};
    out.push_back(std::move(one));
  }
  return out;
}

// "lockstep 0.1.0" as name and version.
Json driver() {
  const std::string_view tool = tool_version();
  const std::size_t blank = tool.find(' ');
  Json out;
  out["name"] = tool.substr(0, blank);
  if (blank != std::string_view::npos) out["semanticVersion"] = tool.substr(blank + 1);
  out["rules"] = rules_json();
  return out;
}

Json invocation(const FilteredReport& filtered) {
  Json notifications = Json::array();
  const auto notify = [&](std::string_view level, const std::string& text) {
    notifications.push_back({{"level", level}, {"message", message(text)}});
  };
  if (filtered.report.verdict == verify::Verdict::inconclusive)
    notify("warning", fmt::format("inconclusive: {}", verdict_in_words(filtered.report)));
  for (const std::string& unknown : filtered.report.unknown) notify("note", unknown);
  for (const std::string& note : filtered.notes) notify("note", note);
  const std::size_t all = filtered.report.findings.size() + filtered.set_aside.size();
  if (all > kMaxResults)
    notify("note", fmt::format("{} of {} findings are left out", all - kMaxResults, all));
  Json out = {{"executionSuccessful", true}};
  if (!notifications.empty()) out["toolExecutionNotifications"] = std::move(notifications);
  return out;
}

}  // namespace

std::string sarif_report(const FilteredReport& filtered, const Locator& locator) {
  Json run;
  run["tool"] = {{"driver", driver()}};
  run["invocations"] = Json::array({invocation(filtered)});
  run["results"] = results(filtered, locator);
  run["properties"] = {{"verdict", verify::to_string(filtered.report.verdict)}};
  Json out;
  out["$schema"] = kSarifSchema;
  out["version"] = "2.1.0";
  out["runs"] = Json::array({std::move(run)});
  return fmt::format("{}\n", json_text(out));
}

}  // namespace lockstep::reports
