// Chakra execution traces.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/chakra/nodes.h"
#include "trace/formats/chakra/writer.h"
#include "trace/formats/format.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

// Protobuf's wire format, as far as the tests need it.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7U) out += static_cast<char>(value % 128 + 128);
  return out + static_cast<char>(value);
}
std::string number(unsigned field, std::uint64_t value) {
  return varint(field * 8) + varint(value);
}
std::string bytes(unsigned field, std::string_view content) {
  return varint(field * 8 + 2) + varint(content.size()) + std::string(content);
}
std::string chakra_message(std::string_view content) {
  return varint(content.size()) + std::string(content);
}

std::string int64_attr(std::string_view name, std::uint64_t value) {
  return bytes(10, bytes(1, name) + number(9, value));
}
std::string int32_attr(std::string_view name, std::uint64_t value) {
  return bytes(10, bytes(1, name) + number(7, value));
}
std::string text_attr(std::string_view name, std::string_view value) {
  return bytes(10, bytes(1, name) + bytes(29, value));
}
std::string bool_attr(std::string_view name, bool value) {
  return bytes(10, bytes(1, name) + number(27, value ? 1 : 0));
}
std::string dims_attr(const std::string& flags) {
  return bytes(10, bytes(1, "involved_dim") + bytes(28, bytes(1, flags)));
}

constexpr unsigned kCompute = 4, kSend = 5, kRecv = 6, kCollective = 7;
constexpr unsigned kAllReduce = 0, kAllGather = 2;

// A trace, node by node.
class Graph {
 public:
  Graph() : bytes_(chakra_message(bytes(1, "0.0.4"))) {}

  Graph& node(std::uint64_t id, unsigned type, const std::vector<std::uint64_t>& deps,
              const std::string& more = "") {
    std::string packed;
    for (const std::uint64_t dep : deps) packed += varint(dep);
    std::string content = number(1, id) + bytes(2, fmt::format("node{}", id)) + number(3, type);
    if (!packed.empty()) content += bytes(5, packed);
    bytes_ += chakra_message(content + number(7, 12) + more);
    return *this;
  }
  Graph& collective(std::uint64_t id, unsigned type, std::uint64_t size,
                    const std::vector<std::uint64_t>& deps = {}, const std::string& more = "") {
    return node(id, kCollective, deps,
                bool_attr("is_cpu_op", false) + int64_attr("comm_type", type) +
                    int64_attr("comm_size", size) + more);
  }
  Graph& raw(const std::string& text) {
    bytes_ += text;
    return *this;
  }
  const std::string& str() const { return bytes_; }
  NamedFile file(int rank) const { return {fmt::format("workload.{}.et", rank), bytes_}; }

 private:
  std::string bytes_;
};

Graph layers(std::uint64_t size) {
  Graph g;
  g.node(1, kCompute, {}).collective(2, kAllReduce, size, {1});
  g.node(3, kCompute, {2}).collective(4, kAllGather, 64, {3});
  return g;
}

TEST(Chakra, HealthyRanksAreClean) {
  const auto run = run_of(chakra_format(), {layers(4096).file(0), layers(4096).file(1)});
  EXPECT_EQ(judged(run), "clean");
  EXPECT_EQ(run.world_size, 2);
  const RankTrace& trace = run.ranks[1];
  EXPECT_EQ(trace.rank, Rank(1));
  EXPECT_EQ(trace.end, End::clean);
  ASSERT_EQ(trace.calls.size(), 2U);
  EXPECT_EQ(run.tables.str(trace.calls[0].group), "world");
  EXPECT_EQ(run.tables.str(trace.calls[0].tag), "node2");
  const Signature& s = run.tables.signatures[trace.calls[0].signature];
  EXPECT_EQ(s.op, Op::all_reduce);
  EXPECT_EQ(s.in_elements, 4096) << "bytes, where no type is given";
}

TEST(Chakra, FindsAnotherSize) {
  EXPECT_THAT(judged(run_of(chakra_format(),
                            {layers(4096).file(0), layers(4096).file(1), layers(8192).file(2)})),
              HasSubstr("size-mismatch world#0 by 2"));
}

TEST(Chakra, FindsTheMissingCollective) {
  Graph odd;
  odd.node(1, kCompute, {}).node(3, kCompute, {1}).collective(4, kAllGather, 64, {3});
  EXPECT_THAT(
      judged(run_of(chakra_format(), {layers(4096).file(0), odd.file(1), layers(4096).file(2)})),
      HasSubstr("missing-collective world#0 by 1"));
}

// Nodes may stand in any order; ids break ties among those whose dependencies are done.
TEST(Chakra, DependenciesMakeTheOrder) {
  Graph shuffled;
  shuffled.collective(4, kAllGather, 64, {3}).node(3, kCompute, {9});
  shuffled.collective(9, kAllReduce, 4096, {1}).node(1, kCompute, {77});
  EXPECT_EQ(judged(run_of(chakra_format(), {layers(4096).file(0), shuffled.file(1)})), "clean");
}

