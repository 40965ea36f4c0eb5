// The pages of docs/reference, made from the code: the rule table, the schemas of scenario and
// machine files, and what every command says of itself. reference_test holds the committed pages to
// these; `scripts/docs --renew` writes them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::docs {

// What `lockstep ARGUMENTS…` prints on standard output.
using Lockstep = std::function<std::string(const std::vector<std::string>& arguments)>;

// By file name ("rules.md"): its text.
std::map<std::string, std::string> reference_pages(const Lockstep& lockstep);

// The names below "Subcommands:" of a help text, in its order.
std::vector<std::string> subcommands_of(const std::string& help);

// A row for every key of a JSON Schema at any depth: "train.schedule.decay", what it holds, its
// default, and its description. `$ref`s and alternatives are followed.
std::string key_table(const nlohmann::ordered_json& schema);

// The examples of the rules' pages (verify/rules/*.md), run: below the lines of a trace stands what
// `lockstep verify` prints for them. `page` with every report block made again from the trace block
// above it.
std::string with_reports(const std::string& page, const Lockstep& lockstep);

}  // namespace lockstep::docs
