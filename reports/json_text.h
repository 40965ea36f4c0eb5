// JSON of reports.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trace/ids.h"

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

}  // namespace lockstep::reports
