// `lockstep simulate trace` on profiles of torch.profiler: what their kernels and calls took makes
// a program, which moves when the calls, or a rank's work, take another time.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::profiles {
namespace {

using Json = nlohmann::ordered_json;

// A profile of a rank. Times are microseconds.
class Profile {
 public:
  explicit Profile(int rank, int world = 2) : rank_(rank), world_(world) {}

  Profile& step(int n, int begin, int end) {
    return event("user_annotation", "ProfilerStep#" + std::to_string(n), begin, end, {});
  }
  Profile& runtime(const std::string& name, int begin, int end, int correlation = 0) {
    return event("cuda_runtime", name, begin, end, {{"correlation", correlation}});
  }
  Profile& kernel(int begin, int end, int stream, int correlation, const std::string& name = "gemm",
                  const std::string& category = "kernel") {
    return event(category, name, begin, end, {{"correlation", correlation}, {"stream", stream}});
  }
  // An all-reduce of 1,000 floats: its call, and its kernel in stream 20.
  Profile& all_reduce(int begin, int end, int kernel_begin, int kernel_end, int id) {
    Json args = {{"Collective name", "allreduce"},
                 {"In msg nelems", 1000},
                 {"Out msg nelems", 1000},
                 {"dtype", "Float"},
                 {"Process Group Name", "0"},
                 {"Process Group Description", "default_pg"},
                 {"Process Group Ranks", "[0, 1]"},
                 {"Group size", 2},
                 {"External id", id}};
    event("cpu_op", "record_param_comms", begin, end, args);
    args["stream"] = 20;
    args["correlation"] = id;
    return event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL()", kernel_begin, kernel_end,
                 args);
  }
  std::string str() const {
    Json out = {{"schemaVersion", 1},
                {"distributedInfo", {{"backend", "nccl"}, {"rank", rank_}, {"world_size", world_}}},
                {"traceEvents", events_}};
    return out.dump();
  }

 private:
  Profile& event(const std::string& category, const std::string& name, int begin, int end,
                 Json args) {
    events_.push_back({{"ph", "X"},
                       {"cat", category},
                       {"name", name},
                       {"pid", 1},
                       {"tid", 1},
                       {"ts", begin},
                       {"dur", end - begin},
                       {"args", std::move(args)}});
    return *this;
  }

  int rank_, world_;
  Json events_ = Json::array();
};

struct Simulated {
  int status = 0;
  Json json;
  std::string text, error;
  long long micros() const { return json["time_ps"].get<long long>() / 1'000'000; }
};

Simulated simulate(const std::vector<Profile>& profiles, const std::vector<std::string>& options) {
  const TempDir folder;
  for (std::size_t r = 0; r < profiles.size(); ++r)
    folder.write("rank_" + std::to_string(r) + ".json", profiles[r].str());
  const std::string json = folder.file("out.txt");
  std::vector<std::string> arguments = {"simulate", "trace", folder.path(), "--output",
                                        "json=" + json};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const cli::Outcome outcome = cli::run_lockstep(arguments);
  cli::expect_fits_a_terminal(outcome.out);
  if (outcome.status == 2) return {2, {}, outcome.out, outcome.err};
  return {outcome.status, Json::parse(TempDir::read(json)), outcome.out, outcome.err};
}

// The host queues a kernel of 100 us, a call, a second kernel of 100 us that overlaps the call, and
// a third one after the call; then it waits for that one. `late`: how much later the call begins.
Profile usual(int rank, int late = 0) {
  Profile out(rank);
  out.step(1, 0, 520)
      .runtime("cudaLaunchKernel", 10, 20, 1)
      .kernel(20, 120, 7, 1)
      .runtime("cudaLaunchKernelExC", 32, 40, 2)
      .all_reduce(30, 40, 120 + late, 320, 2)
      .runtime("cudaLaunchKernel", 50, 60, 3)
      .kernel(120, 220, 7, 3)
      .runtime("cudaStreamWaitEvent", 62, 63)
      .runtime("cudaLaunchKernel", 70, 80, 4)
      .kernel(320, 500, 7, 4)
      .runtime("cudaStreamSynchronize", 90, 510);
  return out;
}

