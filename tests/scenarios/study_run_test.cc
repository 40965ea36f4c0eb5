// A small study on real processes: a hang that a remedy takes away.
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "runtime/launch/process.h"
#include "tests/runtime/launch/launch_testing.h"

namespace lockstep {
namespace {

constexpr const char* kStudy = R"(
lockstep: 1
name: small
ranks: 2
data: {modality: [{ranks: [1], steps: [1], has: [text]}, {has: [image, text]}], held_out: 16}
strategy: manual
train: {steps: 3, batch_size: 4}
study:
  repeats: 2
  strategies:
    manual: {}
  remedies:
    none: {}
    dummy images: {remedy: dummy-image}
    find unused: {strategy: {find_unused_parameters: true}}
)";

TEST(StudyRun, MeasuresWhatRunsAndSaysWhatHangs) {
  const TempDir folder;
  std::ofstream(folder.file("study.yaml")) << kStudy;
  Result<runtime::Process> program = runtime::Process::spawn(
      {LOCKSTEP_PROGRAM, "sweep", folder.file("study.yaml"), "-o", folder.file("study")},
      folder.file("log"));
  ASSERT_TRUE(program);
  ASSERT_TRUE(runtime::launch_testing::eventually([&] { return !program->running(); },
                                                  std::chrono::minutes(10)));
  const std::string log = TempDir::read(folder.file("log"));
  EXPECT_TRUE(program->poll()->success()) << log;
  EXPECT_THAT(log, ::testing::HasSubstr("dummy images"));
  const auto rows = nlohmann::json::parse(TempDir::read(folder.file("study/study.json")));
  ASSERT_EQ(rows.size(), 4U) << log;
  EXPECT_EQ(rows[0]["repeats"], 2);
  EXPECT_GT(rows[0]["step_ms"]["median"], 0);
  EXPECT_EQ(rows[1]["completed"], false);
  EXPECT_THAT(rows[1]["end"].get<std::string>(), ::testing::HasSubstr("at step 1"));
  EXPECT_EQ(rows[2]["completed"], true);
  EXPECT_LT(rows[2]["gradient_error"], 1e-5);
  EXPECT_LT(rows[2]["image_drift"], 0.05);
  EXPECT_LT(rows[2]["batch_norm_drift"], 1e-4);
  EXPECT_LT(rows[2]["embedding_drift"], 0.05);
  EXPECT_GT(rows[2]["bytes_per_step"]["median"], 0);
  EXPECT_FALSE(rows[3]["impossible"].is_null());
}

}  // namespace
}  // namespace lockstep
