#include "tests/reports/against_schema.h"

#include <fstream>

#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

namespace lockstep::reports {

std::string schema_errors(const std::string& text, const std::string& schema_file) {
  std::ifstream in(LOCKSTEP_SOURCE_DIR "/tests/reports/schemas/" + schema_file);
  const nlohmann::json schema = nlohmann::json::parse(in);
  const nlohmann::json json = nlohmann::json::parse(text);
  const bool draft4 = schema.value("$schema", "").find("draft-04") != std::string::npos;
  valijson::Schema compiled;
  valijson::SchemaParser(draft4 ? valijson::SchemaParser::kDraft4 : valijson::SchemaParser::kDraft7)
      .populateSchema(valijson::adapters::NlohmannJsonAdapter(schema), compiled);
  valijson::Validator validator;
  valijson::ValidationResults results;
  if (validator.validate(compiled, valijson::adapters::NlohmannJsonAdapter(json), &results))
    return {};
  std::string out;
  for (const auto& error : results) {
    for (const std::string& part : error.context) out += part;
    out += ": " + error.description + "\n";
  }
  return out.empty() ? "refused" : out;
}

}  // namespace lockstep::reports