TEST(SimulateProfile, WithItsOwnCallsARecordingTakesWhatItTook) {
  const Simulated s = simulate({usual(0), usual(1)}, {"--recorded-calls"});
  ASSERT_EQ(s.status, 0) << s.error;
  EXPECT_EQ(s.micros(), 520);
  EXPECT_EQ(s.json["recorded_ps"], 520'000'000);
  EXPECT_EQ(s.json["computes"], true);
  EXPECT_NE(s.text.find("recorded 520 us (+0.0 %)"), std::string::npos) << s.text;
}

TEST(SimulateProfile, WhatDependsOnACallMovesWithIt) {
  // The call lasts 200 us. Four times as long: all that comes after it is 600 us later.
  const std::vector<Profile> job = {usual(0), usual(1)};
  EXPECT_EQ(simulate(job, {"--recorded-calls", "--scale-calls", "4"}).micros(), 520 + 600);
  // Without calls, the third kernel follows the second: from 220 instead of 320.
  EXPECT_EQ(simulate(job, {"--recorded-calls", "--scale-calls", "0"}).micros(), 520 - 100);
  // 2 (a + 2 KB/b): 4,000 bytes over two ranks at 10 MB/s take 402 us.
  EXPECT_EQ(simulate(job, {"--alpha", "1us", "--beta", "10MB/s"}).micros(), 520 + 202);
}

TEST(SimulateProfile, ACallTakesWhatItTookForTheMemberThatCameLast) {
  // Rank 0 was in it for 200 us, of which it waited 150 for rank 1.
  const std::vector<Profile> job = {usual(0), usual(1, 150)};
  const Simulated s = simulate(job, {"--recorded-calls"});
  // Nothing in the recording says why rank 1 came late, so it does not.
  EXPECT_EQ(s.micros(), 520 - 100) << s.text;
}

TEST(SimulateProfile, ASlowRankMakesTheOthersWait) {
  const Simulated s = simulate({usual(0), usual(1)}, {"--recorded-calls", "--slow", "1=2"});
  // Rank 1: kernels of 200, 200 and 360 us; its call begins at 220 and ends at 420.
  EXPECT_EQ(s.json["ranks"][1]["time_ps"],
            20 + 1'000'000LL * (20 + 200 + 200 + 360) + 20'000'000 - 20)
      << s.text;
  // Rank 0 waits for the call, 100 us longer than it did.
  EXPECT_EQ(s.json["ranks"][0]["time_ps"], 1'000'000LL * (520 + 100));
}

TEST(SimulateProfile, RanksThatBeganLaterAreComparedByTheEndsOfCalls) {
  // Rank 1's clock is 1 s ahead, and its profile begins 100 us later than rank 0's.
  const int ahead = 1'000'000;
  Profile late(1);
  late.step(1, ahead + 100, ahead + 520)
      .runtime("cudaLaunchKernel", ahead + 110, ahead + 120, 1)
      .kernel(ahead + 120, ahead + 220, 7, 1)
      .runtime("cudaLaunchKernelExC", ahead + 132, ahead + 140, 2)
      .all_reduce(ahead + 130, ahead + 140, ahead + 220, ahead + 320, 2);
  const Simulated s = simulate({usual(0), late}, {"--recorded-calls"});
  EXPECT_EQ(s.micros(), 520) << s.text;
  EXPECT_EQ(s.json["ranks"][1]["recorded_ps"], 520'000'000);
}

