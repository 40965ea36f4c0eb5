// JSON that several forms of reports share.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trace/ids.h"
#include "verify/report.h"

namespace lockstep::reports {

// As text in one line; bytes that are not UTF-8 become U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Ranks as a list of numbers.
inline nlohmann::ordered_json ranks_json(const std::vector<trace::Rank>& ranks) {
  auto out = nlohmann::ordered_json::array();
  for (const trace::Rank rank : ranks) out.push_back(rank.value);
  return out;
}

// Adds where a finding is, and which ranks and parameters it concerns; what is not known is left
// out. `group_label`: the key of the group's label.
inline void add_subject(nlohmann::ordered_json& out, const verify::Finding& finding,
                        const char* group_label) {
  if (!finding.group.empty()) out["group"] = finding.group;
  if (!finding.group_label.empty()) out[group_label] = finding.group_label;
  if (finding.seq) out["seq"] = *finding.seq;
  if (finding.number) out["number"] = *finding.number;
  if (finding.step) out["step"] = *finding.step;
  out["culprits"] = ranks_json(finding.culprits);
  out["ranks"] = ranks_json(finding.ranks);
  out["what"] = finding.what;
}

// Adds who stopped, the command to run next, and the ranks that wait; nothing where none stopped.
inline void add_headline(nlohmann::ordered_json& out, const verify::Finding& finding) {
  if (!finding.headline.empty()) out["headline"] = finding.headline;
  if (!finding.next.empty()) out["next"] = finding.next;
  if (!finding.waiting.empty()) out["waiting"] = ranks_json(finding.waiting);
}

}  // namespace lockstep::reports
