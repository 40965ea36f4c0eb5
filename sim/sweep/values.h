// The values that a sweep gives to a key, as people write them.
//
//   "ddp,fsdp"                           two texts
//   "8,{kind: fsdp, shard_ranks: 2}"     whatever YAML has: numbers, lists, mappings
//   "2..16*2"                            2, 4, 8, 16
//   "0.1..0.5+0.2"                       0.1, 0.3, 0.5
//   "1..3"                               1, 2, 3
//   "25GB/s..100GB/s*2"                  25GB/s, 50GB/s, 100GB/s
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lockstep::sim {

inline constexpr std::size_t kMostValues = 1000;  // of a key

// Errors: not YAML between brackets, no value, the same value twice, a range that has no end, goes
// down or mixes units, more than kMostValues.
Result<std::vector<nlohmann::json>> parse_values(const std::string& text);

// The same of a list that was YAML already: its texts may be ranges.
Result<std::vector<nlohmann::json>> expand_values(const nlohmann::json& list);

// A value in a table: text without quotes, everything else as JSON.
std::string value_text(const nlohmann::json& value);

}  // namespace lockstep::sim
