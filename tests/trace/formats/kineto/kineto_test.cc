// Profiles of torch.profiler.
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
using testing::IsEmpty;
using Json = nlohmann::ordered_json;

// One event of a collective, as Kineto writes it for the host (`record_param_comms`).
struct Comm {
  std::string op = "allreduce";
  int nelems = 1024;
  std::string dtype = "Float";
  int seq = 0;                 // 0: not recorded
  Json more = Json::object();  // further args
  std::string group = "0", desc = "default_pg", ranks = "[0, 1]";
  int size = 2;
};

Json args_of(const Comm& c, const Json& first = Json::object()) {
  Json args = first;
  args.update({{"Collective name", c.op},
               {"In msg nelems", c.nelems},
               {"Out msg nelems", c.nelems},
               {"Group size", c.size},
               {"dtype", c.dtype},
               {"In split size", "[]"},
               {"Out split size", "[]"},
               {"Process Group Name", c.group},
               {"Process Group Description", c.desc},
               {"Process Group Ranks", c.ranks}});
  if (c.seq > 0) args["Seq"] = c.seq;
  args.update(c.more);
  return args;
}

class Profile {
 public:
  explicit Profile(int rank, int world = 2) : rank_(rank) {
    info({{"backend", "nccl"},
          {"rank", rank},
          {"world_size", world},
          {"pg_count", 1},
          {"nccl_version", "2.21.5"}});
  }

  Profile& step(int n, int ts, int dur) {
    event("user_annotation", fmt::format("ProfilerStep#{}", n), ts, dur, {{"External id", 1}});
    return *this;
  }
  Profile& call(const Comm& comm, int ts) {
    event("cpu_op", "record_param_comms", ts, 5, args_of(comm, {{"External id", ++id_}}));
    return *this;
  }
  // The kernel of the last call.
  Profile& kernel(const Comm& comm, int ts, const std::string& name) {
    event("kernel", fmt::format("{}(ncclDevKernelArgsStorage<4096ul>)", name), ts, 20,
          args_of(comm, {{"External id", id_},
                         {"est. achieved occupancy %", kBareNan},
                         {"device", rank_},
                         {"stream", 40}}));
    return *this;
  }
  Profile& raw(const std::string& text) {
    events_ += text;
    return *this;
  }
  // Kineto writes the file in pieces, with line breaks between them.
  std::string str() const {
    return fmt::format(R"(
{{
  "schemaVersion": 1,
  "deviceProperties": [
  ],
{}  "baseTimeNanoseconds": 1711964646000000000,
  "traceEvents": [{}
  {{
    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 99999.125
  }}
  ],
  "traceName": "/tmp/p.json"
}})",
                       info_, events_);
  }
  Profile& info(const Json& distributed) {
    info_ = fmt::format("  \"distributedInfo\": {},\n", distributed.dump());
    return *this;
  }
  Profile& without_info() {
    info_.clear();
    return *this;
  }
  NamedFile file() const { return {fmt::format("rank{}.pt.trace.json", rank_), str()}; }

 private:
  // Kineto writes nan without quotes, which no JSON library does.
  static constexpr const char* kBareNan = "<nan>";

  void event(const char* category, const std::string& name, int ts, int dur, const Json& args) {
    const Json event = {{"ph", "X"}, {"cat", category},  {"name", name},      {"pid", 7},
                        {"tid", 7},  {"ts", ts + 0.125}, {"dur", dur + 0.25}, {"args", args}};
    std::string text = event.dump(2, ' ', /*ensure_ascii=*/true);
    const std::string quoted = fmt::format("\"{}\"", kBareNan);
    if (const auto at = text.find(quoted); at != std::string::npos)
      text.replace(at, quoted.size(), "nan");
    events_ += fmt::format("\n{},", text);
  }

  int rank_, id_ = 100;
  std::string events_, info_;
};

constexpr const char* kSumKernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

Profile healthy_profile(int rank) {
  Profile p(rank);
  p.step(4, 1000, 100).step(5, 1101, 100);
  for (const int ts : {1010, 1020, 1110, 1120}) {
    const Comm comm{.nelems = ts % 100 == 10 ? 4096 : 128};
    p.call(comm, ts).kernel(comm, ts + 30, kSumKernel);
  }
  return p;
}

std::string verdict_of(const std::vector<Profile>& profiles) {
  std::vector<NamedFile> files;
  for (const Profile& p : profiles) files.push_back(p.file());
  return judged(run_of(kineto_format(), files));
}

