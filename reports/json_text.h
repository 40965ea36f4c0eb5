// The JSON of reports as text.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trace/ids.h"

namespace lockstep::reports {

// In one line; bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Ranks in the JSON of reports: their numbers in a list.

inline nlohmann::ordered_json ranks_json(const std::vector<trace::Rank>& ranks) {
  auto out = nlohmann::ordered_json::array();
  for (const trace::Rank rank : ranks) out.push_back(rank.value);
  return out;
}

}  // namespace lockstep::reports
