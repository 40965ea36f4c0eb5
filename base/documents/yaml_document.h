// YamlDocument: a YAML file as JSON, together with where everything in it stands.
//
// Only the part of YAML that a configuration needs: one document, text keys, the scalars of the
// YAML 1.2 core schema (so `yes` is text). Input is hostile until proven otherwise: size, depth and
// the number of nodes after aliases are expanded are bounded.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lockstep {

struct YamlDocument {
  nlohmann::json value;

  struct Spot {
    Place key;  // where the key stands; of list items and of the root: where the value starts
    Place value;
  };
  std::map<std::string, Spot> spots;  // by JSON pointer: "" is the root, "/data/modality/0"

  // Where the value, or the key, at `pointer` stands; of what is not in the file, the place of the
  // nearest enclosing value that is.
  const Place& value_place(const std::string& pointer) const;
  const Place& key_place(const std::string& pointer) const;
};

// Parses `text`. Errors: not YAML, more than one document, a duplicate key (with both places), a
// key that is not text, or one of the bounds.
Result<YamlDocument> parse_yaml(const std::string& text, const std::string& file);

// "a/b" and "a~b" as parts of a JSON pointer.
std::string pointer_part(const std::string& key);

}  // namespace lockstep
