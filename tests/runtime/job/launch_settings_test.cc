// Which rank a worker is: options over torchrun over Slurm over MPI over a single process.
#include "runtime/job/launch_settings.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<LaunchSettings> settings(const LaunchOptions& options, const Variables& variables) {
  return find_launch_settings(options, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

LaunchOptions with_store(std::optional<int> rank = {}, std::optional<int> world_size = {}) {
  return {rank, world_size, "store", ""};
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

TEST(LaunchSettings, TakesItsOwnVariables) {
  EXPECT_FALSE(settings({}, {})->share_gpus);
  EXPECT_TRUE(settings({}, {{"LOCKSTEP_SHARE_GPUS", "1"}})->share_gpus);
  EXPECT_FALSE(settings({}, {{"LOCKSTEP_SHARE_GPUS", "0"}})->share_gpus);
  EXPECT_THAT(settings({}, {{"LOCKSTEP_SHARE_GPUS", "yes"}}).error().message,
              HasSubstr("LOCKSTEP_SHARE_GPUS is yes"));
  EXPECT_EQ(settings({}, {})->queued, QueuedCalls::no);
  EXPECT_EQ(settings({}, {{"LOCKSTEP_QUEUED_CALLS", "per-group"}})->queued, QueuedCalls::per_group);
  EXPECT_EQ(settings({}, {{"LOCKSTEP_QUEUED_CALLS", "one-at-a-time"}})->queued,
            QueuedCalls::one_at_a_time);
  EXPECT_THAT(settings({}, {{"LOCKSTEP_QUEUED_CALLS", "1"}}).error().fix, HasSubstr("per-group"));
}

TEST(LaunchSettings, ASingleProcessNeedsNothing) {
  const auto found = settings({}, {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->world_size, 1);
  EXPECT_EQ(found->launcher, "a single process");
}

TEST(LaunchSettings, OptionsSayItAll) {
  const auto found = settings(with_store(1, 2), {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->world_size, 2);
  EXPECT_EQ(found->store_file, "store");
}

TEST(LaunchSettings, UnderTorchrunTheAgentServesTheStore) {
  const auto found = settings({}, kTorchrun);
  ASSERT_TRUE(found) << found.error().str();
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->master_host, "node0");
  EXPECT_EQ(found->master_port, 29500);
  EXPECT_TRUE(found->store_is_served);
}

TEST(LaunchSettings, TorchrunBelowSlurmIsTorchrun) {
  Variables both = kTorchrun;
  both.insert({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}});
  EXPECT_EQ(settings({}, both)->rank, 5);
}

TEST(LaunchSettings, SlurmAndBothMpis) {
  const auto slurm = settings(
      with_store(), {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->rank, 3);
  EXPECT_EQ(slurm->local_rank, 1);
  EXPECT_EQ(slurm->launcher, "Slurm");
  EXPECT_EQ(settings(with_store(), {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})->rank, 1);
  EXPECT_EQ(settings(with_store(), {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}})
                ->world_size,
            3);
}

TEST(LaunchSettings, ContradictionsShowBothValues) {
  const auto found = settings(with_store(2, {}), kTorchrun);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, AllOf(HasSubstr("--rank is 2"), HasSubstr("RANK is 5")));
  EXPECT_TRUE(settings(with_store(5, 8), kTorchrun));
  EXPECT_FALSE(settings({1, 2, "store", "host:1"}, {}));
}

TEST(LaunchSettings, WhatMakesNoSenseIsAnError) {
  EXPECT_FALSE(settings(with_store(2, 2), {}));
  EXPECT_FALSE(settings({0, 2, "", ""}, {}));  // no place to meet
  EXPECT_FALSE(settings({0, 2, "", "host"}, {}));
  EXPECT_FALSE(settings({0, 2, "", "host:0"}, {}));
  EXPECT_FALSE(settings({0, 2, "", "host:66000"}, {}));
  EXPECT_FALSE(settings(with_store(), {{"RANK", "x"}, {"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(settings(with_store(), {{"RANK", "-1"}, {"WORLD_SIZE", "2"}}));
  const auto master = settings({0, 2, "", "10.0.0.1:4711"}, {});
  ASSERT_TRUE(master);
  EXPECT_EQ(master->master_host, "10.0.0.1");
  EXPECT_EQ(master->master_port, 4711);
  EXPECT_FALSE(master->store_is_served);
}

TEST(LaunchSettings, AnAgentsStoreKeepsWhatAnEarlierAttemptSaid) {
  Variables again = kTorchrun;
  again["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_EQ(settings({}, again)->attempt, 2);
  EXPECT_EQ(settings({}, kTorchrun)->attempt, 0);
  again["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // rank 0 serves a new one
  EXPECT_EQ(settings({}, again)->attempt, 0);
}

}  // namespace
}  // namespace lockstep::runtime
