// What NCCL's RAS says, as text and as JSON.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/evidence/evidence_testing.h"
#include "trace/evidence/evidence.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

std::string text(const std::string& status, const std::string& rest) {
  return "NCCL version 2.28.3 compiled with CUDA 12.8\n"
         "CUDA runtime version 12080, driver version 12080\n\n"
         "Job summary\n===========\n\n"
         "  Nodes  Processes         GPUs  Processes     GPUs\n"
         "(total)   per node  per process    (total)  (total)\n"
         "      2          4            1          8        8\n\n"
         "Communicators... (0.00s)\n=============\n\n"
         "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
         "    #  in group  per comm  per node  per comm  in group\n"
         "    0         1         2         4         8         8   RUNNING  " +
         status + "\n\nErrors\n======\n\n" + rest;
}

const std::string kBehind = text("MISMATCH",
                                 "Warnings\n========\n\n#0-0 (78db921d1c117b4a) MISMATCH\n"
                                 "  Communicator ranks have different AllReduce operation counts\n"
                                 "  7 ranks have launched up to operation 64\n"
                                 "  Rank 7 has launched up to operation 60 -- GPU 3 managed by "
                                 "process 1650386 on node node1\n\n");

const std::string kMissingRanks =
    text("INCOMPLETE",
         "INCOMPLETE\n  Missing communicator data from 1 job process\n"
         "  Process 3748990 on node node1 managing GPU 3\n\n"
         "#0-0 (1bdb83b038775869) INCOMPLETE\n  Missing communicator data from 1 rank\n"
         "  Rank 7 -- GPU 3 managed by process 3748990 on node node1\n\nWarnings\n========\n");

const std::string kJson = R"({
  "nccl_version": "2.28.3", "cuda_runtime_version": 12080, "cuda_driver_version": 12080,
  "timestamp": "2026-01-01 00:00:00", "communicators_count": 1, "communicators": [
    {"hash": "0x78db", "secondary_hash": "0x1:0x2", "size": 4, "ranks_count": 3,
     "missing_ranks_count": 1, "ranks": [
      {"rank": 0, "host": "10.0.0.1", "pid": 100, "cuda_dev": 0, "nvml_dev": 0,
       "status": {"init_state": 0, "async_error": 0, "finalize_called": false,
                  "destroy_flag": false, "abort_flag": false},
       "collective_counts": {"Broadcast": 2, "AllReduce": 64}},
      {"rank": 1, "host": "10.0.0.1", "pid": 101, "cuda_dev": 1, "nvml_dev": 1,
       "status": {"init_state": 0, "async_error": 0, "finalize_called": false,
                  "destroy_flag": false, "abort_flag": false},
       "collective_counts": {"Broadcast": 2, "AllReduce": 60}},
      {"rank": 2, "host": "10.0.0.1", "pid": 102, "cuda_dev": 2, "nvml_dev": 2,
       "status": {"init_state": 0, "async_error": 6, "finalize_called": false,
                  "destroy_flag": false, "abort_flag": true},
       "collective_counts": {"Broadcast": 2, "AllReduce": 64}}],
     "missing_ranks": [
      {"rank": 3, "host": "10.0.0.1", "pid": 103, "cuda_dev": 3, "nvml_dev": 3,
       "status": {"unresponsive": true, "considered_dead": true}}]}],
  "ras": {"collection_time_sec": 0.001, "timeouts_count": 0}})";

TEST(Ras, WhoIsBehindInWhat) {
  const FileEvidence evidence = ras_source().read({kBehind, "ras.txt", std::nullopt});
  EXPECT_EQ(evidence.world_size, 8);
  EXPECT_EQ(
      notes_in_words(evidence),
      "rank 7 pid 1650386 on node1 GPU 3 RAS @27: MISMATCH, communicator 78db921d1c117b4a: "
      "Communicator "
      "ranks have different AllReduce operation counts; 7 ranks have launched up to operation "
      "64; this rank has launched up to operation 60");
}