TEST(Kineto, HealthyRanksAreClean) {
  EXPECT_EQ(verdict_of({healthy_profile(0), healthy_profile(1)}), "clean");
}

TEST(Kineto, ReadsWhatTheFileTells) {
  const auto run = run_of(kineto_format(), {healthy_profile(1).file(), healthy_profile(0).file()});
  ASSERT_EQ(run.ranks.size(), 2U);
  EXPECT_EQ(run.world_size, 2);
  const RankTrace& trace = run.ranks[1];
  EXPECT_EQ(trace.rank, Rank(1));
  EXPECT_EQ(trace.backend, "nccl");
  EXPECT_EQ(trace.gpu, 1);
  EXPECT_EQ(trace.end, End::clean);
  EXPECT_FALSE(trace.snapshot);
  ASSERT_EQ(trace.calls.size(), 4U);
  const Call& call = trace.calls[2];
  EXPECT_EQ(call.step, 5);
  EXPECT_EQ(run.tables.str(call.group), "world");
  EXPECT_TRUE(call.has(kAsync));
  EXPECT_TRUE(call.has(kStarted));
  EXPECT_TRUE(call.has(kCompleted));
  const Signature& s = run.tables.signatures[call.signature];
  EXPECT_EQ(s.op, Op::all_reduce);
  EXPECT_EQ(s.in_elements, 4096);
  EXPECT_EQ(run.tables.names(s.dtypes), std::vector<std::string>{"float32"});
  EXPECT_EQ(run.tables.str(s.redop), "sum");
  EXPECT_EQ(trace.events[0].time, 1'010'125);
  ASSERT_EQ(trace.groups.size(), 1U);
  EXPECT_EQ(trace.groups[0].ranks, (std::vector<Rank>{Rank(0), Rank(1)}));
}

TEST(Kineto, FindsTheRankWithAnotherSize) {
  Profile odd(1);
  odd.step(4, 1000, 100).step(5, 1101, 100);
  for (const int ts : {1010, 1020, 1110, 1120}) {
    odd.call({.nelems = ts == 1020 ? 64 : ts % 100 == 10 ? 4096 : 128}, ts);
  }
  EXPECT_THAT(verdict_of({healthy_profile(0), odd}), HasSubstr("size-mismatch world#1"));
}

TEST(Kineto, FindsTheSkippedCall) {
  const auto skipping = [](int rank, bool skips) {
    Profile p(rank, 4);
    p.step(1, 1000, 100);
    for (int i = 0; i < 4; ++i) {
      if (skips && i == 2) continue;
      p.call({.nelems = 100 + i, .ranks = "[0, 1, 2, 3]", .size = 4}, 1010 + i * 10);
    }
    return p;
  };
  EXPECT_EQ(
      verdict_of({skipping(0, false), skipping(1, true), skipping(2, false), skipping(3, false)}),
      "findings\nmissing-collective world#2 by 1");
}

TEST(Kineto, FindsAnotherReductionByTheKernelsName) {
  Profile odd(1);
  odd.step(4, 1000, 100).step(5, 1101, 100);
  for (const int ts : {1010, 1020, 1110, 1120}) {
    const Comm comm{.nelems = ts % 100 == 10 ? 4096 : 128};
    odd.call(comm, ts).kernel(comm, ts + 30,
                              ts == 1020 ? "ncclDevKernel_AllReduce_Prod_f32_RING_LL" : kSumKernel);
  }
  EXPECT_THAT(verdict_of({healthy_profile(0), odd}), HasSubstr("redop-mismatch world#1"));
}

TEST(Kineto, WindowsAreCutToTheStepsInCommon) {
  const auto window = [](int rank, int first, int last) {
    Profile p(rank);
    for (int n = first; n <= last; ++n) {
      p.step(n, n * 100, 99);
      p.call({.nelems = 10 + n}, n * 100 + 10).call({.nelems = 20 + n}, n * 100 + 20);
    }
    return p;
  };
  const auto run = run_of(kineto_format(), {window(0, 3, 6).file(), window(1, 4, 7).file()});
  EXPECT_EQ(judged(run), "clean");
  EXPECT_EQ(run.ranks[0].calls.size(), 6U);
  EXPECT_EQ(run.ranks[1].calls.size(), 6U);
  EXPECT_EQ(verdict_of({window(0, 3, 4), window(1, 6, 7)}), "inconclusive");
}

