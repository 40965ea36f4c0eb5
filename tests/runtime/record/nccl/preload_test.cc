// The preloaded library in front of an NCCL that does nothing, in programs that are linked with it.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/record/nccl/ranks.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Arguments = std::vector<std::string>;

class Preload : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer wants to be the first library of a program";
  }

  static int run_program(const Arguments& arguments) {
    ::setenv("LD_PRELOAD", LOCKSTEP_BINARY_DIR "/liblockstep_nccl.so", 1);
    std::vector<char*> argv = {const_cast<char*>("nccl_program")};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(LOCKSTEP_BINARY_DIR "/tests/nccl/nccl_program", argv.data());
    return 98;
  }
  // Rank r does what `ranks[r]` says; in a split, the ranks of each color are in their order.
  std::vector<int> job(const std::vector<Arguments>& ranks) {
    return run_ranks(static_cast<int>(ranks.size()), folder_.path(), [&](int rank) {
      const int half = static_cast<int>(ranks.size()) / 2;
      const std::string group_rank = std::to_string(rank / 2) + "/" + std::to_string(half);
      ::setenv("NCCL_TEST_SPLIT", group_rank.c_str(), 1);
      return run_program(ranks[static_cast<std::size_t>(rank)]);
    });
  }
  TempDir folder_;
};

TEST_F(Preload, RecordsWhatAHealthyProgramDoes) {
  const Arguments all = {"all_reduce:8", "broadcast:4:1", "all_gather:3", "reduce_scatter:5",
                         "all_to_all:2"};
  EXPECT_THAT(job({all, all}), Each(0));
  EXPECT_THAT(findings(folder_.path()), IsEmpty());
  EXPECT_THAT(calls(folder_.path(), 1),
              ElementsAre("all_reduce world float32 8>8 sum", "broadcast world float32 4>4 root 1",
                          "all_gather_into_tensor world float32 3>6",
                          "reduce_scatter_tensor world float32 10>5 sum",
                          "all_to_all_single world float32 4>4"))
      << "what all_to_all calls of itself is not the program's";
  EXPECT_THAT(groups(folder_.path(), 0), ElementsAre("world 0 1"));
  EXPECT_EQ(ending(folder_.path(), 0), "clean");
}

TEST_F(Preload, KnowsTheGpuBehindCudaVisibleDevices) {
  const auto on_device_1 = [&](const char* visible) {
    const TempDir other;
    run_ranks(2, other.path(), [&](int) {
      ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
      return run_program({"all_reduce:8"});
    });
    return gpu(other.path(), 1);
  };
  job({{"all_reduce:8"}, {"all_reduce:8"}});
  EXPECT_EQ(gpu(folder_.path(), 1), 1);
  EXPECT_EQ(on_device_1("4,6"), 6);
  EXPECT_EQ(on_device_1("GPU-8932f937,GPU-0123abcd"), -1);
}

TEST_F(Preload, NamesTheRankThatLeftACollectiveOut) {
  const Arguments all = {"all_reduce:8", "all_reduce:16", "all_reduce:24"};
  job({all, {"all_reduce:8", "all_reduce:24"}, all});
  EXPECT_THAT(findings(folder_.path()), ElementsAre("missing-collective: 1"));
}

TEST_F(Preload, NamesTheRankThatSwappedTwoCollectives) {
  const Arguments all = {"all_reduce:8", "all_gather:16", "all_reduce:24"};
  job({all, all, {"all_gather:16", "all_reduce:8", "all_reduce:24"}});
  EXPECT_THAT(findings(folder_.path()), ElementsAre("order-swap: 2"));
}

TEST_F(Preload, RecordsTheCallsOfAGroupInTheirOrder) {
  EXPECT_THAT(job({{"group", "send:4:1", "recv:6:1", "end", "all_reduce:8"},
                   {"group", "send:6:0", "recv:4:0", "end", "all_reduce:8"}}),
              Each(0));
  EXPECT_THAT(findings(folder_.path()), IsEmpty());
  EXPECT_THAT(calls(folder_.path(), 0),
              ElementsAre("send world float32 4> peer 1", "recv world float32 >6 peer 1",
                          "all_reduce world float32 8>8 sum"));
}

TEST_F(Preload, KnowsSplitsByTheirParentAndColor) {
  const auto rank = [](const char* color) {
    return Arguments{color,      "broadcast:4:1", "send:4:0",    "recv:4:0",
                     "split:-1", "world",         "all_reduce:8"};
  };
  job({rank("split:0"), rank("split:1"), rank("split:0"), rank("split:1")});
  EXPECT_THAT(groups(folder_.path(), 3), ElementsAre("world 0 1 2 3", HasSubstr("/split 0.1 1 3")));
  EXPECT_THAT(calls(folder_.path(), 1),
              ElementsAre(HasSubstr("/split 0.1 float32 4>4 root 3"),
                          HasSubstr("/split 0.1 float32 4> peer 1"), HasSubstr("peer 1"),
                          "all_reduce world float32 8>8 sum"));
}

TEST_F(Preload, RecordsWhatNcclRefuses) {
  EXPECT_THAT(job({{"all_reduce:2000000", "group", "all_reduce:3000000", "end"}}), Each(2));
  EXPECT_EQ(ending(folder_.path(), 0),
            "exception in a call: ncclAllReduce returned ncclResult_t 4: ncclGroupEnd returned "
            "ncclResult_t 4");
}

TEST_F(Preload, GivesAnErrorForAFunctionThatNcclDoesNotHave) {
  EXPECT_THAT(job({{"missing", "all_reduce:8"}}), Each(0));
  EXPECT_EQ(ending(folder_.path(), 0), "clean in a call: ncclGather returned ncclResult_t 3");
}