// Behind the majority, behind a rank that is named by itself, and in another communicator: no more
// than the ranks of one subject are compared.
TEST(Ras, HowManyCallsARankIsBehind) {
  const auto behind = [](const std::string& bytes) {
    std::vector<std::int64_t> out;
    for (const RankNote& note : ras_source().read({bytes, "ras", std::nullopt}).notes)
      out.push_back(note.calls_behind);
    return out;
  };
  EXPECT_THAT(behind(kBehind), testing::ElementsAre(4));
  EXPECT_THAT(behind(kJson), testing::ElementsAre(4, 0, 0));
  EXPECT_THAT(
      behind(text(
          "MISMATCH",
          "#0-0 (78db921d1c117b4a) MISMATCH\n"
          "  Communicator ranks have different AllReduce operation counts\n"
          "  Rank 0 has launched up to operation 60 -- GPU 0 managed by process 1 on node a\n"
          "  Rank 1 has launched up to operation 64 -- GPU 1 managed by process 2 on node a\n"
          "  Communicator ranks have different Broadcast operation counts\n"
          "  Rank 0 has launched up to operation 9 -- GPU 0 managed by process 1 on node a\n"
          "  Rank 1 has launched up to operation 8 -- GPU 1 managed by process 2 on node a\n"
          "#1-0 (1bdb83b038775869) MISMATCH\n"
          "  Communicator ranks have different AllReduce operation counts\n"
          "  Rank 0 has launched up to operation 5 -- GPU 0 managed by process 1 on node a\n"
          "  Rank 1 has launched up to operation 5 -- GPU 1 managed by process 2 on node a\n")),
      testing::ElementsAre(4, 0, 0, 1, 0, 0));
}

TEST(Ras, WhoDoesNotAnswer) {
  const std::string notes = notes_of(ras_source(), kMissingRanks);
  EXPECT_THAT(notes, HasSubstr("some rank pid 3748990 on node1 GPU 3 RAS"));
  EXPECT_THAT(notes, HasSubstr("rank 7 pid 3748990 on node1 GPU 3 RAS"));
}

// "GPU 0 (NVML 5)": CUDA_VISIBLE_DEVICES shows the process one GPU.
TEST(Ras, TheGpuIsTheOneThatNvidiaSmiShows) {
  const auto one = [](const std::string& gpus) {
    return notes_of(ras_source(),
                    text("INCOMPLETE", "INCOMPLETE\n  Process 7 on node node1 managing " + gpus));
  };
  EXPECT_THAT(one("GPU 0 (NVML 5)"), HasSubstr("on node1 GPU 5 RAS"));
  EXPECT_THAT(one("GPUs 0,1"), HasSubstr("on node1 RAS"));
}

TEST(Ras, TheListOfTheFirstVersions) {
  EXPECT_THAT(notes_of(ras_source(), text("INCOMPLETE",
                                          "#0-0 (cf264af53edbe986) INCOMPLETE\n"
                                          "  Missing communicator data from 3 ranks\n"
                                          "  The missing ranks: 1,4-5\n")),
              HasSubstr("rank 5 RAS"));
}

TEST(Ras, AHealthyJobHasNoNotes) { EXPECT_EQ(notes_of(ras_source(), text("OK", "")), ""); }

TEST(Ras, Json) {
  EXPECT_EQ(notes_of(ras_source(), kJson),
            "rank 1 pid 101 on 10.0.0.1 GPU 1 RAS @0: communicator 0x78db: launched 60 AllReduce, "
            "and others up to "
            "64\n"
            "rank 2 pid 102 on 10.0.0.1 GPU 2 RAS @0: communicator 0x78db: asynchronous error 6; "
            "aborted\n"
            "rank 3 pid 103 on 10.0.0.1 GPU 3 RAS @0: communicator 0x78db: considered dead: not to "
            "be reached over "
            "RAS's network");
}

TEST(Ras, SurvivesDamage) {
  survives_damage(ras_source(), kBehind);
  survives_damage(ras_source(), kMissingRanks);
  survives_damage(ras_source(), kJson);
}

TEST(Ras, LinesMayHaveLabels) {
  EXPECT_EQ(notes_of(ras_source(), labelled("[pod/job-master-0/pytorch] ", kBehind)),
            notes_of(ras_source(), kBehind));
}

}  // namespace
}  // namespace lockstep::trace
