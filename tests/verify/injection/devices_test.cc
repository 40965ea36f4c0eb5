// The executor with devices does what NCCL does: enqueueing returns, streams run in order, waits
// order streams and block nobody, and kernels may keep each other from running.
#include "tests/verify/injection/devices.h"

#include <gtest/gtest.h>

#include "tests/verify/injection/meshes/mesh_trial.h"
#include "tests/verify/injection/program_writer.h"

namespace lockstep::verify::injection {
namespace {

using State = Entry::State;

CallSpec sum(const std::string& group, bool async) {
  CallSpec c = all_reduce(group, 4, {});
  c.async = async;
  return c;
}

// Two ranks in the groups a and b.
class TwoDevices : public testing::Test {
 protected:
  TwoDevices() {
    job_.groups = {{"a", {0, 1}}, {"b", {0, 1}}};
    job_.ranks.resize(2);
  }

  Writer rank(int r) { return Writer(job_.ranks[static_cast<std::size_t>(r)]); }

  DeviceOutcome run(const DeviceBehaviour& behaviour = {}) {
    Random random(1);
    return execute_on_devices(job_, behaviour, random);
  }

  static std::vector<State> states(const DeviceOutcome& outcome, std::size_t rank) {
    std::vector<State> out;
    for (const Entry& e : outcome.ranks[rank].entries) out.push_back(e.state);
    return out;
  }

  Job job_;
};

TEST_F(TwoDevices, StreamsOfTwoGroupsDoNotWaitForEachOther) {
  Writer w0 = rank(0);
  Writer w1 = rank(1);
  w0.issue(sum("a", true));  // rank 1 leaves it out
  w0.issue(sum("b", true));
  w1.issue(sum("b", true));
  const DeviceOutcome outcome = run();
  EXPECT_TRUE(outcome.hung);
  EXPECT_EQ(states(outcome, 0), (std::vector{State::started, State::completed}));
  EXPECT_EQ(states(outcome, 1), (std::vector{State::completed}));
  EXPECT_EQ(outcome.ranks[0].end, "hung");
  EXPECT_EQ(outcome.ranks[1].end, "clean");
}

TEST_F(TwoDevices, WaitsOrderTheStreams) {
  Writer w0 = rank(0);
  Writer w1 = rank(1);
  w0.issue(sum("a", false));
  w0.issue(sum("b", true));
  w1.issue(sum("b", true));
  const DeviceOutcome outcome = run();
  // The host of rank 0 went on to b, which waits on the device.
  EXPECT_EQ(states(outcome, 0), (std::vector{State::started, State::scheduled}));
  EXPECT_EQ(states(outcome, 1), (std::vector{State::started}));
}

TEST_F(TwoDevices, KernelsMayKeepEachOtherFromRunning) {
  Writer w0 = rank(0);
  Writer w1 = rank(1);
  w0.issue(sum("a", true));
  w0.issue(sum("b", true));
  w1.issue(sum("b", true));
  EXPECT_EQ(states(run({.one_at_a_time = true}), 0),
            (std::vector{State::started, State::scheduled}));
}

TEST_F(TwoDevices, TheHostStopsWhereItReads) {
  for (const bool syncs : {true, false}) {
    job_.ranks = {{}, {}};
    Writer w0 = rank(0);
    w0.issue(sum("a", false));
    w0.end_step();
    w0.issue(sum("b", true));
    EXPECT_EQ(run({.syncs_steps = syncs}).ranks[0].entries.size(), syncs ? 1U : 2U);
  }
}

TEST_F(TwoDevices, ACallOfTheNextStepMatchesOneThatWasLeftOut) {
  Writer w0 = rank(0);
  Writer w1 = rank(1);
  for (int step = 0; step < 2; ++step) {
    w0.step = w1.step = step;
    w0.issue(sum("a", false));
    if (step > 0) w1.issue(sum("a", false));
  }
  const DeviceOutcome outcome = run();
  EXPECT_EQ(states(outcome, 0), (std::vector{State::completed, State::started}));
  EXPECT_EQ(states(outcome, 1), (std::vector{State::completed}));
}

TEST_F(TwoDevices, ABatchEndsWithItsLastMessage) {
  Writer w0 = rank(0);
  Writer w1 = rank(1);
  const auto message = [](const char* op, int peer) {
    CallSpec c = transfer(op, "a", peer, kUnset, 8);
    c.async = true;
    c.coalesced = 0;
    return c;
  };
  w0.issue(message("send", 1));
  w0.issue(message("recv", 1));
  w1.issue(message("recv", 0));  // its send is left out
  const DeviceOutcome outcome = run();
  EXPECT_EQ(states(outcome, 0), (std::vector{State::started, State::started}));
  EXPECT_EQ(states(outcome, 1), (std::vector{State::completed}));
}

TEST_F(TwoDevices, StallAsTheyAreTold) {
  struct {
    Stall stall;
    State there, elsewhere;
  } const kCases[] = {{Stall::never_starts, State::scheduled, State::started},
                      {Stall::never_completes, State::started, State::completed},
                      {Stall::link, State::started, State::started}};
  for (const auto& c : kCases) {
    job_.ranks = {{}, {}};
    CallSpec stalled = sum("a", true);
    stalled.stall = c.stall;
    rank(0).issue(stalled);
    rank(1).issue(c.stall == Stall::link ? stalled : sum("a", true));
    const DeviceOutcome outcome = run();
    EXPECT_EQ(states(outcome, 0), (std::vector{c.there}));
    EXPECT_EQ(states(outcome, 1), (std::vector{c.elsewhere}));
  }
}

TEST(MeshCases, AreTheSameForOneSeed) {
  for (const MeshFault fault : {MeshFault::left_out, MeshFault::straggler, MeshFault::lone_send}) {
    const auto a = make_mesh_case(fault, 3);
    const auto b = make_mesh_case(fault, 3);
    ASSERT_TRUE(a && b);
    ASSERT_EQ(a->views.size(), b->views.size());
    for (std::size_t i = 0; i < a->views.size(); ++i) {
      EXPECT_EQ(a->views[i].files, b->views[i].files);
    }
  }
}

// Every file that a case leaves is one that the readers take.
TEST(MeshCases, AreReadWhole) {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    const auto made = make_mesh_case(MeshFault::healthy, seed);
    ASSERT_TRUE(made);
    ASSERT_EQ(made->views.size(), static_cast<std::size_t>(kMeshForms));
    for (const MeshView& view : made->views) {
      const auto run = read_files(view.files);
      EXPECT_TRUE(run.unreadable.empty()) << to_string(view.form);
      for (const trace::RankTrace& trace : run.ranks) EXPECT_EQ(trace.damaged_count, 0U);
    }
  }
}

}  // namespace
}  // namespace lockstep::verify::injection
