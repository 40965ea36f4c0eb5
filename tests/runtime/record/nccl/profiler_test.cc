// The profiler plugin as NCCL loads and calls it, and what `lockstep` makes of its ring files.
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/record/nccl/call_slots.h"
#include "tests/runtime/record/nccl/plugin_host.h"
#include "tests/runtime/record/nccl/ranks.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using namespace nccl_profiler;

const std::string kPlugin = LOCKSTEP_BINARY_DIR "/liblockstep_nccl_profiler.so";
constexpr std::uint64_t kProfiledWorld = 0x11;

class Plugin : public testing::TestWithParam<int> {
 protected:
  // Each rank opens the communicator of all and does `body`.
  using Body = std::function<void(PluginHost& nccl, const PluginHost::Comm& world, int rank)>;
  std::vector<int> job(int ranks, const Body& body) {
    return run_ranks(ranks, folder_.path(), [&](int rank) {
      PluginHost nccl(kPlugin, GetParam());
      const PluginHost::Comm world = nccl.open(kProfiledWorld, ranks, rank);
      body(nccl, world, rank);
      nccl.close(world);
      return 0;
    });
  }
  TempDir folder_;
};
INSTANTIATE_TEST_SUITE_P(Versions, Plugin, testing::Values(4, 5),
                         [](const auto& tested) { return "v" + std::to_string(tested.param); });

TEST_P(Plugin, RecordsWhatAHealthyJobDoes) {
  EXPECT_THAT(job(3,
                  [](PluginHost& nccl, const PluginHost::Comm& world, int) {
                    nccl.collective(world, {});
                    nccl.collective(world, {"Reduce", 16, "ncclBfloat16", 2});
                    nccl.collective(world, {"ReduceScatter", 5, "ncclFloat64"});
                  }),
              Each(0));
  EXPECT_THAT(findings(folder_.path()), IsEmpty());
  EXPECT_THAT(calls(folder_.path(), 1),
              ElementsAre("all_reduce world float32 8>8 begun done",
                          "reduce world bfloat16 16>16 root 2 begun done",
                          "reduce_scatter_tensor world float64 15>5 begun done"));
  EXPECT_THAT(groups(folder_.path(), 1), ElementsAre("world 0 1 2"));
  EXPECT_EQ(ending(folder_.path(), 1), "clean");
}

TEST_P(Plugin, RecordsTheGpuOfTheThreadThatMakesTheCommunicator) {
  const auto gpu_of = [](const char* device, const char* visible) {
    const TempDir folder;
    run_ranks(1, folder.path(), [&](int rank) {
      ::setenv("LOCAL_RANK", "7", 1);  // what the program does counts, not the custom
      if (device != nullptr) {
        ::setenv("NCCL_TEST_DEVICE", device, 1);
        if (::dlopen(LOCKSTEP_BINARY_DIR "/tests/nccl/libcuda.so.1", RTLD_NOW) == nullptr)
          return 97;
      }
      if (visible != nullptr) ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
      PluginHost nccl(kPlugin, GetParam());
      const PluginHost::Comm world = nccl.open(kProfiledWorld, 1, rank);
      nccl.collective(world, {});
      nccl.close(world);
      return 0;
    });
    return gpu(folder.path(), 0);
  };
  EXPECT_EQ(gpu_of("5", nullptr), 5);
  EXPECT_EQ(gpu_of("1", "4,6"), 6);
  EXPECT_EQ(gpu_of("1", "GPU-8932f937,GPU-0123abcd"), trace::kNone);
  EXPECT_EQ(gpu_of(nullptr, nullptr), trace::kNone) << "there is no CUDA driver";
}

TEST_P(Plugin, NamesTheRankThatLeftACollectiveOut) {
  job(4, [](PluginHost& nccl, const PluginHost::Comm& world, int rank) {
    for (const std::size_t count : {8U, 16U, 24U, 32U}) {
      if (rank == 2 && count == 16) continue;
      nccl.collective(world, {"AllReduce", count}, PluginHost::Until::launched);
    }
  });
  EXPECT_THAT(findings(folder_.path()), ElementsAre("missing-collective: 2"));
}

