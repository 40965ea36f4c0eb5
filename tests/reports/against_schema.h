// Checks JSON against a schema of tests/reports/schemas.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::reports {

// What is wrong with `text`, a line each; empty: it is valid.
std::string schema_errors(const std::string& text, const std::string& schema_file);

}  // namespace lockstep::reports
