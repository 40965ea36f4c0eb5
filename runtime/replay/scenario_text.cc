#include "runtime/replay/scenario_text.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lockstep {

namespace {

// JSON's strings are YAML's, whatever stands in them.
std::string quoted(const std::string& text) { return nlohmann::json(printable(text)).dump(); }

std::string expectation(const Scenario::Expect& expect) {
  std::string out = "{verdict: " + expect.verdict;
  if (!expect.rules.empty()) {
    out += ", rules: [";
    for (std::size_t i = 0; i < expect.rules.size(); ++i)
      out += (i == 0 ? "" : ", ") + expect.rules[i];
    out += "]";
  }
  if (expect.culprits) {
    out += ", culprits: [";
    for (std::size_t i = 0; i < expect.culprits->size(); ++i)
      out += (i == 0 ? "" : ", ") + std::to_string((*expect.culprits)[i]);
    out += "]";
  }
  if (expect.step) out += ", step: " + std::to_string(*expect.step);
  return out + "}";
}

}  // namespace

std::string replay_scenario_text(const ReplayScenario& scenario) {
  std::string out =
      "# The calls of a recorded run, made again by real processes: lockstep run --check FILE.\n"
      "# Written by `lockstep trace-to-scenario`; the calls are in the folder \"trace\" names.\n"
      "lockstep: 1\n";
  out += "name: " + quoted(scenario.name) + "\n";
  if (!scenario.description.empty()) {
    out += "description: " + quoted(scenario.description) + "\n";
  }
  out += "ranks: " + std::to_string(scenario.ranks) + "\n";
  out += "strategy: {kind: replay, trace: " + quoted(scenario.trace) + "}\n";
  out += "expect: " + expectation(scenario.expect) + "\n";
  return out;
}

}  // namespace lockstep