TEST_P(Plugin, NamesTheRankThatSwappedTwoCollectives) {
  job(3, [](PluginHost& nccl, const PluginHost::Comm& world, int rank) {
    nccl.collective(world, {"AllReduce", rank == 1 ? 16U : 8U}, PluginHost::Until::launched);
    nccl.collective(world, {"AllReduce", rank == 1 ? 8U : 16U}, PluginHost::Until::launched);
    nccl.collective(world, {"AllReduce", 32}, PluginHost::Until::launched);
  });
  EXPECT_THAT(findings(folder_.path()), ElementsAre("order-swap: 1"));
}

TEST_P(Plugin, FindsAReceiveThatNobodySends) {
  job(2, [](PluginHost& nccl, const PluginHost::Comm& world, int rank) {
    nccl.message(world, rank == 0 ? "Send" : "Recv", 4, 1 - rank);
    nccl.message(world, "Send", 4, rank);  // to itself: meets nobody
    if (rank == 1) nccl.message(world, "Recv", 6, 0, PluginHost::Until::launched);
  });
  EXPECT_THAT(calls(folder_.path(), 1), ElementsAre("recv world float32 >4 peer 0 begun done",
                                                    "recv world float32 >6 peer 0"));
  EXPECT_THAT(findings(folder_.path()), SizeIs(1));
}

TEST_P(Plugin, PutsCommunicatorsTogetherOverAllRanks) {
  // Two halves; in each the group ranks are in the opposite order of the ranks.
  job(4, [](PluginHost& nccl, const PluginHost::Comm& world, int rank) {
    nccl.collective(world, {});
    const int half = rank / 2;
    const int group_rank = 1 - rank % 2;
    const auto comm =
        nccl.open(0x20U + static_cast<unsigned>(half), 2, group_rank, "tensor parallel");
    nccl.collective(comm, {"Broadcast", 4, "ncclInt8", 0});
    nccl.message(comm, group_rank == 0 ? "Send" : "Recv", 4, 1 - group_rank);
    nccl.close(comm);
  });
  EXPECT_THAT(findings(folder_.path()), IsEmpty());
  EXPECT_THAT(groups(folder_.path(), 3),
              ElementsAre("world 0 1 2 3", "comm 0x21 3 2 (tensor parallel)"));
  EXPECT_THAT(calls(folder_.path(), 2),
              ElementsAre("all_reduce world float32 8>8 begun done",
                          "broadcast comm 0x21 int8 4>4 root 3 begun done",
                          "recv comm 0x21 float32 >4 peer 3 begun done"));
}

TEST_P(Plugin, KeepsWhatAKilledJobHadCalled) {
  EXPECT_THAT(job(2,
                  [](PluginHost& nccl, const PluginHost::Comm& world, int rank) {
                    nccl.collective(world, {});
                    if (rank == 0) nccl.collective(world, {}, PluginHost::Until::begun);
                    ::raise(SIGKILL);
                  }),
              Each(128 + SIGKILL));
  EXPECT_EQ(ending(folder_.path(), 0), "cut");
  EXPECT_THAT(calls(folder_.path(), 0), ElementsAre("all_reduce world float32 8>8 begun done",
                                                    "all_reduce world float32 8>8 begun"));
  EXPECT_THAT(calls(folder_.path(), 1), SizeIs(1));
}

// Waits for the watcher, however long it takes on this machine (run_process ends it after a
// minute).
void wait_until_hung(const std::string& folder, int rank) {
  while (ending(folder, rank) != "hung") ::usleep(1000);
}

