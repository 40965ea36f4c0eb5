// Ranks in the JSON of reports: their numbers in a list.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "trace/ids.h"

namespace lockstep {

inline nlohmann::ordered_json ranks_json(const std::vector<Rank>& ranks) {
  auto out = nlohmann::ordered_json::array();
  for (const Rank rank : ranks) out.push_back(rank.value);
  return out;
}

}  // namespace lockstep