TEST(Chakra, TypesGiveTheElements) {
  Graph g;
  const auto types = [](std::string_view text) {
    return bytes(8, bytes(1, "[[1]]") + bytes(3, text));
  };
  g.collective(1, kAllReduce, 4096, {}, types("['Tensor(float)']"));
  g.collective(2, kAllReduce, 4096, {},
               types("['Tensor(c10::BFloat16)', 'Tensor(c10::BFloat16)']"));
  g.collective(3, kAllReduce, 4096, {}, types("['Tensor(float)', 'Tensor(long int)']"));
  const auto run = run_of(chakra_format(), {g.file(0)});
  const auto described = [&](std::size_t i) {
    const Signature& s = run.tables.signatures[run.ranks[0].calls[i].signature];
    return fmt::format("{} {}", s.in_elements, run.tables.names(s.dtypes)[0]);
  };
  EXPECT_EQ(described(0), "1024 float32");
  EXPECT_EQ(described(1), "2048 bfloat16");
  EXPECT_EQ(described(2), "4096 uint8");
}

TEST(Chakra, MessagesMatchTheirOtherSide) {
  const auto send = [](std::uint64_t size, std::uint64_t tag) {
    return Graph().node(1, kSend, {},
                        int32_attr("comm_src", 0) + int32_attr("comm_dst", 1) +
                            int32_attr("comm_tag", tag) + int64_attr("comm_size", size));
  };
  const auto recv = [](std::uint64_t size) {
    return Graph().node(1, kRecv, {},
                        int32_attr("comm_src", 0) + int32_attr("comm_dst", 1) +
                            int32_attr("comm_tag", 5) + int64_attr("comm_size", size));
  };
  const auto verdict = [&](const Graph& a, const Graph& b) {
    return judged(run_of(chakra_format(), {a.file(0), b.file(1)}));
  };
  EXPECT_EQ(verdict(send(64, 5), recv(64)), "clean");
  EXPECT_THAT(verdict(send(64, 5), recv(32)), HasSubstr("p2p-size"));
  EXPECT_THAT(verdict(send(64, 6), recv(64)), HasSubstr("p2p-unmatched"));
}

TEST(Chakra, GroupsAreThoseOfTheTrace) {
  Graph g;
  g.collective(1, kAllReduce, 8, {}, text_attr("pg_name", "7"));
  g.collective(2, kAllReduce, 8, {}, dims_attr(std::string("\1\1", 2)));
  g.collective(3, kAllReduce, 8, {}, dims_attr(std::string("\1\0", 2)));
  const auto run = run_of(chakra_format(), {g.file(3)});
  EXPECT_EQ(run.tables.str(run.ranks[0].calls[0].group), "7");
  EXPECT_EQ(run.tables.str(run.ranks[0].calls[1].group), "world");
  EXPECT_EQ(run.tables.str(run.ranks[0].calls[2].group), "dimensions 10 of rank 3");
}

// The host's call and its kernel are nodes of their own.
TEST(Chakra, KernelsCountOnce) {
  Graph g;
  g.node(1, kCollective, {}, bool_attr("is_cpu_op", true));
  g.node(2, kCollective, {1}, bool_attr("is_cpu_op", true) + int64_attr("comm_type", kAllReduce));
  g.collective(3, kAllReduce, 8, {2});
  EXPECT_EQ(run_of(chakra_format(), {g.file(0)}).ranks[0].calls.size(), 1U);
}

TEST(Chakra, UnknownCollectivesStay) {
  const auto run = run_of(chakra_format(), {Graph().collective(1, 42, 8).file(0)});
  const Signature& s = run.tables.signatures[run.ranks[0].calls[0].signature];
  EXPECT_EQ(s.op, Op::other);
  EXPECT_EQ(run.tables.str(s.other_op), "collective 42");
}

TEST(Chakra, RankComesFromTheNameElseFromMessages) {
  Tables tables;
  const Graph sender = Graph().node(1, kSend, {}, int32_attr("comm_src", 6));
  const auto named = chakra_format().read({sender.str(), "w.2.et", Rank(2)}, tables);
  ASSERT_TRUE(named);
  EXPECT_EQ((*named)[0].rank, Rank(2));
  const auto told = chakra_format().read({sender.str(), "w.et", std::nullopt}, tables);
  ASSERT_TRUE(told);
  EXPECT_EQ((*told)[0].rank, Rank(6));
  const auto none = chakra_format().read({layers(1).str(), "w.et", std::nullopt}, tables);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().str(), HasSubstr("name.3.et"));
}

// Durations of the nodes that are communication, in the order of the file.
std::vector<std::int64_t> durations_of(const std::string& file) {
  ChakraMessages messages(file);
  EXPECT_TRUE(messages.next());  // metadata
  std::vector<std::int64_t> out;
  ChakraNode node;
  while (const auto message = messages.next()) {
    EXPECT_TRUE(parse_chakra_node(*message, node, /*work=*/true));
    if (node.type != ChakraType::other && node.type != ChakraType::compute)
      out.push_back(node.nanos);
  }
  return out;
}

