// Which calls do not fit those that they meet.
#include "runtime/replay/disputes.h"

#include <gmock/gmock.h>

#include "tests/runtime/replay/program_words.h"

namespace lockstep::runtime {
namespace {

std::string disputed_call(int id, const std::string& op, const std::string& more) {
  return R"({"ev":"issue","id":)" + std::to_string(id) + R"(,"g":"world","op":")" + op +
         R"(","dtype":"float32",)" + more + "}\n";
}

std::vector<std::vector<bool>> disputes(const std::vector<std::string>& bodies) {
  Result<trace::Run> program = replay_program(recorded(bodies));
  EXPECT_TRUE(program) << (program ? "" : program.error().str());
  return program ? find_disputes(*program) : std::vector<std::vector<bool>>();
}

using Rows = std::vector<std::vector<bool>>;

TEST(Disputes, SizesCountAndShapesDoNot) {
  EXPECT_EQ(disputes({disputed_call(0, "all_reduce", R"("in":[[2,3]])") +
                          disputed_call(1, "all_reduce", R"("in":[[4]])"),
                      disputed_call(0, "all_reduce", R"("in":[[6]])") +
                          disputed_call(1, "all_reduce", R"("in":[[5]])")}),
            (Rows{{false, true}, {false, true}}));
}

TEST(Disputes, OperationsTypesAndRootsCount) {
  EXPECT_EQ(disputes({disputed_call(0, "all_reduce", R"("in":[[4]])"),
                      disputed_call(0, "broadcast", R"("in":[[4]])")}),
            (Rows{{true}, {true}}));
  EXPECT_EQ(disputes({disputed_call(0, "broadcast", R"("in":[[4]],"root":0)"),
                      disputed_call(0, "broadcast", R"("in":[[4]],"root":1)")}),
            (Rows{{true}, {true}}));
}

TEST(Disputes, ReduceOperationsDoNot) {
  EXPECT_EQ(disputes({disputed_call(0, "all_reduce", R"("in":[[4]],"redop":"sum")"),
                      disputed_call(0, "all_reduce", R"("in":[[4]],"redop":"max")")}),
            (Rows{{false}, {false}}));
}

TEST(Disputes, MessagesAreComparedInTheirChannel) {
  EXPECT_EQ(disputes({disputed_call(0, "send", R"("in":[[4]],"peer":1,"ptag":1)") +
                          disputed_call(1, "send", R"("in":[[8]],"peer":1,"ptag":2)"),
                      disputed_call(0, "recv", R"("out":[[8]],"peer":0,"ptag":2)") +
                          disputed_call(1, "recv", R"("out":[[5]],"peer":0,"ptag":1)")}),
            (Rows{{true, false}, {false, true}}));
}

TEST(Disputes, SplitsAreComparedByPairs) {
  const auto exchange = [](const std::string& in, const std::string& out) {
    return disputed_call(0, "all_to_all_single",
                         R"("in":[[4]],"out":[[4]],"splits_in":)" + in + R"(,"splits_out":)" + out);
  };
  EXPECT_EQ(disputes({exchange("[1,3]", "[1,3]"), exchange("[3,1]", "[3,1]")}),
            (Rows{{false}, {false}}));
  EXPECT_EQ(disputes({exchange("[1,3]", "[1,3]"), exchange("[2,2]", "[3,1]")}),
            (Rows{{true}, {true}}));
}

// A place that the others do not have is nobody's.
TEST(Disputes, AnAllToAllOfMembersWhoDoNotAgree) {
  const auto exchange = [](const std::string& ranks, const std::string& more) {
    return R"({"group":"ep","ranks":)" + ranks + R"(}
{"ev":"issue","id":0,"g":"ep","op":"all_to_all_single","dtype":"float32",)" +
           more + "}";
  };
  const std::string of_three = R"("in":[[6]],"out":[[6]])";
  EXPECT_EQ(disputes({exchange("[0,1]", R"("in":[[4]],"out":[[4]])"), exchange("[0,1,2]", of_three),
                      exchange("[0,1,2]", of_three)}),
            (Rows{{true}, {true}, {true}}));
  EXPECT_EQ(disputes({exchange("[0,1,2]", of_three),
                      exchange("[0,1]", R"("in":[[4]],"out":[[4]],"splits_in":[1,3],)"
                                        R"("splits_out":[1,3])"),
                      exchange("[0,1,2]", of_three)}),
            (Rows{{true}, {true}, {true}}));
}

TEST(Disputes, GroupsWhoseMembersDoNotAgree) {
  const std::string barrier = R"({"ev":"issue","id":0,"g":"dp","op":"barrier"})";
  const auto group = [](const std::string& ranks) {
    return R"({"group":"dp","ranks":)" + ranks + "}\n";
  };
  Result<trace::Run> program = replay_program(
      recorded({group("[0,1]") + barrier, group("[0,1,2]") + barrier, group("[0,1,2]") + barrier}));
  ASSERT_TRUE(program) << program.error().str();
  EXPECT_EQ(find_disputed_groups(*program), (Rows{{true}, {true}, {true}}));
}

}  // namespace
}  // namespace lockstep::runtime
