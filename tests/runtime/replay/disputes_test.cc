// Which calls do not fit those that they meet.
#include "runtime/replay/disputes.h"

#include <gmock/gmock.h>

#include "tests/runtime/replay/program_words.h"

namespace lockstep::runtime {
namespace {

std::string disputed_call(int id, const std::string& op, const LineKeys& more) {
  LineKeys keys = {{"dtype", "float32"}};
  keys.update(more);
  return issue_line(id, "world", op, keys);
}

std::vector<std::vector<bool>> disputes(const std::vector<std::string>& bodies) {
  Result<trace::Run> program = replay_program(recorded(bodies));
  EXPECT_TRUE(program) << (program ? "" : program.error().str());
  return program ? find_disputes(*program) : std::vector<std::vector<bool>>();
}

using Rows = std::vector<std::vector<bool>>;

TEST(Disputes, SizesCountAndShapesDoNot) {
  EXPECT_EQ(disputes({disputed_call(0, "all_reduce", {{"in", {{2, 3}}}}) +
                          disputed_call(1, "all_reduce", {{"in", {{4}}}}),
                      disputed_call(0, "all_reduce", {{"in", {{6}}}}) +
                          disputed_call(1, "all_reduce", {{"in", {{5}}}})}),
            (Rows{{false, true}, {false, true}}));
}

TEST(Disputes, OperationsTypesAndRootsCount) {
  EXPECT_EQ(disputes({disputed_call(0, "all_reduce", {{"in", {{4}}}}),
                      disputed_call(0, "broadcast", {{"in", {{4}}}})}),
            (Rows{{true}, {true}}));
  EXPECT_EQ(disputes({disputed_call(0, "broadcast", {{"in", {{4}}}, {"root", 0}}),
                      disputed_call(0, "broadcast", {{"in", {{4}}}, {"root", 1}})}),
            (Rows{{true}, {true}}));
}

TEST(Disputes, ReduceOperationsDoNot) {
  EXPECT_EQ(disputes({disputed_call(0, "all_reduce", {{"in", {{4}}}, {"redop", "sum"}}),
                      disputed_call(0, "all_reduce", {{"in", {{4}}}, {"redop", "max"}})}),
            (Rows{{false}, {false}}));
}

TEST(Disputes, MessagesAreComparedInTheirChannel) {
  EXPECT_EQ(disputes({disputed_call(0, "send", {{"in", {{4}}}, {"peer", 1}, {"ptag", 1}}) +
                          disputed_call(1, "send", {{"in", {{8}}}, {"peer", 1}, {"ptag", 2}}),
                      disputed_call(0, "recv", {{"out", {{8}}}, {"peer", 0}, {"ptag", 2}}) +
                          disputed_call(1, "recv", {{"out", {{5}}}, {"peer", 0}, {"ptag", 1}})}),
            (Rows{{true, false}, {false, true}}));
}

TEST(Disputes, SplitsAreComparedByPairs) {
  using Splits = std::vector<int>;
  const auto exchange = [](const Splits& in, const Splits& out) {
    return disputed_call(0, "all_to_all_single",
                         {{"in", {{4}}}, {"out", {{4}}}, {"splits_in", in}, {"splits_out", out}});
  };
  EXPECT_EQ(disputes({exchange({1, 3}, {1, 3}), exchange({3, 1}, {3, 1})}),
            (Rows{{false}, {false}}));
  EXPECT_EQ(disputes({exchange({1, 3}, {1, 3}), exchange({2, 2}, {3, 1})}), (Rows{{true}, {true}}));
}

// Members that the others do not list exchange with nobody.
TEST(Disputes, AnAllToAllOfMembersWhoDoNotAgree) {
  const auto exchange = [](const std::vector<int>& ranks, const LineKeys& more) {
    LineKeys keys = {{"dtype", "float32"}};
    keys.update(more);
    return group_line("ep", ranks) + issue_line(0, "ep", "all_to_all_single", keys);
  };
  const LineKeys of_two = {{"in", {{4}}}, {"out", {{4}}}};
  const LineKeys of_three = {{"in", {{6}}}, {"out", {{6}}}};
  LineKeys with_splits = of_two;
  with_splits.update({{"splits_in", {1, 3}}, {"splits_out", {1, 3}}});
  EXPECT_EQ(disputes({exchange({0, 1}, of_two), exchange({0, 1, 2}, of_three),
                      exchange({0, 1, 2}, of_three)}),
            (Rows{{true}, {true}, {true}}));
  EXPECT_EQ(disputes({exchange({0, 1, 2}, of_three), exchange({0, 1}, with_splits),
                      exchange({0, 1, 2}, of_three)}),
            (Rows{{true}, {true}, {true}}));
}

TEST(Disputes, GroupsWhoseMembersDoNotAgree) {
  const auto body = [](const std::vector<int>& ranks) {
    return group_line("dp", ranks) + issue_line(0, "dp", "barrier");
  };
  Result<trace::Run> program =
      replay_program(recorded({body({0, 1}), body({0, 1, 2}), body({0, 1, 2})}));
  ASSERT_TRUE(program) << program.error().str();
  EXPECT_EQ(find_disputed_groups(*program), (Rows{{true}, {true}, {true}}));
}

}  // namespace
}  // namespace lockstep::runtime
