// YamlDocument: a YAML file as JSON, with the location of every key and value.
//
// Supports the part of YAML that a configuration needs: one document, text keys, the scalars of the
// YAML 1.2 core schema (so `yes` is text). Input may be hostile: size, depth and the number of
// nodes after expanding aliases are bounded.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lockstep {

struct YamlDocument {
  nlohmann::json value;

  struct Spot {
    Location key;  // of the key; for list items and the root, of the value
    Location value;
  };
  std::map<std::string, Spot> spots;  // by JSON pointer: "" is the root, "/data/modality/0"

  // The location of the value, or key, at `pointer`. If it is not in the file: of the nearest
  // enclosing value that is.
  const Location& value_location(const std::string& pointer) const;
  const Location& key_location(const std::string& pointer) const;
};

// Parses `text`. Errors: not YAML, more than one document, a duplicate key (with both locations), a
// key that is not text, or a bound exceeded.
Result<YamlDocument> parse_yaml(const std::string& text, const std::string& file);

// A key as part of a JSON pointer: "a/b" gives "a~1b", "a~b" gives "a~0b".
std::string pointer_part(const std::string& key);

}  // namespace lockstep