TEST(ChakraWriter, CallsLastAsLongAsTheDeviceWasInThem) {
  const auto issue = [](int id, const char* op) {
    return fmt::format(
        R"({{"ev":"issue","t":{},"id":{},"g":"world","op":"{}","in":[[8]],"dtype":"float32"}}
)",
        id, id, op);
  };
  const auto event = [](const char* kind, int id, std::int64_t time) {
    return fmt::format(R"({{"ev":"{}","id":{},"t":{}}}
)",
                       kind, id, time);
  };
  Tables tables;
  const auto trace = read_text_trace(
      R"({"header":1,"rank":0,"world_size":2}
)" + issue(1, "all_reduce") +
          event("start", 1, 1000) + event("complete", 1, 13345) +
          // Without a begin; a clock that was set back; never over.
          issue(2, "all_reduce") + event("complete", 2, 20000) + issue(3, "all_gather") +
          event("start", 3, 30000) + event("complete", 3, 29000) + issue(4, "broadcast") +
          event("start", 4, 40000) + R"({"end":"clean"}
)",
      "rank_0.trace.jsonl", tables);
  ASSERT_TRUE(trace) << trace.error().str();
  const auto file = chakra_trace(*trace, tables);
  ASSERT_TRUE(file) << file.error().str();
  EXPECT_THAT(durations_of(*file), testing::ElementsAre(12345, 0, 0, 0));
}

TEST(Chakra, DamageIsCounted) {
  const auto damage = [](const Graph& g, std::size_t calls) {
    const auto run = run_of(chakra_format(), {g.file(0)});
    EXPECT_EQ(run.ranks[0].calls.size(), calls);
    return run.ranks[0].damaged_count;
  };
  Graph cycle = layers(8);
  cycle.collective(10, kAllReduce, 8, {11}).collective(11, kAllReduce, 8, {10});
  EXPECT_EQ(damage(cycle, 2), 1U);
  EXPECT_EQ(damage(layers(8).collective(4, kAllReduce, 8), 3), 1U) << "two nodes with one id";
  EXPECT_EQ(damage(layers(8).raw(chakra_message("\xff\xff\xff")), 2), 1U);
  Graph cut = layers(8);
  cut.raw(varint(1000) + "abc");
  EXPECT_EQ(damage(cut, 2), 1U);
  EXPECT_EQ(run_of(chakra_format(), {cut.file(0)}).ranks[0].end, End::cut);
  EXPECT_EQ(damage(layers(8).raw(varint(UINT64_MAX)), 2), 1U);
  EXPECT_EQ(damage(layers(8).node(
                       9, kSend, {},
                       int64_attr("comm_dst", UINT64_MAX) + int64_attr("comm_size", UINT64_MAX)),
                   3),
            0U);
}

TEST(Chakra, NoMetadataIsNoTrace) {
  Tables tables;
  EXPECT_FALSE(chakra_format().read({"", "w.0.et", Rank(0)}, tables));
  EXPECT_FALSE(chakra_format().read({"hello", "w.0.et", Rank(0)}, tables));
}

TEST(Chakra, SurvivesDamage) {
  Graph g = layers(4096);
  g.collective(7, kAllReduce, 8, {4},
               dims_attr(std::string("\1\0", 2)) + text_attr("pg_name", "x"));
  g.node(8, kSend, {7}, int32_attr("comm_src", 0) + int32_attr("comm_dst", 1));
  survives_damage(chakra_format(), g.str());
}

// Chakra execution traces as JSON.

using testing::HasSubstr;

// As Chakra's feeder reads it.
std::string graph(int size) {
  return fmt::format(R"({{"workload_graph": [
    {{"Id": 2, "Name": "c10d::allreduce_", "NodeType": 7, "data_deps": [], "is_cpu_op": true}},
    {{"Id": 3, "Name": "ncclKernel_AllReduce_RING_LL_Sum_float", "NodeType": 7,
     "data_deps": [2], "is_cpu_op": false, "comm_size": {}}},
    {{"Id": 4, "Name": "gather", "NodeType": 7, "data_deps": [3], "is_cpu_op": false,
     "comm_type": 2, "comm_size": 64}}],
    "workload_name": "w", "ngpus": 2}})",
                     size);
}

// As chakra_jsonizer prints a protobuf file.
std::string printed(int size) {
  return fmt::format(R"({{
  "version": "0.0.4"
}}
{{
  "id": "2",
  "name": "compute",
  "type": "COMP_NODE"
}}
{{
  "id": "3",
  "name": "allreduce",
  "type": "COMM_COLL_NODE",
  "dataDeps": [
    "2"
  ],
  "attr": [
    {{"name": "is_cpu_op", "boolVal": false}},
    {{"name": "comm_type", "int64Val": "0"}},
    {{"name": "comm_size", "int64Val": "{}"}}
  ]
}})",
                     size);
}

NamedFile chakra_file(int rank, const std::string& bytes) {
  return {fmt::format("workload.{}.json", rank), bytes};
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
