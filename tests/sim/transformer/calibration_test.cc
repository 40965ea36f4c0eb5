// Calibrations as files.
#include "sim/transformer/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sim/machine/machine.h"

namespace lockstep::sim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Calibration, RefusesFilesThatAreWrong) {
  const std::string good = std::string(*shipped_calibration_text("dgx-a100"));
  const auto refused = [](const std::string& text) {
    const Result<Calibration> read = parse_calibration(text, "c.yaml");
    return read ? std::string("fine") : read.error().str();
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return refused(text);
  };
  EXPECT_EQ(refused(good), "fine");
  EXPECT_THAT(refused("a: ["), HasSubstr("c.yaml:1"));
  EXPECT_THAT(changed("fp8_gain", "fp9_gain"), HasSubstr("did you mean \"fp8_gain\"?"));
  EXPECT_THAT(changed("fp8_gain: 1.5", "fp8_gain: fast"), HasSubstr("should be a number"));
  EXPECT_THAT(changed("fp8_gain: 1.5", "fp8_gain: 0"), HasSubstr("0.5"));
  EXPECT_THAT(changed("  fp8_gain: 1.5", "  # none"), HasSubstr("fp8_gain is missing"));
  EXPECT_THAT(refused(good.substr(0, good.find("\ntransformer:") + 1)),
              HasSubstr("no section \"transformer\""));
}

// A plan's calibration is looked for beside the plan, so a path may be a mistyped name, too.
TEST(Calibration, AMistypedNameIsCorrected) {
  for (const auto& [given, why] :
       {std::pair("h100-clusters", "no file or shipped calibration is called \"h100-clusters\""),
        std::pair("/nowhere/h100-clusters",
                  "there is no file /nowhere/h100-clusters, and no shipped calibration is called "
                  "\"h100-clusters\"")}) {
    const Result<Calibration> read = load_calibration(given, "");
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, why);
    EXPECT_EQ(read.error().fix, "did you mean \"h100-cluster\"?");
  }
}

TEST(Calibration, ParametersAreThoseOfTheSchema) {
  const nlohmann::json schema = nlohmann::json::parse(machine_schema());
  const nlohmann::json& keys = schema["properties"]["transformer"]["properties"];
  EXPECT_EQ(keys.size(), cost_parameters().size() + 1);  // and fitted_to
  for (const CostParameter& parameter : cost_parameters())
    EXPECT_TRUE(keys.contains(parameter.name)) << parameter.name;
}

TEST(Calibration, TheShippedOnesAreWellFormed) {
  EXPECT_THAT(shipped_calibration_names(), Contains("a100-node"));
  EXPECT_THAT(shipped_calibration_names(), Not(Contains("v100-node")));  // for its calls alone
  for (const std::string& name : shipped_calibration_names()) {
    const Result<Calibration> shipped = shipped_calibration(name);
    ASSERT_TRUE(shipped) << shipped.error().str();
  }
  EXPECT_THAT(shipped_calibration("b300").error().fix, HasSubstr("a100-node"));
}

}  // namespace
}  // namespace lockstep::sim
