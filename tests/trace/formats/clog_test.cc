// torchcomms' collective log.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

std::string header(int rank, int world) {
  return fmt::format(
      "V|1|base_timestamp=1714234567.890\nnew_comm|comm=main|rank={}|world_size={}\n", rank, world);
}

const std::string kSignatures =
    "C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=main\n"
    "C2|sig|barrier|async_op=f|comm=main\n";

std::string events(int calls, bool last_open) {
  std::string out;
  for (int c = 0; c < calls; ++c) {
    const std::string t = std::to_string(c);
    out += fmt::format("C1|Q|work_id={}|+{}.001\n", c + 1, t);
    if (last_open && c + 1 == calls) break;
    out += "C1|S|+" + t + ".002\nC1|E|+" + t + ".003\n";
  }
  return out;
}

NamedFile clog_file(int rank, const std::string& bytes) {
  return {fmt::format("clog_rank_{}.log", rank), bytes};
}

TEST(Clog, HealthyRanksAreClean) {
  const auto of = [](int rank) { return header(rank, 2) + kSignatures + events(3, false); };
  const auto run = run_of(clog_format(), {clog_file(0, of(0)), clog_file(1, of(1))});
  EXPECT_EQ(judged(run), "clean");
  const Signature& s = run.tables.signatures[run.ranks[0].calls[0].signature];
  EXPECT_EQ(s.op, Op::all_reduce);
  EXPECT_EQ(s.in_elements, 1024);
  EXPECT_EQ(run.tables.str(s.redop), "sum");
  EXPECT_TRUE(run.ranks[0].calls[2].has(kCompleted));
}

TEST(Clog, FindsWhoNeverIssuedTheCall) {
  const auto of = [](int rank) {
    return header(rank, 4) + kSignatures + (rank == 2 ? events(3, false) : events(4, true));
  };
  EXPECT_THAT(judged(run_of(clog_format(), {clog_file(0, of(0)), clog_file(1, of(1)),
                                            clog_file(2, of(2)), clog_file(3, of(3))})),
              HasSubstr(" by 2"));
}

TEST(Clog, WithoutLifecycleEventsItIsAListOfCalls) {
  const auto of = [](int rank, const std::string& sum) {
    return header(rank, 3) + "C1|sig|all_reduce|in_count=8|out_count=8|dtype=f32|red_op=" + sum +
           "|async_op=f|comm=main\nC1|Q|work_id=1|+0.001\n";
  };
  EXPECT_THAT(judged(run_of(clog_format(), {clog_file(0, of(0, "sum")), clog_file(1, of(1, "max")),
                                            clog_file(2, of(2, "sum"))})),
              HasSubstr("redop-mismatch world#0 by 1"));
  EXPECT_EQ(judged(run_of(clog_format(), {clog_file(0, of(0, "sum")), clog_file(1, of(1, "sum")),
                                          clog_file(2, of(2, "sum"))})),
            "clean");
}

TEST(Clog, ASplitListsItsMembers) {
  const std::string log = header(1, 4) + "split|parent=main|child=tp|ranks=1,3\n" +
                          "C1|sig|send|in_count=8|out_count=0|dtype=f32|peer=1|async_op=t|comm=tp\n"
                          "C1|Q|work_id=1|+0.001\n";
  const auto run = run_of(clog_format(), {clog_file(1, log)});
  ASSERT_EQ(run.ranks[0].calls.size(), 1U);
  EXPECT_EQ(run.ranks[0].calls[0].peer, Rank(3)) << "a rank of the group, as a global one";
}

TEST(Clog, ReplayedGraphsAreNotCompared) {
  const std::string log = header(0, 1) + kSignatures + "G42|C1|Q|work_id=1|+0.001\n" +
                          "G42|R1|C1|S|+2.001\nG42|R1|C1|E|+2.004\n";
  const auto run = run_of(clog_format(), {clog_file(0, log)});
  EXPECT_EQ(run.ranks[0].calls.size(), 1U);
  EXPECT_EQ(judged(run), "inconclusive");
}

TEST(Clog, SurvivesDamage) {
  survives_damage(clog_format(), header(0, 2) + kSignatures + events(2, true) +
                                     "split|parent=main|child=tp|ranks=0,1\nWARN|x\n"
                                     "G42|C1|Q|work_id=9|+1.0\nG42|R1|C1|S|+2.0\n");
}

}  // namespace
}  // namespace lockstep::trace
