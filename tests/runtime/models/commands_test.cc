// `lockstep-worker model`, as a person runs it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Outcome {
  int status = -1;
  std::string output;  // stdout and stderr
};

Outcome run_worker(const std::string& arguments) {
  const std::string command = LOCKSTEP_BINARY_DIR "/lockstep-worker " + arguments + " 2>&1";
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

Outcome run(const std::string& arguments) { return run_worker("model " + arguments); }

TEST(ModelCommands, DescribeListsAModel) {
  const Outcome outcome = run("describe resnet-tiny");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("layer4.0.downsample.0.weight  F32   [128, 64, 1, 1]"));
  EXPECT_THAT(outcome.output, HasSubstr("36 tensors, 307,536 values, 1.17 MiB"));
}

TEST(ModelCommands, DescribeListsTheModelOfAConfig) {
  const fs::path file =
      fs::path(::testing::TempDir()) / ("config_" + std::to_string(::getpid()) + ".json");
  std::ofstream(file) << R"({"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1,
                            "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 30})";
  const Outcome outcome = run("describe " + file.string());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("embeddings.word_embeddings.weight"));
  EXPECT_THAT(outcome.output, HasSubstr("[30, 8]"));
  std::ofstream(file)
      << R"({"num_hidden_layers": 100, "hidden_size": 9000, "num_attention_heads": 9})";
  const Outcome large = run("describe " + file.string());
  EXPECT_EQ(large.status, 2) << large.output;
  EXPECT_THAT(large.output, HasSubstr("GiB"));
  fs::remove(file);
}

TEST(ModelCommands, EveryNameOfTheCatalogCanBeTried) {
  for (const char* name : {"resnet-small", "bert-small", "bert-tiny"}) {
    const Outcome outcome = run(std::string("step ") + name + " --batch 1");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }
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
  EXPECT_THAT(unknown.output, HasSubstr("did you mean \"resnet-50\"?"));
  EXPECT_EQ(run("describe /absent.safetensors").status, 2);
  EXPECT_EQ(run("step resnet-tiny --batch 0").status, 2);
  const fs::path file =
      fs::path(::testing::TempDir()) / ("bad_" + std::to_string(::getpid()) + ".safetensors");
  std::ofstream(file) << "no such file";
  const Outcome bad = run("step resnet-tiny --weights " + file.string());
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.output, HasSubstr("not a whole safetensors file"));
  fs::remove(file);
}

// --- batch-size ----------------------------------------------------------------------------------

class BatchSizeCommand : public ::testing::Test {
 protected:
  BatchSizeCommand() {
    std::ofstream(file_) << "{lockstep: 1, name: small, data: {items: 16, held_out: 1}}\n";
  }
  ~BatchSizeCommand() override { fs::remove(file_); }

  const std::string file_ = ::testing::TempDir() + "/batch_" + std::to_string(::getpid()) + ".yaml";
};

TEST_F(BatchSizeCommand, TriesSizesUntilTheMost) {
  const Outcome outcome = run_worker("batch-size " + file_ + " --first 2 --most 6 --steps 2");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, ::testing::ContainsRegex("\n     2 +[0-9]+ MiB  [0-9.]+\n     4 "));
  EXPECT_THAT(outcome.output, HasSubstr("largest batch that fits: 6, the largest that was to be"));
}

TEST_F(BatchSizeCommand, SurvivesTriesThatPassTheLimit) {
  const Outcome outcome = run_worker("batch-size " + file_ + " --first 4 --limit-mb 8");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("over the limit"));
  EXPECT_THAT(outcome.output, HasSubstr("no batch fits: raise --limit-mb"));
}

TEST_F(BatchSizeCommand, SaysWhyATryFailedForAnotherReason) {
  std::ofstream(file_)
      << "{lockstep: 1, name: x, model: {head: fusion, fusion: {image_width: 7}}}\n";
  const Outcome outcome = run_worker("batch-size " + file_);
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("failed, not for lack of memory:\nerror: the fusion's image projection"));
}

// A job of one rank shows what the sampler draws: neither the group of the ranks that have images
// nor what rank 0 is given of them is of any use there.
TEST_F(BatchSizeCommand, LeavesOutWhatTheScenarioSaysOfSingleRanks) {
  std::ofstream(file_) << "{lockstep: 1, name: x, data: {items: 16, held_out: 1, modality: "
                          "[{ranks: [0], has: [text]}]}, "
                          "strategy: {kind: manual, process_groups: image-ranks}}\n";
  const Outcome outcome = run_worker("batch-size " + file_ + " --first 2 --most 2 --steps 2");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("largest batch that fits: 2"));
}

TEST_F(BatchSizeCommand, BadInputIsExitStatus2) {
  EXPECT_EQ(run_worker("batch-size /absent.yaml").status, 2);
  EXPECT_EQ(run_worker("batch-size " + file_ + " --first 8 --most 4").status, 2);
  EXPECT_EQ(run_worker("batch-size " + file_ + " --limit-mb 0").status, 2);
}

}  // namespace
}  // namespace lockstep::runtime
