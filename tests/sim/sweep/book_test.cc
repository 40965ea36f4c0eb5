#include "sim/sweep/book.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;

Row row(int ranks) {
  Row out;
  out.machine = "m.yaml";
  out.values = {{"ranks", ranks}};
  out.outcome = Outcome::trains;
  out.ranks = ranks;
  out.step_seconds = 0.125 * ranks;
  out.samples_per_second = 8.0 / ranks;
  out.memory_bytes = 1e6 * ranks;
  return out;
}

class SweepFolderTest : public ::testing::Test {
 protected:
  SweepIdentity identity() const { return {"1.0", "aa", {{"m.yaml", "bb"}}, 4, std::nullopt}; }
  Result<SweepFolder> open(const SweepIdentity& identity) {
    return SweepFolder::open(folder_.file("sweep"), identity);
  }
  std::string why_not(const SweepIdentity& identity) {
    const auto folder = open(identity);
    return folder ? "it opens" : folder.error().message;
  }
  // Three rows, as a sweep leaves them.
  void fill() {
    auto folder = open(identity());
    ASSERT_TRUE(folder) << folder.error().str();
    for (const int ranks : {1, 2, 3}) ASSERT_TRUE(folder->append(row_line(row(ranks), true)));
  }
  std::string results() const { return folder_.file("sweep/results.jsonl"); }

  TempDir folder_;
};

TEST_F(SweepFolderTest, KeepsTheRows) {
  fill();
  const auto folder = open(identity());
  ASSERT_TRUE(folder) << folder.error().str();
  ASSERT_EQ(folder->rows().size(), 3U);
  EXPECT_FALSE(folder->was_cut());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(row_line(folder->rows()[static_cast<std::size_t>(i)], true),
              row_line(row(i + 1), true));
}

TEST_F(SweepFolderTest, CutAnywhereItHasOnlyWholeRows) {
  fill();
  const std::string whole = TempDir::read(results());
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    SCOPED_TRACE(size);
    folder_.write("sweep/results.jsonl", whole.substr(0, size));
    std::string expected;
    {
      const auto folder = open(identity());
      ASSERT_TRUE(folder) << folder.error().str();
      for (const Row& one : folder->rows()) expected += row_line(one, true);
      EXPECT_EQ(folder->was_cut(), expected.size() < size);
    }
    // The rows whose lines are whole.
    EXPECT_EQ(expected, whole.substr(0, size == 0 ? 0 : whole.rfind('\n', size - 1) + 1));
    EXPECT_EQ(TempDir::read(results()), expected);
  }
}

TEST_F(SweepFolderTest, ARowAfterACutLineIsWhole) {
  fill();
  const std::string whole = TempDir::read(results());
  folder_.write("sweep/results.jsonl", whole.substr(0, whole.size() - 5));
  {
    auto folder = open(identity());
    ASSERT_TRUE(folder);
    ASSERT_TRUE(folder->append(row_line(row(3), true)));
  }
  EXPECT_EQ(TempDir::read(results()), whole);
}

TEST_F(SweepFolderTest, ALineThatIsNoRowIsRefusedWithItsNumber) {
  fill();
  folder_.write("sweep/results.jsonl", TempDir::read(results()) + "{\"machine\":\"m\"}\n");
  const auto folder = open(identity());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().location.line, 4);
}

TEST_F(SweepFolderTest, AnotherSweepIsRefused) {
  fill();
  SweepIdentity other = identity();
  other.scenario = "cc";
  EXPECT_THAT(why_not(other), HasSubstr("scenario"));
  other = identity();
  other.machines["m.yaml"] = "cc";
  EXPECT_THAT(why_not(other), HasSubstr("m.yaml was changed"));
  other = identity();
  other.steps = std::nullopt;
  EXPECT_THAT(why_not(other), HasSubstr("--steps"));
  other = identity();
  other.on_meta = true;
  EXPECT_THAT(why_not(other), HasSubstr("--meta"));
  other = identity();
  other.version = "2.0";
  EXPECT_THAT(why_not(other), HasSubstr("version"));
}

TEST_F(SweepFolderTest, AnotherMachineMayComeInLater) {
  fill();
  SweepIdentity other = identity();
  other.machines = {{"n.yaml", "dd"}};  // m.yaml is not used this time
  EXPECT_EQ(why_not(other), "it opens");
  other.machines = {{"m.yaml", "ee"}};
  EXPECT_THAT(why_not(other), HasSubstr("m.yaml was changed"));
  other.machines = {{"n.yaml", "ee"}};
  EXPECT_THAT(why_not(other), HasSubstr("n.yaml was changed"));
}

TEST_F(SweepFolderTest, AFolderOfSomethingElseIsRefused) {
  std::filesystem::create_directory(folder_.file("sweep"));
  folder_.write("sweep/notes.txt", "mine");
  EXPECT_THAT(why_not(identity()), HasSubstr("not empty"));
  folder_.write("sweep/sweep.json", "[");
  EXPECT_THAT(why_not(identity()), HasSubstr("not what a sweep writes"));
  EXPECT_FALSE(std::filesystem::exists(results()));
}

TEST_F(SweepFolderTest, WhatIsNestedDeeperThanAStackIsRefused) {
  fill();
  std::string json = TempDir::read(folder_.file("sweep/sweep.json"));
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  const std::string machines = "\"machines\": {";
  json.insert(json.find(machines) + machines.size(), "\"deep\": " + deep + ",");
  folder_.write("sweep/sweep.json", json);
  EXPECT_THAT(why_not(identity()), HasSubstr("not what a sweep writes"));
}

TEST_F(SweepFolderTest, TwoSweepsDoNotWriteToOneFolder) {
  fill();
  const auto first = open(identity());
  ASSERT_TRUE(first);
  EXPECT_THAT(why_not(identity()), HasSubstr("another sweep is writing here"));
  // Nor does the second one leave a word of its machines.
  const std::string before = TempDir::read(folder_.file("sweep/sweep.json"));
  SweepIdentity other = identity();
  other.machines["n.yaml"] = "dd";
  EXPECT_THAT(why_not(other), HasSubstr("another sweep is writing here"));
  EXPECT_EQ(TempDir::read(folder_.file("sweep/sweep.json")), before);
}

TEST_F(SweepFolderTest, ASweepThatWasKilledAtItsStartCanBeStartedAgain) {
  std::filesystem::create_directory(folder_.file("sweep"));
  folder_.write("sweep/results.jsonl", "");
  EXPECT_EQ(why_not(identity()), "it opens");
  std::filesystem::remove(folder_.file("sweep/sweep.json"));
  folder_.write("sweep/results.jsonl", row_line(row(1), true));
  EXPECT_THAT(why_not(identity()), HasSubstr("not empty"));
}

}  // namespace
}  // namespace lockstep::sim
