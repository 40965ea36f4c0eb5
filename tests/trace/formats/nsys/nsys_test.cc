// Reports of Nsight Systems.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Indices of strings().
enum : int { kNameLaunch = 1, kNameSync = 2, kNameGemm = 3, kNameAllReduce = 4, kNameStep = 5 };
const char* const kNsysStrings =
    R"x({"data":["[Unknown]","cudaLaunchKernel_v7000","cudaStreamSynchronize_v3020",)x"
    R"x("void gemm\u003cfloat\u003e(float*)","ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)",)x"
    R"("iteration 3","cudaStreamWaitEvent_v3020"]})"
    "\n";

// A process with this number: its lines, in nanoseconds.
class NsysReport {
 public:
  explicit NsysReport(std::int64_t process = 7, int device = 0)
      : process_(process), device_(device) {}

  NsysReport& api(int name, int begin, int end, int correlation) {
    text += fmt::format(
        R"({{"Type":48,"TraceProcessEvent":{{"startNs":"{}","endNs":"{}","correlationId":{},)"
        R"("eventClass":1,"name":"{}","returnValue32":0,"globalTid":"{}"}}}})"
        "\n",
        begin, end, correlation, name, (process_ << 24U) + process_);
    return *this;
  }
  NsysReport& kernel(int name, int begin, int end, int correlation, int stream = 7) {
    return work(fmt::format(R"("kernel":{{"demangledName":"{0}","shortName":"{0}"}})", name), begin,
                end, correlation, stream);
  }
  NsysReport& work(const std::string& what, int begin, int end, int correlation, int stream = 7) {
    text += fmt::format(
        R"({{"Type":79,"CudaEvent":{{"startNs":"{}","endNs":"{}","correlationId":{},)"
        R"("deviceId":{},"contextId":"1","streamId":"{}","eventClass":3,"globalPid":"{}",{}}}}})"
        "\n",
        begin, end, correlation, device_, stream, process_ << 24U, what);
    return *this;
  }
  NsysReport& range(const std::string& what, int begin, int end) {
    text +=
        fmt::format(R"({{"Type":59,"NvtxEvent":{{"Type":59,"Timestamp":"{}",{},"GlobalTid":"{}",)"
                    R"("EndTimestamp":"{}","DomainId":"0","NsTime":true}}}})"
                    "\n",
                    begin, what, (process_ << 24U) + process_, end);
    return *this;
  }
  std::string str() const { return kNsysStrings + text; }

  std::string text;

 private:
  std::int64_t process_;
  int device_;
};

// Two kernels, an all-reduce in another stream after them, and the host waits for it.
NsysReport small_nsys(std::int64_t process = 7, int device = 0) {
  NsysReport r(process, device);
  r.range(fmt::format("\"TextId\":\"{}\"", kNameStep), 0, 400'000);
  r.api(kNameLaunch, 0, 5'000, 1).kernel(kNameGemm, 6'000, 56'000, 1);
  r.api(kNameLaunch, 10'000, 15'000, 2).kernel(kNameGemm, 56'000, 156'000, 2);
  r.api(kNameLaunch, 20'000, 25'000, 3).kernel(kNameAllReduce, 157'000, 357'000, 3, 20);
  r.api(kNameSync, 30'000, 358'000, 4);
  r.work(R"("sync":{"eventId":1,"eventSyncId":"2","syncType":"X"})", 30'000, 358'000, 4);
  return r;
}

struct ReadNsys {
  Tables tables;
  std::vector<RankTrace> ranks;
  std::string error;
};
ReadNsys read_nsys_report(const std::string& bytes, const std::string& name = "rank_0.jsonl") {
  ReadNsys out;
  auto read = nsys_format().read({bytes, name, rank_in_name(name), /*work=*/true}, out.tables);
  if (!read) {
    out.error = read.error().str();
    return out;
  }
  out.ranks = std::move(*read);
  nsys_format().link(out.ranks, out.tables);
  return out;
}

// "void gemm<float>(float*) in 7: 50000", in order; waits without a time.
std::vector<std::string> nsys_spans(const ReadNsys& report, std::size_t rank = 0) {
  std::vector<std::string> out;
  for (const SpanMark& span : report.ranks[rank].spans) {
    const std::string& stream = report.tables.str(span.stream);
    out.push_back(report.tables.str(span.name) + (stream.empty() ? "" : " in " + stream) +
                  (span.after != kNone ? "" : fmt::format(": {}", span.duration)));
  }
  return out;
}

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
  r.work(R"("memcpy":{"sizebytes":"58720256","copyKind":"2","srcKind":2})", 0, 10, 1, 43);
  r.work(R"("memset":{"sizebytes":"4"})", 10, 12, 2);
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
  const auto expected = nsys_spans(read_nsys_report(kNsysStrings + events));
  EXPECT_EQ(nsys_spans(read_nsys_report(events + kNsysStrings)), expected);
  const std::vector<std::string> texts = {"",
                                          "cudaLaunchKernel_v7000",
                                          "cudaStreamSynchronize_v3020",
                                          "void gemm<float>(float*)",
                                          "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)",
                                          "iteration 3"};
  std::string lines;
  for (std::size_t i = 0; i < texts.size(); ++i)
    lines += fmt::format("{{\"type\":\"String\",\"id\":\"{}\",\"value\":\"{}\"}}\n", i, texts[i]);
  EXPECT_EQ(nsys_spans(read_nsys_report(events + lines)), expected);
}

TEST(Nsys, RangesNamedAfterStepsAreSteps) {
  NsysReport r;
  r.kernel(kNameGemm, 0, 1000, 1);
  for (const char* text : {"iter_4", "ProfilerStep#5", "Step: 6", "step", "stepper 7", "step 8a"})
    r.range(fmt::format("\"Text\":\"{}\"", text), static_cast<int>(r.text.size()),
            static_cast<int>(r.text.size()) + 10);
  // Inside another one.
  r.range("\"Text\":\"iteration 9\"", 10'000, 20'000).range("\"Text\":\"step 0\"", 10'000, 11'000);
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

TEST(Nsys, SurvivesDamage) { survives_damage(nsys_format(), small_nsys().str()); }

}  // namespace
}  // namespace lockstep::trace