TEST(Kineto, SequenceNumbersLineUpWindowsWithoutSteps) {
  const auto window = [](int rank, int first, int last) {
    Profile p(rank);
    for (int seq = first; seq <= last; ++seq) {
      p.call({.nelems = 10 * seq, .seq = seq}, 100 + seq * 10);
    }
    return p;
  };
  const auto run =
      run_of(kineto_format(), {window(0, 101, 110).file(), window(1, 104, 110).file()});
  EXPECT_EQ(judged(run), "clean");
  EXPECT_TRUE(run.ranks[0].snapshot);
  EXPECT_EQ(run.ranks[0].calls[0].seq, 100U);
}

// Calls of one coalesced batch share a number.
TEST(Kineto, SharedSequenceNumbersAreNotUsed) {
  const auto coalesced = [](int rank) {
    Profile p(rank);
    p.step(1, 1000, 100);
    for (int i = 0; i < 3; ++i) p.call({.nelems = 10 + i, .seq = 7}, 1010 + i);
    return p;
  };
  const auto run = run_of(kineto_format(), {coalesced(0).file(), coalesced(1).file()});
  EXPECT_EQ(judged(run), "clean");
  EXPECT_EQ(run.ranks[0].calls.size(), 3U);
  EXPECT_EQ(run.ranks[0].damaged_count, 0U);
}

TEST(Kineto, RootsAreGroupRanks) {
  Profile p(2, 4);
  p.call({.op = "broadcast",
          .more = {{"Rank", 1}},
          .group = "dp",
          .desc = "DATA_PARALLEL",
          .ranks = "[0, 2]"},
         10);
  p.call({.op = "allreduce",
          .more = {{"Rank", 1}},
          .group = "dp",
          .desc = "DATA_PARALLEL",
          .ranks = "[0, 2]"},
         20);
  const auto run = run_of(kineto_format(), {p.file()});
  ASSERT_EQ(run.ranks[0].calls.size(), 2U);
  EXPECT_EQ(run.tables.signatures[run.ranks[0].calls[0].signature].root, 2);
  EXPECT_EQ(run.tables.signatures[run.ranks[0].calls[1].signature].root, kNone);
  EXPECT_EQ(run.tables.str(run.ranks[0].calls[0].group), "dp");
}

TEST(Kineto, MessagesNameGlobalRanks) {
  Profile a(0), b(1);
  a.call({.op = "send", .nelems = 8, .more = {{"Rank", 1}, {"Dst Rank", 1}}}, 10);
  b.call({.op = "recv", .nelems = 8, .more = {{"Rank", 0}, {"Src Rank", 0}}}, 12);
  const auto run = run_of(kineto_format(), {a.file(), b.file()});
  EXPECT_EQ(run.ranks[0].calls[0].peer, Rank(1));
  EXPECT_EQ(run.ranks[1].calls[0].peer, Rank(0));
  EXPECT_EQ(judged(run), "clean");
}

// More than 30 ranks are written "[0, 1, …, 29, ...]".
TEST(Kineto, AbbreviatedRanksAreNoMembers) {
  Profile p(0, 64);
  p.call({.group = "tp", .desc = "", .ranks = "[0, 1, 2, ...]", .size = 64}, 10);
  p.call({.group = "pp", .desc = "", .ranks = "[0, 1, 2]", .size = 64}, 20);
  p.call({.more = {{"Global rank start", 1}, {"Global rank stride", 2}},
          .group = "dp",
          .desc = "",
          .ranks = "[1, 3, ...]",
          .size = 32},
         30);
  const auto run = run_of(kineto_format(), {p.file()});
  ASSERT_EQ(run.ranks[0].groups.size(), 1U);
  EXPECT_EQ(run.tables.str(run.ranks[0].groups[0].group), "dp");
  EXPECT_EQ(run.ranks[0].groups[0].ranks.size(), 32U);
  EXPECT_EQ(run.ranks[0].groups[0].ranks[31], Rank(63));
}

