// PyTorch's execution traces.
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

// As both schemas write one: ids, offset, elements, bytes per element, device.
Json tensor(int elements) { return Json::array({7, 8, 0, elements, 4, "cuda:0"}); }

// One call in schema 1.0.1: a pointer, which differs between ranks, identifies its group.
Json old_call(int id, int seq, int rank, const std::string& op, int elements) {
  const std::int64_t group = 94594108284448 + rank;
  return {{"name", "record_param_comms"},
          {"id", id},
          {"rf_id", 1},
          {"parent", 2},
          {"tid", 1},
          {"inputs", {tensor(elements), seq, group, rank, op, Json::array(), Json::array()}},
          {"outputs", Json::array()}};
}

// … and in schema 1.1.0: the group has a name.
Json new_call(int id, int seq, int rank, const std::string& op, int elements) {
  const Json inputs = {Json::array({tensor(elements)}),
                       seq,
                       {"0", "default_pg"},
                       rank,
                       op,
                       Json::array(),
                       Json::array(),
                       0,
                       1,
                       3};
  return {{"id", id},
          {"name", "record_param_comms"},
          {"ctrl_deps", 2},
          {"inputs", {{"values", inputs}, {"shapes", Json::array()}, {"types", Json::array()}}},
          {"outputs", Json::object()},
          {"attrs",
           {{{"name", "dtype"}, {"type", "string"}, {"value", "Float"}},
            {{"name", "in_msg_nelems"}, {"type", "uint64"}, {"value", elements}},
            {{"name", "out_msg_nelems"}, {"type", "uint64"}, {"value", elements}}}}};
}

using MakeCall = Json (*)(int, int, int, const std::string&, int);

std::string trace(const std::string& schema, const std::vector<Json>& calls) {
  Json nodes = Json::array();
  nodes.push_back(
      {{"id", 1}, {"name", "[pytorch|profiler|execution_trace|process]"}, {"ctrl_deps", 1}});
  for (const Json& call : calls) nodes.push_back(call);
  return Json({{"schema", schema},
               {"pid", 42},
               {"time", "x"},
               {"start_ts", 1},
               {"nodes", nodes},
               {"finish_ts", 2}})
      .dump();
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

// Nothing else in schema 1.0.1 tells that a rank is missing whose number is the highest.
TEST(ExecutionTrace, AnAllToAllHasASplitForEachMember) {
  const auto run_of_two = [](const std::vector<int>& splits) {
    const auto file = [&](int rank) {
      Json call = old_call(10, 5, rank, "all_to_allv", 6);
      call["inputs"][5] = call["inputs"][6] = splits;
      return execution_trace_file(rank, trace("1.0.1", {call}));
    };
    return run_of(execution_trace_format(), {file(0), file(1)});
  };
  const auto one_missing = run_of_two({2, 2, 2});
  EXPECT_EQ(one_missing.world_size, 3);
  EXPECT_EQ(judged(one_missing), "inconclusive");
  EXPECT_EQ(judged(run_of_two({3, 3})), "clean");
}

TEST(ExecutionTrace, WithSeveralPointersNothingIsCompared) {
  const auto two_groups = [](int rank, int elements) {
    Json other = old_call(20, 1, rank, "allreduce", elements);
    other["inputs"][2] = 111111108284448 + rank;
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
  const auto skipping =
      run_of(execution_trace_format(), {numbered(0, 6), numbered(1, 7), numbered(2, 6)});
  const verify::Report report = verify::verify(skipping);
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
