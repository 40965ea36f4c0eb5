// Files and folders become one run, whatever their form and order.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/gzip.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "trace/formats/ring/writer.h"
#include "trace/run.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string trace_of(int rank, int steps = 1, std::size_t world_size = 2) {
  std::string text = header_line(rank, world_size);
  for (int n = 0; n < steps; ++n) text += json_line({{"ev", "step"}, {"n", n}});
  return text;
}

class LoadTest : public testing::Test {
 protected:
  trace::Run load(const std::vector<std::string>& paths) {
    Result<trace::Run> run = load_run(paths);
    EXPECT_TRUE(run) << (run ? "" : run.error().str());
    return run ? std::move(*run) : trace::Run{};
  }
  static std::string error(const std::vector<std::string>& paths) {
    const Result<trace::Run> run = load_run(paths);
    return run ? "none" : run.error().message;
  }
  // The file of a rank in one of several runs; `job` says which.
  void write_job(int rank, int world_size, const std::string& job) {
    RingWriter::Options options;
    options.path = dir_.file(fmt::format("rank_{}.ring", rank));
    options.rank = Rank(rank);
    options.world_size = world_size;
    options.capacity = 64;
    options.job = job;
    auto writer = RingWriter::create(options);
    ASSERT_TRUE(writer);
    (*writer)->finish(End::clean);
  }
  std::string write_ring(const std::string& name, int rank, int steps) {
    RingWriter::Options options;
    options.path = dir_.file(name);
    options.rank = Rank(rank);
    options.world_size = 2;
    options.capacity = 64;
    auto writer = RingWriter::create(options);
    EXPECT_TRUE(writer);
    for (int n = 0; n < steps; ++n) (*writer)->step(n, 0, 0);
    return options.path;
  }

  TempDir dir_;
};

TEST_F(LoadTest, WhatARankSaidBesideItsRingFileIsNoSecondRecording) {
  write_ring("rank_0.ring", 0, 1);
  const std::string said =
      "Detected mismatch between collectives on ranks. Rank 0 is running collective: "
      "CollectiveFingerPrint(SequenceNumber=13, OpType=_ALLGATHER_BASE, TensorShape=[2048], "
      "TensorDtypes=Float), but Rank 1 is running collective: CollectiveFingerPrint("
      "SequenceNumber=13, OpType=_ALLGATHER_BASE, TensorShape=[256], TensorDtypes=Float).\n";
  dir_.write("rank_0.log", said);
  dir_.write("rank_0.result.json", "{\"error\": \"" + said.substr(0, said.size() - 1) + "\"}\n");
  const trace::Run run = load({dir_.path()});
  ASSERT_THAT(run.ranks, SizeIs(1));
  EXPECT_TRUE(run.ranks[0].source.ends_with("rank_0.ring"));
}

TEST_F(LoadTest, TheNewestOfSeveralRunsInOneFolderIsRead) {
  write_job(0, 2, "1795564800000000002-7");
  write_job(1, 3, "1795564800000000001-9");  // did not come to record in the later run
  write_job(2, 3, "1795564800000000001-9");
  const trace::Run run = load({dir_.path()});
  ASSERT_THAT(run.ranks, SizeIs(1));
  EXPECT_EQ(run.ranks[0].rank, Rank(0));
  EXPECT_EQ(run.world_size, 2);
  EXPECT_THAT(run.header_conflicts, IsEmpty());
  EXPECT_THAT(run.unknown, testing::Contains(HasSubstr("earlier runs of the job")));
}

// Ranks that fail before they have a store have marks of their own.
TEST_F(LoadTest, AllMarksOfOneAttemptAreRead) {
  write_job(0, 3, "1795564800000000003-7/5-1");
  write_job(1, 3, "1795564800000000004-8/5-1");
  write_job(2, 3, "1795564800000000001-9/5-0");
  const trace::Run run = load({dir_.path()});
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.ranks[1].rank, Rank(1));
}