TEST(Kineto, GroupsOfDistributedInfoCount) {
  Profile p(0, 4);
  p.info(Json::parse(R"({"backend": "nccl", "rank": 0, "world_size": 4, "pg_count": 2,
    "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]},
                  {"pg_name": "5", "pg_desc": "TP", "pg_size": 2, "ranks": "[0, 2]"}]})"));
  p.call({.group = "5", .desc = "TP", .ranks = "[0, ...]", .size = 2}, 10);
  const auto run = run_of(kineto_format(), {p.file()});
  ASSERT_EQ(run.ranks[0].groups.size(), 2U);
  EXPECT_EQ(run.tables.str(run.ranks[0].groups[0].group), "world");
  EXPECT_EQ(run.tables.str(run.ranks[0].groups[1].group), "5");
  EXPECT_EQ(run.tables.str(run.ranks[0].groups[1].desc), "TP");
  EXPECT_EQ(run.ranks[0].groups[1].ranks, (std::vector<Rank>{Rank(0), Rank(2)}));
}

TEST(Kineto, UnknownOperationsStay) {
  Profile p(0);
  p.call({.op = "hyper_gather"}, 10).call({.op = "wait"}, 20).call({.op = "all_to_allv"}, 30);
  const auto run = run_of(kineto_format(), {p.file()});
  ASSERT_EQ(run.ranks[0].calls.size(), 2U);
  const Signature& s = run.tables.signatures[run.ranks[0].calls[0].signature];
  EXPECT_EQ(s.op, Op::other);
  EXPECT_EQ(run.tables.str(s.other_op), "hyper_gather");
  const Signature& all_to_all = run.tables.signatures[run.ranks[0].calls[1].signature];
  EXPECT_EQ(all_to_all.op, Op::all_to_all_single);
  EXPECT_EQ(all_to_all.in_elements, kNone) << "without splits, sizes differ legitimately";
}

TEST(Kineto, KernelsReplaceCallsWhereTheHostWasNotProfiled) {
  const auto device_only = [](int rank) {
    Profile p(rank);
    for (int i = 0; i < 3; ++i) p.kernel({.nelems = 8 + i}, 100 * i, kSumKernel);
    return p;
  };
  const auto run = run_of(kineto_format(), {device_only(0).file(), device_only(1).file()});
  EXPECT_EQ(judged(run), "clean");
  EXPECT_EQ(run.ranks[0].calls.size(), 3U);
  EXPECT_TRUE(run.ranks[0].calls[2].has(kCompleted));
}

TEST(Kineto, CutOffFilesAreReadUpToThere) {
  const std::string whole = healthy_profile(0).str();
  const std::string cut = whole.substr(0, whole.rfind("\"record_param_comms\""));
  const auto run =
      run_of(kineto_format(), {{"rank0.json", cut}, {"rank1.json", healthy_profile(1).str()}});
  EXPECT_EQ(judged(run), "inconclusive");
  EXPECT_EQ(run.ranks[0].calls.size(), 3U);
  EXPECT_EQ(run.ranks[0].end, End::cut);
  EXPECT_TRUE(run.ranks[0].open_ended);
  EXPECT_GT(run.ranks[0].damaged_count, 0U);
}

TEST(Kineto, AnEventWithoutItsBracketCostsThatEvent) {
  Profile p(0);
  p.call({}, 10)
      .raw("\n  {\"ph\": \"X\", \"name\": \"lost, \"args\": { },")
      .call({}, 20)
      .call({}, 30);
  const auto run = run_of(kineto_format(), {p.file()});
  EXPECT_GE(run.ranks[0].calls.size(), 2U);
  EXPECT_GE(run.ranks[0].damaged_count, 1U);
}

TEST(Kineto, SaysWhyAProfileCannotBeUsed) {
  const auto error_of = [](const NamedFile& file) {
    Tables tables;
    const auto read = kineto_format().read(trace_file(file), tables);
    return read ? "" : read.error().str();
  };
  EXPECT_THAT(error_of({"profile.json", Profile(0).call({}, 10).without_info().str()}),
              HasSubstr("whose recording"));
  EXPECT_THAT(error_of({"rank_3.json", Profile(0).call({}, 10).without_info().str()}), IsEmpty());
  EXPECT_THAT(error_of({"a.json", Profile(5, 2).str()}), HasSubstr("not below world_size"));
  EXPECT_THAT(error_of({"a.json", "{\"a\": 1}"}), HasSubstr("not a profile"));
}

