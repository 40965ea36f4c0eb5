// Chakra execution traces as JSON.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/chakra/chakra.h"
#include "trace/formats/chakra/json.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

// As Chakra's feeder reads it.
std::string graph(int size) {
  return R"({"workload_graph": [
    {"Id": 2, "Name": "c10d::allreduce_", "NodeType": 7, "data_deps": [], "is_cpu_op": true},
    {"Id": 3, "Name": "ncclKernel_AllReduce_RING_LL_Sum_float", "NodeType": 7,
     "data_deps": [2], "is_cpu_op": false, "comm_size": )" +
         std::to_string(size) + R"(},
    {"Id": 4, "Name": "gather", "NodeType": 7, "data_deps": [3], "is_cpu_op": false,
     "comm_type": 2, "comm_size": 64}],
    "workload_name": "w", "ngpus": 2})";
}

// As chakra_jsonizer prints a protobuf file.
std::string printed(int size) {
  return R"({
  "version": "0.0.4"
}
{
  "id": "2",
  "name": "compute",
  "type": "COMP_NODE"
}
{
  "id": "3",
  "name": "allreduce",
  "type": "COMM_COLL_NODE",
  "dataDeps": [
    "2"
  ],
  "attr": [
    {"name": "is_cpu_op", "boolVal": false},
    {"name": "comm_type", "int64Val": "0"},
    {"name": "comm_size", "int64Val": ")" +
         std::to_string(size) + R"("}
  ]
})";
}

NamedFile chakra_file(int rank, const std::string& bytes) {
  return {"workload." + std::to_string(rank) + ".json", bytes};
}

TEST(ChakraJson, HealthyRanksAreClean) {
  const auto run =
      run_of(chakra_format(), {chakra_file(0, graph(4096)), chakra_file(1, graph(4096))});
  EXPECT_EQ(judged(run), "clean");
  ASSERT_EQ(run.ranks[0].calls.size(), 2U) << "kernels, and not the host's side of them";
  const Signature& s = run.tables.signatures[run.ranks[0].calls[0].signature];
  EXPECT_EQ(s.op, Op::all_reduce) << "by the kernel's name";
  EXPECT_EQ(
      judged(run_of(chakra_format(), {chakra_file(0, printed(8)), chakra_file(1, printed(8))})),
      "clean");
}

TEST(ChakraJson, FindsAnotherSizeInBothForms) {
  EXPECT_THAT(judged(run_of(chakra_format(), {chakra_file(0, graph(64)), chakra_file(1, graph(64)),
                                              chakra_file(2, graph(65))})),
              HasSubstr("size-mismatch world#0 by 2"));
  EXPECT_THAT(
      judged(run_of(chakra_format(), {chakra_file(0, printed(64)), chakra_file(1, printed(65)),
                                      chakra_file(2, printed(64))})),
      HasSubstr("size-mismatch world#0 by 1"));
}

TEST(ChakraJson, IsKnownByItsContent) {
  EXPECT_EQ(recognise(graph(1))->name, "chakra");
  EXPECT_EQ(recognise(printed(1))->name, "chakra");
  EXPECT_EQ(recognise(R"({"version": "1.0", "files": []})"), nullptr);
}

TEST(ChakraJson, SurvivesDamage) {
  survives_damage(chakra_format(), graph(8));
  survives_damage(chakra_format(), printed(8));
}

}  // namespace
}  // namespace lockstep::trace
