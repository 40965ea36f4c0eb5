// What cannot be replayed is said with rank, call and reason.
#include "runtime/replay/refusals.h"

#include <gmock/gmock.h>

#include "tests/runtime/replay/program_words.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

std::string why_not(trace::Run run) {
  const Result<trace::Run> program = replay_program(std::move(run));
  return program ? "no error" : program.error().str();
}
std::string why_not(const std::string& call) {
  return why_not(recorded({call, R"({"end":"clean"})"}));
}

TEST(ReplayRefusals, OperationsThatGlooDoesNotHave) {
  EXPECT_THAT(why_not(R"({"ev":"issue","id":4,"g":"world","op":"all_gather_v"})"),
              HasSubstr("rank 0, call 4, all_gather_v in group world: Gloo has no such operation"));
}

TEST(ReplayRefusals, MpiPrograms) {
  EXPECT_THAT(why_not(run_from_text({R"({"header":1,"rank":0,"world_size":1,"semantics":"mpi"})"})),
              HasSubstr("an MPI program's calls are not those of c10d"));
}

TEST(ReplayRefusals, RanksWithoutATrace) {
  EXPECT_THAT(why_not(run_from_text({R"({"header":1,"rank":1,"world_size":4})"})),
              HasSubstr("ranks 0,2,3 left no trace, and no other trace shows what they called"));
}

TEST(ReplayRefusals, MoreRanksThanProcesses) {
  EXPECT_THAT(why_not(run_from_text({R"({"header":1,"rank":1,"world_size":4096})"})),
              HasSubstr("4,096 ranks would be as many processes on one machine"));
}

TEST(ReplayRefusals, DamagedTracesButForTheRecordARankDiedIn) {
  const std::string good = R"({"ev":"issue","id":0,"g":"world","op":"barrier"})"
                           "\n";
  EXPECT_EQ(why_not(recorded({good + R"({"ev":"iss)", good})), "no error");
  EXPECT_THAT(why_not(recorded({"nonsense\n" + good + R"({"end":"clean"})", good})),
              HasSubstr("the trace of rank 0 is damaged"));
}

TEST(ReplayRefusals, GroupsAndPeersThatNobodyRecorded) {
  EXPECT_THAT(why_not(R"({"ev":"issue","id":0,"g":"dp","op":"barrier"})"),
              HasSubstr("the members of this group were not recorded"));
  EXPECT_THAT(why_not(R"({"ev":"issue","id":0,"g":"world","op":"send","in":[[1]]})"),
              HasSubstr("its other side was not recorded"));
  EXPECT_THAT(why_not(R"({"ev":"issue","id":0,"g":"world","op":"send","in":[[1]],"peer":0})"),
              HasSubstr("no messages of a rank to itself"));
  EXPECT_THAT(why_not(R"({"group":"dp","ranks":[1]})"
                      "\n"
                      R"({"ev":"issue","id":0,"g":"dp","op":"barrier"})"),
              HasSubstr("not a member of this group by its own trace"));
}

TEST(ReplayRefusals, MoreCallsThanAReplayRecordsUnlessTheLastOnesAreKept) {
  std::string calls;
  for (std::size_t i = 0; i <= kMaxReplayCalls; ++i)
    calls += issue_line(static_cast<int>(i), "world", "barrier");
  EXPECT_THAT(why_not(recorded({calls})), HasSubstr("rank 0 made 200001 calls"));
  const Result<trace::Run> program = replay_program(recorded({calls}), {.last = 10});
  ASSERT_TRUE(program) << program.error().str();
  EXPECT_EQ(program->ranks[0].calls.size(), 10U);
}

TEST(ReplayRefusals, SizesThatNobodyRecorded) {
  EXPECT_THAT(why_not(R"({"ev":"issue","id":0,"g":"world","op":"all_reduce"})"),
              HasSubstr("no member recorded its sizes"));
}

// Rank 0 sends with the tags in the order of `sent`, rank 1 receives in that of `received`.
std::string why_not_over_nccl(const std::vector<int>& sent, const std::vector<int>& received) {
  const auto calls = [](const char* op, const char* side, int peer, const std::vector<int>& tags) {
    std::string out;
    for (std::size_t i = 0; i < tags.size(); ++i) {
      out += issue_line(static_cast<int>(i), "world", op,
                        {{side, {{1}}}, {"peer", peer}, {"ptag", tags[i]}, {"async", true}});
    }
    return out + end_line("hung");
  };
  const Result<trace::Run> program =
      replay_program(recorded({calls("send", "in", 1, sent), calls("recv", "out", 0, received)}));
  if (!program) return program.error().str();
  const auto refused = find_nccl_refusal(*program);
  return refused ? refused->str() : "no error";
}

TEST(ReplayRefusals, MessagesWhoseOrderNcclWouldNotKeep) {
  EXPECT_EQ(why_not_over_nccl({5, 7, 7}, {5, 7, 7}), "no error");
  EXPECT_EQ(why_not_over_nccl({5, 7}, {5}), "no error");  // a message that nobody takes
  EXPECT_THAT(why_not_over_nccl({5, 7}, {7, 5}),
              HasSubstr("rank 1, call 0, recv in group world: NCCL has no tags: it would receive "
                        "the message with tag 5 for the one with tag 7"));
}

TEST(ReplayRefusals, ReceivesFromAnySourceOverNccl) {
  const Result<trace::Run> program = replay_program(
      recorded({R"({"ev":"issue","id":0,"g":"world","op":"recv_any","out":[[1]]})"}));
  ASSERT_TRUE(program) << program.error().str();
  const auto refused = find_nccl_refusal(*program);
  ASSERT_TRUE(refused.has_value());
  EXPECT_THAT(refused->str(),
              HasSubstr("NCCL has no receive from any source\n  fix: backend: gloo"));
}

}  // namespace
}  // namespace lockstep::runtime