TEST_F(Preload, KeepsWhatAKilledProgramHadCalled) {
  EXPECT_THAT(job({{"all_reduce:8", "all_reduce:8", "kill"}}), Each(128 + SIGKILL));
  EXPECT_EQ(calls(folder_.path(), 0).size(), 2U);
  EXPECT_EQ(ending(folder_.path(), 0), "cut");
}

TEST_F(Preload, SeesTheEndOfAProgramThatRunsNoHandlers) {
  const Arguments leaves = {"all_reduce:8", "leave"};
  EXPECT_THAT(job({leaves, leaves}), Each(0));
  for (const int rank : {0, 1}) EXPECT_EQ(ending(folder_.path(), rank), "clean");
}

TEST_F(Preload, SeesOnTheDeviceWhatIsComplete) {
  EXPECT_THAT(job({{"cuda", "all_reduce:8", "group", "all_reduce:16", "end", "stop",
                    "all_reduce:24", "group", "send:4:0", "recv:4:0", "end"}}),
              Each(0));
  EXPECT_THAT(
      calls(folder_.path(), 0),
      ElementsAre("all_reduce world float32 8>8 sum done",
                  "all_reduce world float32 16>16 sum done", "all_reduce world float32 24>24 sum",
                  "send world float32 4> peer 0", "recv world float32 >4 peer 0"));
  EXPECT_EQ(ending(folder_.path(), 0), "clean");
}

TEST_F(Preload, PutsNoEventsIntoAGraphOrWhereTheyAreNotWanted) {
  job({{"cuda", "capture", "all_reduce:8"}});
  EXPECT_THAT(calls(folder_.path(), 0), ElementsAre("all_reduce world float32 8>8 sum"));
  const TempDir other;
  run_ranks(1, other.path(), [](int) {
    ::setenv("LOCKSTEP_RECORD_COMPLETION", "0", 1);
    return run_program({"cuda", "all_reduce:8"});
  });
  EXPECT_THAT(calls(other.path(), 0), ElementsAre("all_reduce world float32 8>8 sum"));
}

// One process more than `ranks` says: it waits until the ranks of `hang` are marked, however long
// that takes on this machine, and then lets the others read so in the file that they await.
class PreloadHangs : public Preload {
 protected:
  void job_that_hangs(const std::vector<Arguments>& ranks, const std::vector<int>& hang) {
    const int last = static_cast<int>(ranks.size());
    run_ranks(last + 1, folder_.path(), [&](int rank) {
      if (rank == last) {
        for (const int hung : hang) {
          while (!std::filesystem::exists(folder_.file("rank_" + std::to_string(hung) + ".ring")) ||
                 ending(folder_.path(), hung) != "hung")
            ::usleep(1000);
        }
        folder_.write("go", "");
        return 0;
      }
      ::setenv("WORLD_SIZE", std::to_string(last).c_str(), 1);
      ::setenv("LOCKSTEP_RECORD_HUNG_AFTER", "0.05", 1);
      return run_program(ranks[static_cast<std::size_t>(rank)]);
    });
  }
  const std::string await_ = "await:" + folder_.file("go");
};

TEST_F(PreloadHangs, NamesTheRankThatTheOthersWaitForOnTheDevice) {
  const Arguments waits = {"cuda", "all_reduce:8", "stop", "all_reduce:8", await_, "kill"};
  job_that_hangs({waits, {"cuda", "all_reduce:8", await_, "kill"}, waits}, {0, 2});
  EXPECT_THAT(findings(folder_.path()), ElementsAre("host-stall: 1"));
  EXPECT_EQ(ending(folder_.path(), 1), "cut") << "nothing of it was on the device";
}

TEST_F(PreloadHangs, NamesTheRankThatEndedWhileTheOthersWait) {
  const Arguments waits = {"cuda", "all_reduce:8", "stop", "all_reduce:8", await_, "kill"};
  job_that_hangs({waits, {"cuda", "all_reduce:8", await_}, waits}, {0, 2});
  EXPECT_THAT(findings(folder_.path()), ElementsAre("unequal-iterations: 1"));
}

TEST_F(PreloadHangs, AreWithdrawnWhenTheDeviceContinues) {
  job_that_hangs({{"cuda", "stop", "all_reduce:8", await_, "go", "all_reduce:8"}}, {0});
  EXPECT_THAT(calls(folder_.path(), 0), Each("all_reduce world float32 8>8 sum done"));
  EXPECT_EQ(ending(folder_.path(), 0), "clean");
  EXPECT_THAT(findings(folder_.path()), IsEmpty());
}

TEST_F(Preload, RecordsNothingTwiceWhereAConstructorCallsAnother) {
  EXPECT_THAT(job({{"config", "all_reduce:8", "destroy"}}), Each(0));
  EXPECT_THAT(calls(folder_.path(), 0), ElementsAre("all_reduce world float32 8>8 sum"));
}

TEST_F(Preload, GivesEachDeviceOfOneProcessAFile) {
  EXPECT_EQ(
      run_process({{"LOCKSTEP_RECORD_DIR", folder_.path()}}, [] { return run_program({"all"}); }),
      0);
  EXPECT_THAT(findings(folder_.path()), IsEmpty());
  EXPECT_THAT(groups(folder_.path(), 1), ElementsAre("world 0 1"));
}

TEST_F(Preload, LetsAProgramWithoutAFolderContinue) {
  EXPECT_EQ(run_process({{"RANK", "0"}, {"WORLD_SIZE", "1"}},
                        [] {
                          return run_program({"all_reduce:8", "all_reduce:8", "destroy"});
                        }),
            0);
}

}  // namespace
}  // namespace lockstep::runtime
