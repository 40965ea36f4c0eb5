// Two public failures, recorded by others: the first step and the tensors that differ.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

constexpr const char* kValues = LOCKSTEP_SOURCE_DIR "/../shared/data/values/";

Report judged_recording(const std::string& name) {
  const auto run = trace::load_run({kValues + name});
  EXPECT_TRUE(run) << run.error().str();
  return verify(*run);
}

class Recorded : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kValues)) GTEST_SKIP() << kValues << " is not there";
  }
};

TEST_F(Recorded, BertOutOfSync) {
  const Report report = judged_recording("bert-ddp-out-of-sync");
  EXPECT_EQ(summary(report), "param-divergence error proven step=1\nverdict findings");
  EXPECT_EQ(report.findings[0].what.size(), 196U);
}

TEST_F(Recorded, ResnetThatLostItsHooks) {
  const Report report = judged_recording("resnet-ddp-lost-hooks");
  EXPECT_EQ(summary(report), "param-divergence error proven step=1\nverdict findings");
  EXPECT_EQ(report.findings[0].what.size(), 58U) << "four of 62 have one hash on all ranks";
}

}  // namespace
}  // namespace lockstep::verify