TEST_P(Plugin, NamesTheRankThatAHungJobWaitedFor) {
  EXPECT_THAT(run_ranks(3, folder_.path(),
                        [&](int rank) {
                          ::setenv("LOCKSTEP_RECORD_HUNG_AFTER", "0.05", 1);
                          PluginHost nccl(kPlugin, GetParam());
                          const auto world = nccl.open(kProfiledWorld, 3, rank);
                          nccl.collective(world, {});
                          if (rank != 1) {
                            nccl.collective(world, {}, PluginHost::Until::begun);
                            wait_until_hung(folder_.path(), rank);
                          }
                          return ::raise(SIGKILL);
                        }),
              Each(128 + SIGKILL));
  EXPECT_THAT(findings(folder_.path()), ElementsAre("host-stall: 1"));
}

TEST_P(Plugin, NamesTheRankWhoseDeviceStalls) {
  run_ranks(3, folder_.path(), [&](int rank) {
    ::setenv("LOCKSTEP_RECORD_HUNG_AFTER", "0.05", 1);
    PluginHost nccl(kPlugin, GetParam());
    const auto world = nccl.open(kProfiledWorld, 3, rank);
    nccl.collective(world, {});
    nccl.collective(world, {}, rank == 1 ? PluginHost::Until::begun : PluginHost::Until::done);
    nccl.collective(world, {}, rank == 1 ? PluginHost::Until::launched : PluginHost::Until::begun);
    wait_until_hung(folder_.path(), rank);
    return ::raise(SIGKILL);
  });
  EXPECT_THAT(findings(folder_.path()), ElementsAre("device-stall: 1"));
}

TEST_P(Plugin, CompletesWithTheLastChannelOnly) {
  job(1, [](PluginHost& nccl, const PluginHost::Comm&, int) {
    const auto pair = nccl.open(0x5, 1, 0);
    nccl.collective(pair, {"AllReduce", 8, "ncclFloat32", 0, 64});
    nccl.collective(pair, {"AllReduce", 8, "ncclFloat32", 0, 3}, PluginHost::Until::begun);
    nccl.collective(pair, {"AllReduce", 8, "ncclFloat32", 0, 0});  // not told: no channel, no end
  });
  EXPECT_THAT(calls(folder_.path(), 0), ElementsAre("all_reduce comm 0x5 float32 8>8 begun done",
                                                    "all_reduce comm 0x5 float32 8>8 begun",
                                                    "all_reduce comm 0x5 float32 8>8"));
}

TEST_P(Plugin, KeepsWhatItDoesNotKnowByItsName) {
  job(1, [](PluginHost& nccl, const PluginHost::Comm& world, int) {
    nccl.collective(world, {"AllReduceTwice", 8, "ncclFloat4", -7}, PluginHost::Until::launched);
    nccl.collective(world, {nullptr, 8, nullptr, 0}, PluginHost::Until::launched);
    nccl.collective(world, {"Broadcast", SIZE_MAX, nullptr, 99}, PluginHost::Until::launched);
    nccl.message(world, "Recv", 1, 77, PluginHost::Until::launched);
    nccl.message(world, "AllReduce", 1, 0, PluginHost::Until::launched);
  });
  EXPECT_THAT(calls(folder_.path(), 0),
              ElementsAre("AllReduceTwice world 8>8",
                          "broadcast world 9223372036854775807>9223372036854775807",
                          "recv world float32 >1"));
  EXPECT_EQ(ending(folder_.path(), 0), "clean");
}

TEST_P(Plugin, TakesNothingForAnArgumentAndRubbishForAHandle) {
  const std::vector<int> ended =
      job(2, [](PluginHost& nccl, const PluginHost::Comm& world, int rank) {
        if (nccl.start_nothing() != 0) throw std::runtime_error("not what it should say");
        std::uint64_t rubbish = 0x9e3779b97f4a7c15U;
        for (int i = 0; i < 10'000; ++i) {
          rubbish = rubbish * 6364136223846793005U + 1442695040888963407U;
          void* const handle = reinterpret_cast<void*>(rubbish);  // NOLINT
          nccl.stop(handle);
          nccl.record_state(handle);
          if (GetParam() == 4) {
            nccl.stop(nccl.start(nullptr, nccl_profiler::Event4{kKernelCh, handle, rank, {}}));
            nccl.start(world.context, nccl_profiler::Event4{
                                          static_cast<std::uint8_t>(1U << (i % 8)), handle, 0, {}});
          } else {
            nccl.stop(nccl.start(nullptr, nccl_profiler::Event5{kKernelCh, handle, rank, {}}));
            nccl.start(nullptr, nccl_profiler::Event5{std::uint64_t{1} << (i % 64), handle, 0, {}});
          }
        }
        nccl.collective(world, {});
      });
  EXPECT_THAT(ended, Each(0));
  EXPECT_THAT(calls(folder_.path(), 1), ElementsAre("all_reduce world float32 8>8 begun done"));
}

