// The example that `lockstep scenario --new` prints.
#include "runtime/job/scenario_example.h"

#include <functional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> kinds(const std::string& of) {
  return Json::parse(scenario_schema())["definitions"][of + "_kind"]["enum"];
}

TEST(ScenarioExample, SaysTheDefaults) {
  const auto text = example_scenario({});
  ASSERT_TRUE(static_cast<bool>(text)) << text.error().str();
  Scenario scenario = parse_scenario(*text, "example").value();
  EXPECT_EQ(scenario.expect->verdict, "clean");
  scenario.expect.reset();
  EXPECT_EQ(scenario, parse_scenario("{lockstep: 1, name: my job}", "example").value());
}

TEST(ScenarioExample, EveryStrategyAndRemedyPassesOrIsRefusedWithItsReason) {
  int passed = 0;
  for (const std::string& strategy : kinds("strategy")) {
    for (const std::string& remedy : kinds("remedy")) {
      const auto text = example_scenario({strategy, remedy});
      if (!text) {
        EXPECT_EQ(strategy, "pipeline") << text.error().str();
        EXPECT_FALSE(text.error().fix.empty());
        continue;
      }
      ++passed;
      const auto scenario = parse_scenario(*text, "example");
      EXPECT_TRUE(static_cast<bool>(scenario));
      EXPECT_THAT(*text, HasSubstr("  kind: " + strategy + "\n"));
      EXPECT_THAT(*text, HasSubstr("  kind: " + remedy + "\n"));
    }
  }
  EXPECT_EQ(passed, 20);
}

TEST(ScenarioExample, HasEveryKeyOfTheFormat) {
  const std::string text = example_scenario({}).value();
  const std::function<void(const Json&)> visit = [&](const Json& node) {
    if (!node.is_object()) return;
    if (node.contains("properties")) {
      for (const auto& [key, inner] : node["properties"].items()) {
        // Examples say enough of the items of lists.
        if (inner.value("type", "") == "array" && inner.contains("items") &&
            inner["items"].contains("properties"))
          EXPECT_THAT(text, HasSubstr(key + ": "));
        else
          EXPECT_THAT(text, testing::ContainsRegex("[ \n#]" + key + ":"));
        if (inner.value("type", "") == "object") visit(inner);
      }
    }
  };
  visit(Json::parse(scenario_schema()));
}

TEST(ScenarioExample, LinesFit) {
  std::istringstream lines(example_scenario({"fsdp", "dummy-image"}).value());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST(ScenarioExample, AnUnknownKindNamesTheNearest) {
  EXPECT_EQ(example_scenario({"dpd", "none"}).error().fix, "did you mean \"ddp\"?");
  EXPECT_THAT(example_scenario({"ddp", "dummy"}).error().message, HasSubstr("no remedy \"dummy\""));
}

}  // namespace
}  // namespace lockstep::runtime
