// PyTorch's execution traces.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

// One call as schema 1.0.1 has it: a group is a pointer.
std::string old_call(int id, int seq, int rank, const std::string& op, int elements) {
  return R"({"name": "record_param_comms", "id": )" + std::to_string(id) +
         R"(, "rf_id": 1, "parent": 2, "tid": 1, "inputs": [[7, 8, 0, )" +
         std::to_string(elements) + R"(, 4, "cuda:0"], )" + std::to_string(seq) + ", " +
         std::to_string(94594108284448 + rank) + ", " + std::to_string(rank) + ", \"" + op +
         R"(", [], []], "outputs": []})";
}

// … and as 1.1.0.
std::string new_call(int id, int seq, int rank, const std::string& op, int elements) {
  const std::string n = std::to_string(elements);
  return R"({"id": )" + std::to_string(id) +
         R"(, "name": "record_param_comms", "ctrl_deps": 2, "inputs": {"values": [[[7, 8, 0, )" +
         n + R"(, 4, "cuda:0"]], )" + std::to_string(seq) + R"(, ["0", "default_pg"], )" +
         std::to_string(rank) + ", \"" + op +
         R"(", [], [], 0, 1, 3], "shapes": [], "types": []}, "outputs": {}, "attrs": [)"
         R"({"name": "dtype", "type": "string", "value": "Float"}, )"
         R"({"name": "in_msg_nelems", "type": "uint64", "value": )" +
         n + R"(}, {"name": "out_msg_nelems", "type": "uint64", "value": )" + n + "}]}";
}

using MakeCall = std::string (*)(int, int, int, const std::string&, int);

std::string trace(const std::string& schema, const std::vector<std::string>& calls) {
  std::string out = R"({"schema": ")" + schema + R"(", "pid": 42, "time": "x", "start_ts": 1,
  "nodes": [{"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1})";
  for (const std::string& call : calls) out += ",\n" + call;
  return out + "], \"finish_ts\": 2}";
}

std::string healthy_trace(const std::string& schema, MakeCall call, int rank) {
  return trace(schema, {call(10, 5, rank, "allreduce", 64), call(20, 6, rank, "allreduce", 32),
                        call(30, 7, rank, "allgather", 16)});
}

NamedFile execution_trace_file(int rank, const std::string& bytes) {
  return {fmt::format("et_{}.json", rank), bytes};
}

TEST(ExecutionTrace, HealthyRanksOfEverySchemaAreClean) {
  for (const auto& [schema, call] : std::vector<std::pair<std::string, MakeCall>>{
           {"1.0.1", old_call}, {"1.1.0-chakra.0.0.4", new_call}}) {
    const auto run =
        run_of(execution_trace_format(), {execution_trace_file(0, healthy_trace(schema, call, 0)),
                                          execution_trace_file(1, healthy_trace(schema, call, 1)),
                                          execution_trace_file(2, healthy_trace(schema, call, 2))});
    EXPECT_EQ(judged(run), "clean") << schema;
    EXPECT_EQ(run.world_size, 3) << schema;
    ASSERT_EQ(run.ranks[1].calls.size(), 3U) << schema;
    const Signature& s = run.tables.signatures[run.ranks[1].calls[0].signature];
    EXPECT_EQ(s.op, Op::all_reduce);
    EXPECT_EQ(s.in_elements, 64);
    EXPECT_EQ(run.tables.str(run.ranks[1].calls[0].group), "world");
  }
}

TEST(ExecutionTrace, FindsAnotherSize) {
  const std::string odd = trace("1.1.0-chakra.0.0.4", {new_call(10, 5, 1, "allreduce", 64),
                                                       new_call(20, 6, 1, "allreduce", 31),
                                                       new_call(30, 7, 1, "allgather", 16)});
  EXPECT_THAT(
      judged(run_of(execution_trace_format(),
                    {execution_trace_file(0, healthy_trace("1.1.0-chakra.0.0.4", new_call, 0)),
                     execution_trace_file(1, odd),
                     execution_trace_file(2, healthy_trace("1.1.0-chakra.0.0.4", new_call, 2))})),
      HasSubstr("size-mismatch world#5 by 1"));
}

TEST(ExecutionTrace, TheTraceItselfSaysWhoseItIs) {
  const auto run = run_of(execution_trace_format(),
                          {{"resnet_2gpu.json", healthy_trace("1.1.0-chakra.0.0.4", new_call, 1)}});
  ASSERT_EQ(run.ranks.size(), 1U);
  EXPECT_EQ(run.ranks[0].rank, Rank(1)) << "and not the number in the file's name";
}

TEST(ExecutionTrace, WithSeveralPointersNothingIsCompared) {
  const auto two_groups = [](int rank, int elements) {
    std::string other = old_call(20, 1, rank, "allreduce", elements);
    other.replace(other.find("945941"), 6, "111111");
    return trace("1.0.1", {old_call(10, 5, rank, "allreduce", 64), other});
  };
  const auto run = run_of(execution_trace_format(), {execution_trace_file(0, two_groups(0, 8)),
                                                     execution_trace_file(1, two_groups(1, 9))});
  EXPECT_EQ(judged(run), "inconclusive");
}

// The job's log calls these calls 5, 6 and 7.
TEST(ExecutionTrace, CallsAreNumberedAsInTheLog) {
  const auto run = run_of(
      execution_trace_format(),
      {execution_trace_file(0, healthy_trace("1.1.0-chakra.0.0.4", new_call, 0)),
       execution_trace_file(1, trace("1.1.0-chakra.0.0.4", {new_call(10, 5, 1, "allreduce", 64),
                                                            new_call(20, 6, 1, "allreduce", 31),
                                                            new_call(30, 7, 1, "allgather", 16)})),
       execution_trace_file(2, healthy_trace("1.1.0-chakra.0.0.4", new_call, 2))});
  const verify::Report report = verify::verify(run);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].number, 6U);
  EXPECT_THAT(report.findings[0].message, HasSubstr("call 6 of group world"));
}

