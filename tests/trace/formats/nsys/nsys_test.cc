// Reports of Nsight Systems.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "tests/trace/formats/nsys/nsys_report.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Nsys, KernelsBecomeWorkInTheirStreams) {
  const ReadNsys report = read_nsys_report(small_nsys().str());
  ASSERT_EQ(report.error, "");
  ASSERT_EQ(report.ranks.size(), 1U);
  const RankTrace& rank = report.ranks[0];
  EXPECT_EQ(rank.end, End::clean);
  EXPECT_EQ(rank.damaged_count, 0U);
  EXPECT_THAT(nsys_spans(report),
              ElementsAre("host: 5000", "void gemm<float>(float*) in 7: 51000", "host: 10000",
                          "void gemm<float>(float*) in 7: 100000", "host: 10000", "wait in 20",
                          "host: 5000", "wait", "host: 43000"));
  ASSERT_EQ(rank.calls.size(), 1U);
  EXPECT_EQ(describe(report.tables, rank.calls[0].signature), "all_reduce (sum)");
  EXPECT_EQ(report.tables.str(rank.calls[0].stream), "20");
  EXPECT_EQ(rank.calls[0].step, 3);
  ASSERT_EQ(rank.steps.size(), 1U);
  EXPECT_EQ(rank.steps[0].n, 3);
  EXPECT_EQ(rank.pid, 7);
}

TEST(Nsys, CopiesAndFillsAreWork) {
  NsysReport r;
  r.copy(2, 0, 10, 1, 43).fill(10, 12, 2);
  EXPECT_THAT(nsys_spans(read_nsys_report(r.str())),
              testing::IsSupersetOf({"Memcpy DtoH in 43: 10", "Memset in 7: 2"}));
}

// Stream 7 of another device is another stream.
TEST(Nsys, DevicesHaveTheirOwnStreams) {
  const std::string other = NsysReport(7, 1).kernel(kNameGemm, 5, 20, 2).text;
  const auto spans =
      nsys_spans(read_nsys_report(NsysReport().kernel(kNameGemm, 0, 10, 1).str() + other));
  EXPECT_THAT(spans, testing::Contains("void gemm<float>(float*) in 7: 10"));
  EXPECT_THAT(spans, testing::Contains("void gemm<float>(float*) in 8589934599: 15"));
}

TEST(Nsys, StringsMayFollowAndBeLinesOfTheirOwn) {
  const std::string events = small_nsys().text;
  const auto expected = nsys_spans(read_nsys_report(nsys_string_line() + events));
  EXPECT_EQ(nsys_spans(read_nsys_report(events + nsys_string_line())), expected);
  const std::vector<std::string>& texts = nsys_strings();
  std::string lines;
  for (std::size_t i = 0; i < texts.size(); ++i)
    lines += fmt::format("{{\"type\":\"String\",\"id\":\"{}\",\"value\":\"{}\"}}\n", i, texts[i]);
  EXPECT_EQ(nsys_spans(read_nsys_report(events + lines)), expected);
}

TEST(Nsys, RangesNamedAfterStepsAreSteps) {
  NsysReport r;
  r.kernel(kNameGemm, 0, 1000, 1);
  for (const char* text : {"iter_4", "ProfilerStep#5", "Step: 6", "step", "stepper 7", "step 8a"})
    r.range(text, static_cast<int>(r.text.size()), static_cast<int>(r.text.size()) + 10);
  // Inside another one.
  r.range("iteration 9", 10'000, 20'000).range("step 0", 10'000, 11'000);
  const ReadNsys report = read_nsys_report(r.str());
  std::vector<std::int64_t> steps;
  for (const StepMark& step : report.ranks.at(0).steps) steps.push_back(step.n);
  EXPECT_THAT(steps, ElementsAre(4, 5, 6, 9));
}

// Ranks of one report are told apart by their devices; processes without kernels are none.
TEST(Nsys, ProcessesOfANodeAreItsRanks) {
  const std::string two = small_nsys(9, 0).str() + small_nsys(8, 3).text;
  const std::string loader = NsysReport(5).api(kNameLaunch, 0, 1, 1).text;
  const ReadNsys report = read_nsys_report(two + loader, "node.jsonl");
  ASSERT_EQ(report.ranks.size(), 2U) << report.error;
  for (const RankTrace& rank : report.ranks) {
    EXPECT_EQ(rank.pid, rank.rank.value == 0 ? 9 : 8);
    EXPECT_EQ(rank.gpu, rank.rank.value == 0 ? 0 : 3);
    EXPECT_EQ(rank.world_size, 2);
  }
  const ReadNsys unclear = read_nsys_report(small_nsys(9).str() + small_nsys(8).text, "node.jsonl");
  EXPECT_THAT(unclear.error, HasSubstr("nothing says which rank each is"));
}

// Nobody knows which ranks a kernel of NCCL communicates with.
TEST(Nsys, RanksAreNotCompared) {
  NsysReport other = small_nsys();
  other.kernel(kNameAllReduce, 400'000, 500'000, 9, 20);
  const auto run =
      run_of(nsys_format(), {{"rank_0.jsonl", small_nsys().str()}, {"rank_1.jsonl", other.str()}});
  EXPECT_EQ(judged(run), "inconclusive");
  EXPECT_THAT(run.ranks[0].inconclusive, HasSubstr("Nsight Systems"));
}

TEST(Nsys, WhatCannotBeReadIsSaid) {
  EXPECT_THAT(read_nsys_report(NsysReport().api(kNameLaunch, 0, 1, 1).str()).error,
              HasSubstr("shows no work of a GPU"));
  const std::string whole = small_nsys().str();
  const ReadNsys cut = read_nsys_report(whole.substr(0, whole.size() - 10));
  ASSERT_EQ(cut.error, "");
  EXPECT_EQ(cut.ranks[0].end, End::cut);
  EXPECT_GE(cut.ranks[0].damaged_count, 1U);
  NsysReport bad;
  bad.kernel(kNameGemm, 0, 10, 1).kernel(kNameGemm, 20, 10, 2);
  EXPECT_EQ(read_nsys_report(bad.str()).ranks.at(0).damaged_count, 1U);
}

// Lines of JSON, and databases whose table of graphs is missing, show the launch alone.
TEST(Nsys, AGraphWithoutItsKernelsIsSaid) {
  NsysReport r;
  r.api(kNameLaunch, 0, 1, 1).kernel(kNameGemm, 2, 10, 1);
  r.api(kNameGraphLaunch, 20, 30, 2).kernel(kNameGemm, 31, 35, 2).kernel(kNameGemm, 35, 40, 2);
  EXPECT_EQ(read_nsys_report(r.str()).ranks.at(0).damaged_count, 0U);
  r.api(kNameGraphLaunch, 50, 60, 3);
  for (const std::string& bytes : {r.str(), r.sqlite()}) {
    const ReadNsys report = read_nsys_report(bytes);
    EXPECT_EQ(report.ranks.at(0).damaged_count, 1U);
    EXPECT_THAT(report.ranks.at(0).damaged.at(0).message,
                HasSubstr("1 launch of a CUDA graph left no work in the report, and computes "
                          "nothing here: nsys profile --cuda-graph-trace=node"));
  }
  EXPECT_THAT(read_nsys_report(NsysReport().api(kNameGraphLaunch, 0, 1, 1).str()).error,
              testing::AllOf(HasSubstr("launches of CUDA graphs, without their kernels"),
                             HasSubstr("--cuda-graph-trace=node")));
}

TEST(Nsys, SurvivesDamage) { survives_damage(nsys_format(), small_nsys().str()); }

}  // namespace
}  // namespace lockstep::trace