TEST(SimulateProfile, OneRankOfAJobIsReplayedWithItsCallsAsRecorded) {
  const Simulated s = simulate({usual(0)}, {"--recorded-calls"});
  ASSERT_EQ(s.status, 0) << s.error;
  EXPECT_EQ(s.micros(), 520);
  EXPECT_EQ(s.json["ranks"].size(), 1U);
  EXPECT_NE(s.text.find("No trace was given of rank 1"), std::string::npos) << s.text;
  // With another network, the others' part is not known.
  const Simulated refused = simulate({usual(0)}, {"--alpha", "1us", "--beta", "1GB/s"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.error.find("rank 1 left no trace"), std::string::npos) << refused.error;
}

TEST(SimulateProfile, ACopyToTheHostMakesItWait) {
  Profile out(0, 1);
  out.step(1, 0, 300)
      .runtime("cudaLaunchKernel", 10, 20, 1)
      .kernel(20, 120, 7, 1)
      .runtime("cudaMemcpyAsync", 30, 150, 2)
      .kernel(121, 140, 7, 2, "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy")
      .runtime("cudaLaunchKernel", 160, 170, 3)
      .kernel(172, 290, 7, 3)
      .runtime("cudaDeviceSynchronize", 180, 295);
  const Simulated s = simulate({out}, {"--recorded-calls"});
  EXPECT_EQ(s.micros(), 300) << s.text;
  // Twice as fast a GPU: 101 + 19 + 1 and 118 + 2 us of its work become half, the host's stays.
  const Simulated fast = simulate({out}, {"--recorded-calls", "--slow", "0=0.5"});
  EXPECT_EQ(fast.json["time_ps"], 1'000'000LL * 300 - 500'000LL * (100 + 20 + 120)) << fast.text;
}

TEST(SimulateProfile, SaysWhereAProfileShowsNoKernels) {
  Profile calls(0), peer(1);
  for (Profile* one : {&calls, &peer}) one->step(1, 0, 400).all_reduce(30, 40, 120, 320, 2);
  const Simulated s = simulate({calls, peer}, {"--alpha", "1us", "--beta", "1GB/s"});
  EXPECT_EQ(s.json["computes"], false);
  EXPECT_NE(s.text.find("hold no computing"), std::string::npos) << s.text;
  const Simulated half = simulate({usual(0), peer}, {"--recorded-calls"});
  EXPECT_NE(half.text.find("No work was recorded of rank 1"), std::string::npos) << half.text;
}

// A report of Nsight Systems: the second graph's kernels were not recorded.
TEST(SimulateProfile, SaysWhichCudaGraphsHaveNoKernels) {
  const auto launch = [](int begin, int correlation) {
    return R"({"Type":48,"TraceProcessEvent":{"startNs":")" + std::to_string(begin) +
           R"(","endNs":")" + std::to_string(begin + 10) + R"(","correlationId":)" +
           std::to_string(correlation) + R"(,"eventClass":1,"name":"1","globalTid":"117440519"}})" +
           "\n";
  };
  const TempDir folder;
  const std::string report = folder.write(
      "rank_0.jsonl",
      R"({"data":["[Unknown]","cudaGraphLaunch_v10000","gemm"]})"
      "\n" +
          launch(0, 1) +
          R"({"Type":79,"CudaEvent":{"startNs":"20","endNs":"90","correlationId":1,"deviceId":0,)"
          R"("streamId":"7","eventClass":3,"globalPid":"117440512",)"
          R"("kernel":{"demangledName":"2","shortName":"2"}}})"
          "\n" +
          launch(100, 2));
  const cli::Outcome outcome = cli::run_lockstep({"simulate", "trace", report, "--recorded-calls"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(
      outcome.out.find("Rank 0: 1 record could not be used in full: 1 launch of a CUDA graph left"),
      std::string::npos)
      << outcome.out;
}

TEST(SimulateProfile, RefusesOptionsThatContradictEachOther) {
  const std::vector<Profile> job = {usual(0), usual(1)};
  const auto why = [&](const std::vector<std::string>& options) {
    const Simulated s = simulate(job, options);
    EXPECT_EQ(s.status, 2);
    return s.error;
  };
  EXPECT_NE(why({"--recorded-calls", "--machine", "dgx-h100"})
                .find("--machine cannot be combined with --recorded-calls"),
            std::string::npos);
  EXPECT_NE(why({"--alpha", "1us", "--beta", "1GB/s", "--scale-calls", "2"})
                .find("--scale-calls without --recorded-calls"),
            std::string::npos);
  EXPECT_NE(why({"--recorded-calls", "--slow", "2=2"}).find("there is no rank 2"),
            std::string::npos);
  for (const char* slow : {"1", "1=", "=2", "2-1=2", "1=nan", "1=0", "x=2"})
    EXPECT_NE(why({"--recorded-calls", "--slow", slow}).find("is not RANKS=FACTOR"),
              std::string::npos)
        << slow;
}

}  // namespace
}  // namespace lockstep::profiles