TEST_P(Plugin, ForgetsTheOldestCallsThatNeverComplete) {
  constexpr int kCalls = 3 * CallSlots::kSlots;
  job(1, [](PluginHost& nccl, const PluginHost::Comm& world, int) {
    for (int i = 0; i < kCalls; ++i) nccl.collective(world, {}, PluginHost::Until::begun);
    nccl.collective(world, {});
  });
  const std::vector<std::string> all = calls(folder_.path(), 0);
  EXPECT_EQ(all.back(), "all_reduce world float32 8>8 begun done");
  EXPECT_EQ(ending(folder_.path(), 0), "clean");
}

TEST_P(Plugin, RecordsFromManyThreads) {
  constexpr int kThreads = 6;
  constexpr int kEach = 500;
  EXPECT_THAT(job(2,
                  [](PluginHost& nccl, const PluginHost::Comm& world, int rank) {
                    std::vector<std::thread> threads;
                    for (int t = 0; t < kThreads; ++t) {
                      const auto own = nccl.open(0x100U + static_cast<unsigned>(t), 2, rank);
                      threads.emplace_back([&nccl, own] {
                        for (int i = 0; i < kEach; ++i) nccl.collective(own, {});
                        nccl.close(own);
                      });
                    }
                    for (int i = 0; i < kEach; ++i) nccl.collective(world, {});
                    for (std::thread& thread : threads) thread.join();
                  }),
              Each(0));
  const std::vector<std::string> all = calls(folder_.path(), 0);
  EXPECT_THAT(all, SizeIs((kThreads + 1) * kEach));
  EXPECT_THAT(all, Each(testing::EndsWith("begun done")));
  EXPECT_THAT(findings(folder_.path()), IsEmpty());
  EXPECT_EQ(ending(folder_.path(), 0), "clean");
}

TEST_P(Plugin, ContinuesWhereNcclUnloadsAndLoadsItAgain) {
  run_ranks(1, folder_.path(), [](int) {
    for (unsigned turn = 0; turn < 3; ++turn) {
      PluginHost nccl(kPlugin, GetParam());
      const auto comm = nccl.open(0x10 + turn, 1, 0);
      nccl.collective(comm, {});
      nccl.close(comm);
    }
    return 0;
  });
  EXPECT_THAT(calls(folder_.path(), 0), SizeIs(3));
  EXPECT_EQ(ending(folder_.path(), 0), "clean");
}

TEST_P(Plugin, LeavesCompletionsOutWhenTold) {
  run_process({{"RANK", "0"},
               {"WORLD_SIZE", "2"},
               {"LOCKSTEP_RECORD_DIR", folder_.path()},
               {"LOCKSTEP_RECORD_COMPLETION", "0"}},
              [] {
                PluginHost nccl(kPlugin, GetParam());
                const auto comm = nccl.open(kProfiledWorld, 2, 0);
                nccl.collective(comm, {});
                return nccl.wants(kKernelCh) ? 1 : 0;
              });
  EXPECT_THAT(calls(folder_.path(), 0), ElementsAre("all_reduce world float32 8>8"));
}