// Before PyTorch 2.3 neither the host's records nor the kernels say what they belong to.
TEST(Kineto, NamesOfKernelsAloneAreListedAndNotCompared) {
  const std::string host =
      R"({"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 1, "dur": 1, "args": {}},)";
  const auto profile = [&](int rank, const std::string& kernel) {
    Profile p(rank);
    p.raw(host);
    const Json event = {{"ph", "X"}, {"cat", "kernel"}, {"name", kernel},
                        {"ts", 5},   {"dur", 2},        {"args", {{"stream", 84}}}};
    p.raw(event.dump() + ",");
    return p.file();
  };
  const auto run = run_of(kineto_format(), {profile(0, "ncclKernel_AllReduce_RING_LL_Sum_float"),
                                            profile(1, "ncclKernel_SendRecv_RING_SIMPLE_Sum_i8")});
  EXPECT_EQ(judged(run), "inconclusive");
  EXPECT_THAT(verify::verify(run).unknown[0], HasSubstr("before PyTorch 2.3"));
  ASSERT_EQ(run.ranks[0].calls.size(), 1U);
  EXPECT_EQ(run.tables.signatures[run.ranks[0].calls[0].signature].op, Op::all_reduce);
  EXPECT_TRUE(run.ranks[0].calls[0].has(kCompleted));
  // Not even kernels: profiled on the host alone.
  EXPECT_EQ(judged(run_of(kineto_format(), {Profile(0).raw(host).file()})), "inconclusive");
}

// Other vendors' libraries name their kernels as NCCL does, or by other words.
TEST(Kineto, KernelsOfOtherLibraries) {
  const auto calls = [](const std::string& kernel) {
    Profile p(0);
    const Json event = {{"ph", "X"}, {"cat", "kernel"}, {"name", kernel},
                        {"ts", 5},   {"dur", 2},        {"args", {{"stream", 84}}}};
    p.raw(event.dump() + ",");
    const auto run = run_of(kineto_format(), {p.file()});
    std::vector<std::string> out;
    for (const Call& call : run.ranks[0].calls) {
      const Signature& s = run.tables.signatures[call.signature];
      out.push_back(fmt::format("{} {}", op_name(s.op), run.tables.str(s.redop)));
    }
    return out;
  };
  using testing::ElementsAre;
  EXPECT_THAT(calls("mcclKernel_AllReduce_RING_SIMPLE_PreMulSum___mt_bfloat16"),
              ElementsAre("all_reduce premul_sum"));
  EXPECT_THAT(calls("mcclKernel_AllReduce_FC4_LL_Sum_mccl_bfloat16(fcinfo)"),
              ElementsAre("all_reduce sum"));
  EXPECT_THAT(calls("oneccl_allreduce_pcie<sycl::half, Rt64_128_PCIE, RingTransmit>"),
              ElementsAre("all_reduce "));
  EXPECT_THAT(calls("oneccl_reduce_scatter_large_main<float, 4, 2>"),
              ElementsAre("reduce_scatter_tensor "));
  // One kernel for several operations.
  EXPECT_THAT(calls("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"),
              ElementsAre("other "));
  // A program's own.
  EXPECT_THAT(calls("mccl_allreduce_rms_norm"), IsEmpty());
  EXPECT_THAT(calls("oneccl_copy"), IsEmpty());
}

TEST(Kineto, NestingAndNumbersOutOfRangeAreDamage) {
  Profile p(0);
  p.raw(R"({"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 1e300, "args":)"
        R"( {"Collective name": "allreduce"}},)");
  p.raw(R"({"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 5, "args":)"
        R"( {"Collective name": "allreduce", "deep": )" +
        std::string(100'000, '[') + std::string(100'000, ']') + "}},");
  p.raw(R"({"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 10, "dur": 5, "args":)"
        R"( {"Collective name": "allreduce", "Seq": 99999999999999999999999999}},)");
  p.call({.nelems = -5, .more = {{"Rank", -7}, {"Dst Rank", 123456789012}}}, 20);
  const auto run = run_of(kineto_format(), {p.file()});
  EXPECT_EQ(run.ranks[0].calls.size(), 1U);
  EXPECT_EQ(run.ranks[0].damaged_count, 3U);
}

TEST(Kineto, SurvivesDamage) {
  Profile p(0);
  p.step(1, 5, 50);
  p.call({.op = "send", .seq = 3, .more = {{"Dst Rank", 1}}}, 10);
  p.kernel({.op = "send"}, 12, kSumKernel).call({.op = "\u00e9"}, 20);
  survives_damage(kineto_format(), p.str());
}

}  // namespace
}  // namespace lockstep::trace
