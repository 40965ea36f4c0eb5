// JSON lets an object have a key twice, and its readers silently take the last one.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep {

// Notes the first key that an object has twice, while nlohmann::json::parse() reads it:
//
//   RepeatedKeys keys;
//   const Json value = Json::parse(text, keys.callback(), false);
//   if (keys.first()) …
class RepeatedKeys {
 public:
  // Refers to this object.
  nlohmann::json::parser_callback_t callback() {
    return [this](int, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
      using Event = nlohmann::json::parse_event_t;
      if (event == Event::object_start) open_.emplace_back();
      if (event == Event::object_end) open_.pop_back();
      if (event == Event::key && !first_ &&
          !open_.back().insert(value.get_ref<const std::string&>()).second)
        first_ = value.get_ref<const std::string&>();
      return true;
    };
  }
  const std::optional<std::string>& first() const { return first_; }

 private:
  std::vector<std::set<std::string>>
      open_;  // keys of the objects that have not ended, outermost first
  std::optional<std::string> first_;
};

}  // namespace lockstep
