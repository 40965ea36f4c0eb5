// `lockstep-worker model`, as a person runs it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Outcome {
  int status = -1;
  std::string output;  // stdout and stderr
};

Outcome run(const std::string& arguments) {
  const std::string command = LOCKSTEP_BINARY_DIR "/lockstep-worker model " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  Outcome outcome;
  char piece[4096];
  for (std::size_t got = 0; (got = std::fread(piece, 1, sizeof piece, pipe)) > 0;) {
    outcome.output.append(piece, got);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  return outcome;
}

TEST(ModelCommands, DescribeListsAModel) {
  const Outcome outcome = run("describe resnet-tiny");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("layer4.0.downsample.0.weight  F32   [128, 64, 1, 1]"));
  EXPECT_THAT(outcome.output, HasSubstr("36 tensors, 307536 values, 1.2 MiB"));
}

TEST(ModelCommands, StepTrainsAModelOnce) {
  const Outcome outcome = run("step resnet-tiny --batch 1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("backward"));
  EXPECT_THAT(outcome.output, HasSubstr("peak memory"));
}

TEST(ModelCommands, BadInputIsExitStatus2) {
  const Outcome unknown = run("describe resnet50");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("did you mean 'resnet-50'?"));
  EXPECT_EQ(run("describe /absent.safetensors").status, 2);
  EXPECT_EQ(run("step resnet-tiny --batch 0").status, 2);
  const fs::path file =
      fs::path(testing::TempDir()) / ("bad_" + std::to_string(::getpid()) + ".safetensors");
  std::ofstream(file) << "no such file";
  const Outcome bad = run("step resnet-tiny --weights " + file.string());
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.output, HasSubstr("not a whole safetensors file"));
  fs::remove(file);
}

}  // namespace
}  // namespace lockstep
