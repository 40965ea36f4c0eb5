// Ranks on two "machines": network namespaces that a pair of virtual Ethernet devices joins. The
// namespaces have no names; the kernel removes them, and their devices, when the last process in
// them has ended, however the test ends.
#include <array>
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/runtime/launch/launch_testing.h"
#include "tests/runtime/worker/real_ranks.h"
#include "verify/verify.h"

namespace lockstep::runtime {
namespace {

using launch_testing::eventually;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kDevice = "lockstep0";
constexpr std::array kAddresses = {"10.77.0.1", "10.77.0.2"};
constexpr int kPort = 29500;  // nobody else is in these namespaces

class TwoMachines : public RealRanks {
 protected:
  void SetUp() override {
    ip_ = program_named("ip");
    unshare_ = program_named("unshare");
    nsenter_ = program_named("nsenter");
    hostname_ = program_named("hostname");
    if (ip_.empty() || unshare_.empty() || nsenter_.empty() || hostname_.empty()) {
      GTEST_SKIP()
          << "NOT TESTED: needs ip (Debian package iproute2), unshare, nsenter and hostname";
    }
    if (!run({unshare_, "--net", "--uts", "true"})) {
      GTEST_SKIP() << "NOT TESTED: network namespaces need root (CAP_NET_ADMIN)";
    }
    for (std::size_t m = 0; m < kAddresses.size(); ++m) machines_.push_back(start_machine());
    ASSERT_TRUE(run({ip_, "link", "add", kDevice, "netns", pid(0), "type", "veth", "peer", "name",
                     kDevice, "netns", pid(1)}))
        << log("network");
    for (std::size_t m = 0; m < kAddresses.size(); ++m) {
      ASSERT_TRUE(run_on(m, {"addr", "add", std::string(kAddresses[m]) + "/24", "dev", kDevice}) &&
                  run_on(m, {"link", "set", kDevice, "up"}) &&
                  run_on(m, {"link", "set", "lo", "up"}))
          << log("network");
    }
  }

  // Runs a program to its end; false where it failed.
  bool run(const std::vector<std::string>& words) {
    Result<Process> process = Process::spawn(words, folder_.file("network.log"));
    return process && end_of(*process).success();
  }
  // ip(8), on that machine.
  bool run_on(std::size_t machine, const std::vector<std::string>& words) {
    std::vector<std::string> all = entering(machine);
    all.push_back(ip_);
    all.insert(all.end(), words.begin(), words.end());
    return run(all);
  }

  // A name that is an address resolves to it.
  bool name_machine(std::size_t machine, const std::string& name) {
    std::vector<std::string> words = entering(machine);
    words.insert(words.end(), {hostname_, name});
    return run(words);
  }
  // Before a command that is to run on that machine.
  std::vector<std::string> entering(std::size_t machine) const {
    return {nsenter_, "--net", "--uts", "--target", pid(machine)};
  }

  Process start_rank(std::size_t rank) {
    std::vector<std::string> before = entering(rank);
    before.insert(before.end(), {"/usr/bin/env", std::string("GLOO_SOCKET_IFNAME=") + kDevice});
    return start_as_torchrun(static_cast<int>(rank), kAddresses[0], kPort, before);
  }
  std::vector<Process> start_both() {
    std::vector<Process> ranks;
    for (std::size_t rank = 0; rank < kAddresses.size(); ++rank) ranks.push_back(start_rank(rank));
    return ranks;
  }

 private:
  // A process that does nothing, in namespaces of its own, which live as long as it.
  Process start_machine() {
    const auto ours = std::filesystem::read_symlink("/proc/self/ns/net");
    Result<Process> machine =
        Process::spawn({unshare_, "--net", "--uts", "sleep", "1000"}, folder_.file("network.log"));
    EXPECT_TRUE(machine);
    EXPECT_TRUE(launch_testing::eventually([&] {
      std::error_code gone;
      const auto theirs = std::filesystem::read_symlink(
          "/proc/" + std::to_string(machine->pid()) + "/ns/net", gone);
      return !gone && theirs != ours;
    }));
    return std::move(*machine);
  }
  std::string pid(std::size_t machine) const { return std::to_string(machines_[machine].pid()); }

  std::string ip_, unshare_, nsenter_, hostname_;
  std::vector<Process> machines_;
};

TEST_F(TwoMachines, TrainTogetherOverTheLinkBetweenThem) {
  write_job({.strategy = "ddp", .steps = 3});
  std::vector<Process> ranks = start_both();
  EXPECT_TRUE(end_of(ranks[0]).success()) << log("rank_0");
  EXPECT_TRUE(end_of(ranks[1]).success()) << log("rank_1");
  const trace::Run run = recorded();
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(verify::verify(run).verdict, verify::Verdict::clean);
}

// A shared folder is not a sign of a shared machine. Nobody names the interface: it is that of the
// machine's name.
TEST_F(TwoMachines, ThatMeetInAFileDoNotTakeItForOneMachine) {
  write_job({.strategy = "ddp", .steps = 3});
  std::vector<Process> ranks;
  for (std::size_t rank = 0; rank < kAddresses.size(); ++rank) {
    ASSERT_TRUE(name_machine(rank, kAddresses[rank])) << log("network");
    ranks.push_back(start(
        "rank_" + std::to_string(rank), entering(rank),
        {"--rank", std::to_string(rank), "--world-size", "2", "--store", folder_.file("store")}));
  }
  EXPECT_TRUE(end_of(ranks[0]).success()) << log("rank_0");
  EXPECT_TRUE(end_of(ranks[1]).success()) << log("rank_1");
  EXPECT_EQ(verify::verify(recorded()).verdict, verify::Verdict::clean);
}

// No packet says that a link is gone: each rank finds out by itself.
class APulledLink : public TwoMachines, public ::testing::WithParamInterface<const char*> {};

TEST_P(APulledLink, EndsBothRanksAndIsNotBlamedOnTheirProgram) {
  if (IsSkipped()) return;
  write_job({.strategy = GetParam(), .steps = kStepsWithoutEnd, .hang_after_s = 2});
  std::vector<Process> ranks = start_both();
  ASSERT_TRUE(both_train()) << log("rank_0") << log("rank_1");
  ASSERT_TRUE(run_on(0, {"link", "set", kDevice, "down"})) << log("network");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(to_string(end_of(ranks[rank])), "exited with status 5");
    EXPECT_THAT(log("rank_" + std::to_string(rank)), HasSubstr("gave up: nothing moved for 2 s"));
  }
  const trace::Run run = recorded();
  ASSERT_THAT(run.ranks, SizeIs(2));
  for (const trace::RankTrace& trace : run.ranks) {
    EXPECT_EQ(trace.end, trace::End::hung);
    EXPECT_GE(trace.steps.size(), 2U);
  }
  const verify::Report report = verify::verify(run);
  ASSERT_EQ(report.verdict, verify::Verdict::findings);
  for (const verify::Finding& finding : report.findings) {
    EXPECT_EQ(finding.rule, verify::RuleId::device_stall) << finding.message;
    EXPECT_EQ(finding.certainty, verify::Certainty::observed);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, APulledLink, ::testing::Values("ddp", "fsdp", "pipeline"));

}  // namespace
}  // namespace lockstep::runtime