// By their order the calls agree; by its own numbers rank 1 has issued one that is not recorded.
TEST(ExecutionTrace, ANumberThatOneRankAloneSkipsIsNotClean) {
  const auto numbered = [](int rank, int last) {
    return execution_trace_file(
        rank, trace("1.1.0-chakra.0.0.4", {new_call(10, 5, rank, "allreduce", 64),
                                           new_call(20, last, rank, "allreduce", 32)}));
  };
  const auto parted =
      run_of(execution_trace_format(), {numbered(0, 6), numbered(1, 7), numbered(2, 6)});
  const verify::Report report = verify::verify(parted);
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
  ASSERT_FALSE(report.unknown.empty());
  EXPECT_THAT(report.unknown[0],
              HasSubstr("rank 1 recorded all_reduce of 32 float32 as call 7 of group world, ranks "
                        "0, 2 as call 6"));
  // A number that nobody used: a call of all ranks that this source does not record.
  EXPECT_EQ(
      judged(run_of(execution_trace_format(), {numbered(0, 7), numbered(1, 7), numbered(2, 7)})),
      "clean");
}

TEST(ExecutionTrace, ACutTraceAccusesNobody) {
  const std::string whole = healthy_trace("1.1.0-chakra.0.0.4", new_call, 1);
  for (std::size_t length = 300; length < whole.size(); length += 40) {
    const auto run =
        run_of(execution_trace_format(),
               {execution_trace_file(0, healthy_trace("1.1.0-chakra.0.0.4", new_call, 0)),
                execution_trace_file(1, whole.substr(0, length)),
                execution_trace_file(2, healthy_trace("1.1.0-chakra.0.0.4", new_call, 2))});
    EXPECT_EQ(judged(run), "inconclusive") << length;
  }
}

TEST(ExecutionTrace, SurvivesDamage) {
  survives_damage(execution_trace_format(), healthy_trace("1.0.1", old_call, 0));
  survives_damage(execution_trace_format(),
                  trace("1.1.0-chakra.0.0.4", {new_call(10, 5, 0, "broadcast", 64)}));
}

}  // namespace
}  // namespace lockstep::trace
