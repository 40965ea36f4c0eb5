// The JSON of reports as text.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep {

// In one line; bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lockstep
