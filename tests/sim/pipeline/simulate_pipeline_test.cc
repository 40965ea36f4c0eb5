// lockstep simulate pipeline: what is answered, and what is refused.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

cli::Outcome pipeline(std::vector<std::string> options) {
  std::vector<std::string> words = {"simulate", "pipeline"};
  words.insert(words.end(), options.begin(), options.end());
  return cli::run_lockstep(words);
}

Json answer(std::vector<std::string> options) {
  options.emplace_back("--output");
  options.emplace_back("json=-");
  const cli::Outcome outcome = pipeline(std::move(options));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, false);
}

std::vector<std::string> small(const std::string& schedule) {
  return {"--schedule", schedule,    "--stages", "4",          "--micro-batches",
          "8",          "--forward", "1us",      "--backward", "2us"};
}

TEST(SimulatePipeline, JsonHasTheNumbersInPicoseconds) {
  const Json one = answer(small("1f1b"));
  EXPECT_EQ(one["time_ps"], 33'000'000);
  EXPECT_EQ(one["idle_ps"], Json::parse("[9000000,9000000,9000000,9000000]"));
  EXPECT_EQ(one["peak_in_flight"], Json::parse("[4,3,2,1]"));
  EXPECT_FALSE(one.contains("peak_bytes"));
  const Json gpipe = answer(small("gpipe"));
  EXPECT_EQ(gpipe["time_ps"], 33'000'000);
  EXPECT_EQ(gpipe["peak_in_flight"], Json::parse("[8,8,8,8]"));
  const Json interleaved = answer(small("interleaved"));  // 2 chunks where none are given
  EXPECT_EQ(interleaved["time_ps"], 57'000'000);
  EXPECT_EQ(interleaved["peak_in_flight"], Json::parse("[11,9,7,5]"));
}

TEST(SimulatePipeline, TheBackwardIsSplitInHalvesOrAsGiven) {
  std::vector<std::string> options = small("zb-h1");
  EXPECT_EQ(answer(options)["idle_ps"][0], 3'000'000);  // (p-1)(1+1-1)
  options.insert(options.end(), {"--backward-weight", "1us"});
  EXPECT_EQ(answer(options)["idle_ps"][0], 6'000'000);  // (p-1)(1+2-1)
  options[1] = "1f1b";                                  // runs both parts at once
  EXPECT_EQ(answer(options)["idle_ps"][0], 12'000'000);
}

TEST(SimulatePipeline, StagesMayDiffer) {
  const Json uneven = answer({"--stages", "4", "--micro-batches", "16", "--forward",
                              "3us,1us,1us,1us", "--backward", "6us,2us,2us,2us"});
  EXPECT_EQ(uneven["time_ps"], 144'000'000);
  EXPECT_EQ(uneven["busy_ps"], Json::parse("[144000000,48000000,48000000,48000000]"));
  // Two chunks: one value per stage, or one per piece of the model.
  std::vector<std::string> pieces = small("interleaved");
  pieces[7] = "1us,1us,1us,1us,1us,1us,1us,1us";
  EXPECT_EQ(answer(pieces)["time_ps"], 57'000'000);
}

TEST(SimulatePipeline, ActivationsGiveBytes) {
  std::vector<std::string> options = small("1f1b");
  options.insert(options.end(), {"--activation", "1MiB"});
  EXPECT_EQ(answer(options)["peak_bytes"], Json::parse("[4194304,3145728,2097152,1048576]"));
}

TEST(SimulatePipeline, TheTextFitsATerminal) {
  std::vector<std::string> options = small("zb-h2");
  options.insert(options.end(), {"--send", "100ns", "--activation", "1.5GiB"});
  const cli::Outcome outcome = pipeline(options);
  EXPECT_EQ(outcome.status, 0);
  cli::expect_fits_a_terminal(outcome.out);
  const cli::Outcome one = pipeline(small("1f1b"));
  EXPECT_THAT(one.out, HasSubstr("1f1b, 4 stages, 8 micro-batches: 33 us\n"
                                 "bubble: 27.3 % of the stages' time\n"));
  EXPECT_THAT(one.out, HasSubstr("    0  24 us  9 us      27.3 %          4\n"));
  EXPECT_THAT(one.out, HasSubstr("stage 3 ...0aa1bb2cc3dd4ee5ff6gg7hh......\n"));
}

struct RefusedCommand {
  std::vector<std::string> change;  // option and value, in place of small()'s or added
  std::string message, fix;
};

TEST(SimulatePipeline, RefusesWithOptionReasonAndFix) {
  const std::vector<RefusedCommand> refusals = {
      {{"--micro-batches", "0"}, "--micro-batches is 0", "positive number"},
      {{"--schedule", "interleaved", "--micro-batches", "6"},
       "not a multiple",
       "--micro-batches 8"},
      {{"--layers", "3"}, "--layers 3 cannot be divided into 4 stages", "at most 3 --stages"},
      {{"--layers", "0"}, "--layers is 0; a model has at least 1", "a positive number"},
      {{"--layers", "6"}, "--layers 6 do not divide evenly", "as lists"},
      {{"--forward", "1"}, "--forward: \"1\" has no unit", "500ns"},
      {{"--forward", "1us,2us"}, "--forward has 2 values for 4 stages", "one value, or 4"},
      {{"--schedule", "dualpipe"}, "--schedule \"dualpipe\" is not known", "gpipe"},
      {{"--activation-weight", "1MB"}, "--activation, which is not given", "--activation"},
      {{"--activation", "1MB", "--activation-weight", "2MB"}, "is more than", "at most"},
      {{"--forward", "90d"}, "--forward: ", ""},
      {{"--output", "xml=-"}, "no such kind", "text and json"},
  };
  for (const RefusedCommand& refusal : refusals) {
    std::vector<std::string> options = small("1f1b");
    for (std::size_t i = 0; i < refusal.change.size(); i += 2) {
      const auto old = std::find(options.begin(), options.end(), refusal.change[i]);
      if (old != options.end()) options.erase(old, old + 2);
      options.insert(options.end(), {refusal.change[i], refusal.change[i + 1]});
    }
    const cli::Outcome outcome = pipeline(options);
    EXPECT_EQ(outcome.status, 2) << refusal.message;
    EXPECT_THAT(outcome.err, HasSubstr(refusal.message));
    EXPECT_THAT(outcome.err, HasSubstr(refusal.fix));
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace lockstep::sim
