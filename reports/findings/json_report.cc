// The report as JSON, for other programs.
#include <nlohmann/json.hpp>

#include "base/tool_version.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/reports.h"
#include "reports/json_text.h"
#include "trace/signature.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;

Json evidence_json(const verify::Evidence& evidence, const trace::Run* run) {
  Json out;
  out["rank"] = evidence.rank.value;
  if (evidence.id) out["id"] = *evidence.id;
  if (!evidence.at.empty()) out["at"] = evidence.at;
  out["text"] = evidence.text;
  const trace::Call* const call = run != nullptr ? call_of(evidence, *run) : nullptr;
  if (call == nullptr) return out;
  const trace::Signature& signature = run->tables.signatures[call->signature];
  out["group"] = run->tables.str(call->group);
  if (signature.in.value != 0)
    out["in"] = trace::unflatten_shapes(run->tables.int_lists[signature.in]);
  if (signature.out.value != 0)
    out["out"] = trace::unflatten_shapes(run->tables.int_lists[signature.out]);
  if (std::vector<std::string> stack = stack_of(*call, run->tables); !stack.empty())
    out["stack"] = std::move(stack);
  return out;
}

Json elsewhere_json(const verify::Elsewhere& other) {
  Json out;
  out["group"] = other.group;
  if (!other.group_label.empty()) out["group_label"] = other.group_label;
  if (other.seq) out["seq"] = *other.seq;
  out["culprits"] = ranks_json(other.culprits);
  out["ranks"] = ranks_json(other.ranks);
  return out;
}

Json finding_json(const verify::Finding& finding, const trace::Run* run) {
  Json out;
  out["rule"] = verify::rule(finding.rule).name;
  out["severity"] = verify::to_string(finding.severity);
  out["certainty"] = verify::to_string(finding.certainty);
  add_subject(out, finding, "group_label");
  out["message"] = finding.message;
  add_headline(out, finding);
  for (const verify::Elsewhere& other : finding.also) out["also"].push_back(elsewhere_json(other));
  out["evidence"] = Json::array();
  for (const verify::Evidence& evidence : finding.evidence)
    out["evidence"].push_back(evidence_json(evidence, run));
  out["fix"] = finding.fix;
  out["fingerprint"] = finding.fingerprint;
  for (const verify::Finding& consequence : finding.consequences)
    out["consequences"].push_back(finding_json(consequence, run));
  return out;
}

Json set_aside_json(const SetAside& one, const trace::Run* run) {
  Json out = finding_json(one.finding, run);
  out["status"] = to_string(one.why);
  if (!one.reason.empty()) out["reason"] = one.reason;
  if (!one.expires.empty()) out["expires"] = one.expires;
  return out;
}

Json report_json(const verify::Report& report, const trace::Run* run) {
  Json out;
  out["report"] = 1;
  out["tool"] = tool_version();
  out["verdict"] = verify::to_string(report.verdict);
  if (const verify::Finding* first = headline_of(report); first != nullptr) {
    out["headline"] = first->headline;
    if (!first->next.empty()) out["next"] = first->next;
  }
  out["ranks"] = {{"expected", report.ranks_expected},
                  {"read", report.ranks_read.size()},
                  {"missing", ranks_json(report.ranks_missing)},
                  {"damaged", ranks_json(report.ranks_damaged)}};
  out["events"] = report.events;
  out["findings"] = Json::array();
  for (const verify::Finding& finding : report.findings)
    out["findings"].push_back(finding_json(finding, run));
  out["unknown"] = report.unknown;
  if (!report.sources.empty()) out["sources"] = report.sources;
  return out;
}

std::string text_of(const Json& json) { return json_text(json).append("\n"); }

}  // namespace

std::string json_report(const verify::Report& report) {
  return text_of(report_json(report, nullptr));
}

std::string json_report(const FilteredReport& filtered, const trace::Run* run) {
  Json out = report_json(filtered.report, run);
  for (const SetAside& one : filtered.set_aside)
    out["suppressed"].push_back(set_aside_json(one, run));
  if (!filtered.notes.empty()) out["notes"] = filtered.notes;
  return text_of(out);
}

}  // namespace lockstep::reports