TEST_F(LoadTest, AFolderWithAllForms) {
  dir_.write("rank_0.trace.jsonl", trace_of(0));
  dir_.write("rank_1.trace.jsonl.gz", gzip(trace_of(1, 2, 3)));
  write_ring("rank_2.ring", 0, 3);
  dir_.write("notes.txt", "not a trace");
  std::filesystem::create_directory(dir_.file("rank_9.ring"));
  const trace::Run run = load({dir_.path()});
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.ranks[0].events.size(), 3U);  // of the two that say rank 0, the longer
  EXPECT_EQ(run.ranks[1].events.size(), 2U);
  EXPECT_EQ(run.world_size, 3);
  EXPECT_EQ(run.event_count(), 5U);
  ASSERT_THAT(run.header_conflicts, SizeIs(2));
  EXPECT_THAT(run.header_conflicts[0], HasSubstr("rank 0 is in "));
  EXPECT_EQ(run.header_conflicts[1],
            "the headers disagree about world_size: 2 (rank 0) and 3 (rank 1)");
}

TEST_F(LoadTest, TheRingFileIsReadWhereATraceHasTwoForms) {
  dir_.write("rank_0.trace.jsonl", trace_of(0, 5));
  write_ring("rank_0.ring", 0, 3);
  const trace::Run run = load({dir_.path()});
  EXPECT_EQ(run.event_count(), 3U);
  EXPECT_THAT(run.header_conflicts, IsEmpty());
}

TEST_F(LoadTest, TheOrderOfPathsDoesNotMatterNorDoesNamingAFileTwice) {
  std::vector<std::string> paths = {dir_.write("b", trace_of(0)), dir_.write("a", trace_of(0)),
                                    dir_.write("c", trace_of(1))};
  paths.push_back(paths[2]);
  std::filesystem::create_symlink(paths[2], dir_.file("link"));
  paths.push_back(dir_.file("link"));
  std::sort(paths.begin(), paths.end());
  const trace::Run first = load(paths);
  do {
    const trace::Run run = load(paths);
    ASSERT_THAT(run.ranks, SizeIs(2));
    EXPECT_THAT(run.ranks[0].source, EndsWith("/a"));
    EXPECT_EQ(run.ranks[1].source, first.ranks[1].source);
    EXPECT_EQ(run.header_conflicts, first.header_conflicts);
    EXPECT_THAT(run.header_conflicts, SizeIs(1));
  } while (std::next_permutation(paths.begin(), paths.end()));
}

TEST_F(LoadTest, ANamedFileIsKnownByItsContent) {
  const std::string ring = write_ring("x", 1, 2);
  const std::string packed = dir_.write("y", gzip(trace_of(0)));
  EXPECT_THAT(load({ring, packed}).ranks, SizeIs(2));
  const std::string packed_ring = dir_.write("z", gzip(TempDir::read(ring)));
  EXPECT_EQ(load({packed_ring}).event_count(), 2U);
}

TEST_F(LoadTest, ACutGzipFileCountsAsFarAsItGoes) {
  const std::string packed = gzip(trace_of(0, 5000));
  const trace::Run run = load({dir_.write("a.gz", packed.substr(0, packed.size() / 2))});
  ASSERT_THAT(run.ranks, SizeIs(1));
  EXPECT_GT(run.event_count(), 100U);
  EXPECT_LT(run.event_count(), 5000U);
  EXPECT_THAT(run.ranks[0].damaged.back().message, HasSubstr("packed file was cut off"));
}

TEST_F(LoadTest, APackedFileOfWhichNothingIsLeftIsNotCalledEmpty) {
  const std::string packed = gzip(trace_of(0));
  EXPECT_EQ(error({dir_.write("a.gz", packed.substr(0, 10))}),
            "the packed file is cut off or damaged, and nothing in it can be unpacked");
}

TEST_F(LoadTest, FilesThatCannotBeReadAreListedBesideThoseThatCan) {
  const trace::Run run = load({dir_.write("a", trace_of(0)), dir_.write("b", "garbage"),
                               dir_.write("c", "{\"header\":1}"), dir_.write("d", "")});
  EXPECT_THAT(run.ranks, SizeIs(1));
  ASSERT_THAT(run.unreadable, SizeIs(3));
  EXPECT_EQ(run.unreadable[0].error.message, "not a trace of a known form");
  EXPECT_EQ(run.unreadable[1].error.location.line, 1);
  EXPECT_EQ(run.unreadable[2].error.message, "the file is empty");
}