TEST_P(Plugin, LetsAJobWithoutAFolderContinue) {
  const std::string blocked = folder_.write("a file", "");
  for (const Variables& variables :
       {Variables{}, Variables{{"LOCKSTEP_RECORD_DIR", blocked + "/below"}}}) {
    const int status = run_process(variables, [] {
      testing::internal::CaptureStderr();
      PluginHost nccl(kPlugin, GetParam());
      for (unsigned id = 1; id < 4; ++id) {
        const auto comm = nccl.open(id, 2, 0);
        if (comm.context != nullptr || nccl.wants_any()) return 1;
        nccl.collective(comm, {});
        nccl.close(comm);
      }
      const std::string said = testing::internal::GetCapturedStderr();
      const bool once = said.starts_with("liblockstep_nccl_profiler: nothing is recorded: ") &&
                        said.find('\n') == said.size() - 1;
      return once ? 0 : 2;
    });
    EXPECT_EQ(status, 0);
  }
}

TEST(PluginOfVersion5, RecordsACallBeforeNcclLaunchesIt) {
  const TempDir folder;
  run_ranks(2, folder.path(), [](int rank) {
    PluginHost nccl(kPlugin, 5);
    const auto world = nccl.open(kProfiledWorld, 2, rank);
    nccl.collective(world, {"AllGather", 4, "ncclFloat16"}, PluginHost::Until::called);
    return 0;
  });
  EXPECT_THAT(calls(folder.path(), 0), ElementsAre("all_gather_into_tensor world float16 4>8"));
}

TEST(PluginOfVersion5, RecordsACapturedCallAtEachRunOfItsGraph) {
  const TempDir folder;
  run_ranks(2, folder.path(), [](int rank) {
    PluginHost nccl(kPlugin, 5);
    const auto world = nccl.open(kProfiledWorld, 2, rank);
    nccl.captured(world, {"AllGather", 4, "ncclFloat16"}, 3);
    return 0;
  });
  EXPECT_THAT(findings(folder.path()), IsEmpty());
  EXPECT_THAT(calls(folder.path(), 1), SizeIs(3));
  EXPECT_THAT(calls(folder.path(), 1), Each("all_gather_into_tensor world float16 4>8 begun done"));
}

TEST(PluginOfVersion5, RecordsNothingTwiceWhereNcclSplitsACall) {
  const TempDir folder;
  run_ranks(1, folder.path(), [](int) {
    PluginHost nccl(kPlugin, 5);
    const auto world = nccl.open(kProfiledWorld, 1, 0);
    nccl_profiler::Event5 call{kCollApi, nullptr, 0, {}};
    call.coll_api = {"Broadcast", 4, "ncclInt8", 0, nullptr, false};
    void* const handle = nccl.start(world.context, call);
    nccl_profiler::Event5 task{kColl, handle, 0, {}};
    task.coll = {{0, "AllGatherV", nullptr, nullptr, 4, 0, "ncclInt8", 1, 1, "", ""}, nullptr};
    const bool first = nccl.start(world.context, task) != nullptr;
    const bool second = nccl.start(world.context, task) != nullptr;
    task.parent = nullptr;
    const bool orphan = nccl.start(world.context, task) != nullptr;
    return first && !second && !orphan ? 0 : 1;
  });
  EXPECT_THAT(calls(folder.path(), 0), ElementsAre("broadcast world int8 4>4 root 0"));
}

// What fork() copies is the parent's record.
TEST(PluginOfVersion5, AChildThatExitsDoesNotEndItsParentsRecord) {
  const TempDir folder;
  run_ranks(1, folder.path(), [](int) -> int {
    PluginHost nccl(kPlugin, 5);
    nccl.collective(nccl.open(kProfiledWorld, 1, 0), {});
    const pid_t child = ::fork();
    if (child == 0) {
      // Under AddressSanitizer the end may wait for a lock that the recorder's thread held when its
      // process forked; an alarm is not copied.
      ::alarm(20);
      std::exit(0);
    }
    ::waitpid(child, nullptr, 0);
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(ending(folder.path(), 0), "cut");
}

}  // namespace
}  // namespace lockstep::runtime
