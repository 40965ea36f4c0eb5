// Checks a YAML document against a JSON Schema, with messages that help.
//
// valijson decides whether the document is valid. Its messages are about constraints, not about
// keys and lines. So a second walk over document and schema finds the first problem and describes
// it. The walk knows the keywords that scenario.schema.json uses; a test makes sure that both
// agree.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "base/result.h"

namespace lockstep {

// A schema that is ready to check documents: valijson takes longer to prepare it than to check one.
class DocumentSchema {
 public:
  // `schema` must be valid (CHECK).
  explicit DocumentSchema(nlohmann::json schema);

  const nlohmann::json& json() const;
  // The first problem, in the order of the file; empty if the document is valid. `example`: the fix
  // where the problem has none of its own, as "docs/sweep.md shows a whole file".
  std::optional<Error> check(const YamlDocument& document, std::string_view example = {}) const;

 private:
  struct Prepared;
  std::shared_ptr<const Prepared> prepared_;
};

// DocumentSchema::check() of a schema that is used once.
std::optional<Error> check_against_schema(const YamlDocument& document,
                                          const nlohmann::json& schema,
                                          std::string_view example = {});

// `value` with the schema's default for every absent key, at every depth. `value` must be valid.
nlohmann::json with_defaults(const nlohmann::json& value, const nlohmann::json& schema);

}  // namespace lockstep