TEST_F(LoadTest, AJobsOutputThatTellsNothingIsAnError) {
  LoadOptions options;
  options.evidence = true;
  const auto loaded = load_run({dir_.write("train.log", "epoch 1, loss 0.5\n")}, options);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message,
            "no traces here, and nothing in the output tells how a rank ended or where it waits");
  EXPECT_THAT(loaded.error().fix, testing::HasSubstr("py-spy dump --pid"));
}

TEST_F(LoadTest, NothingToReadIsAnError) {
  EXPECT_EQ(error({}), "no traces were named");
  EXPECT_EQ(error({dir_.file("nowhere")}), "no such file or folder");
  EXPECT_EQ(error({dir_.path()}), "no traces in this folder: it holds no files");
  std::filesystem::create_directories(dir_.file("none"));
  for (const char* name : {"none/a", "none/b"}) dir_.write(name, "");
  EXPECT_EQ(error({dir_.file("none")}), "no traces in this folder: 2 files in it, all empty");
  dir_.write("none/c", "x");
  EXPECT_EQ(error({dir_.file("none")}),
            "no traces in this folder: 3 files in it, none in a known format");
  const auto advice = [&] { return load_run({dir_.file("none")}, LoadOptions()).error().fix; };
  EXPECT_THAT(advice(), testing::HasSubstr("lists what can be read"));
  dir_.write("none/job.yaml", "lockstep: 1\n");
  EXPECT_THAT(advice(), testing::HasSubstr("if these are scenarios: lockstep run"));
  EXPECT_EQ(error({dir_.write("a", "x"), dir_.write("b", "x")}),
            "not a trace of a known form (nor can 1 other file be read)");
  std::filesystem::create_directories(dir_.file("other"));
  dir_.write("other/rank_0.trace.jsonl", trace_of(0));
  LoadOptions profiles;
  profiles.format = "kineto";
  const Result<trace::Run> other = load_run({dir_.file("other")}, profiles);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message,
            "no traces in this folder: 1 file in it, none in the format kineto");
}

// What was copied from the nodes of a job, a folder each.
TEST_F(LoadTest, FoldersOfNodesAreOneRun) {
  for (const char* folder : {"job/node0", "job/node1/dumps", "job/checkpoints"})
    std::filesystem::create_directories(dir_.file(folder));
  dir_.write("job/node0/rank_0.trace.jsonl", trace_of(0));
  dir_.write("job/node1/dumps/rank_1.trace.jsonl", trace_of(1));
  dir_.write("job/checkpoints/step_1", "weights");
  EXPECT_THAT(load({dir_.file("job")}).ranks, SizeIs(2));
}

TEST_F(LoadTest, FoldersBesideTracesAreNotSearched) {
  std::filesystem::create_directories(dir_.file("old"));
  dir_.write("rank_0.trace.jsonl", trace_of(0));
  dir_.write("old/rank_1.trace.jsonl", trace_of(1));
  EXPECT_THAT(load({dir_.path()}).ranks, SizeIs(1));
}

TEST_F(LoadTest, FoldersWithOneRankInTwoAreTwoRuns) {
  for (const std::string folder : {"monday", "tuesday"}) {
    std::filesystem::create_directories(dir_.file(folder));
    for (int rank = 0; rank < 2; ++rank)
      dir_.write(fmt::format("{}/rank_{}.trace.jsonl", folder, rank), trace_of(rank));
  }
  EXPECT_THAT(error({dir_.path()}), HasSubstr("both hold a trace of rank 0: they are two runs"));
  EXPECT_THAT(load({dir_.file("monday")}).ranks, SizeIs(2));
}

TEST(Assemble, DifferentSemanticsAreAContradiction) {
  const trace::Run run =
      run_from_text({R"({"header":1,"rank":1,"world_size":2})",
                     R"({"header":1,"rank":0,"world_size":2,"semantics":"mpi"})"});
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.ranks[0].rank, Rank(0));
  EXPECT_THAT(run.header_conflicts,
              ElementsAre("the headers disagree about semantics: c10d (rank 1) and mpi (rank 0)"));
}

TEST(MergeTables, EveryNameOfATraceMovesWithIt) {
  Tables own;
  RankTrace trace;
  trace.data.push_back({0, {1, 2}, own.strings.intern("image")});
  Tables tables;
  tables.strings.intern("another");
  move_to_tables(tables, own, {&trace, 1});
  EXPECT_EQ(tables.str(trace.data[0].modality), "image");
}

}  // namespace
}  // namespace lockstep::trace
