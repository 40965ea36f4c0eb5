#include "runtime/launch/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/launch/launch_testing.h"
#include "tests/support/temp_dir.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RunFolder, IsNamedAfterTheScenarioAndTheTime) {
  EXPECT_EQ(run_folder_name("scenarios/modality/manual_hang_bad.yaml", 1'000'000'000),
            "manual_hang_bad-20010909T014640Z");
}

TEST(RunFolder, HoldsACopyOfTheScenario) {
  const TempDir tmp;
  std::ofstream(tmp.file("a.yaml")) << "{lockstep: 1, name: a}\n";
  const auto folder = make_run_folder(tmp.file("x/y"), *load_scenario(tmp.file("a.yaml")), false);
  ASSERT_TRUE(folder);
  EXPECT_EQ(TempDir::read(*folder + "/scenario.yaml"), "{lockstep: 1, name: a}\n");
}

TEST(RunFolder, OfAnEarlierRunIsNotUsedAgain) {
  const TempDir tmp;
  const Scenario scenario;
  std::ofstream(tmp.file("rank_0.ring")) << "x";
  const auto refused = make_run_folder(tmp.path(), scenario, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the folder holds the traces of an earlier run");
  const auto renamed = make_run_folder(tmp.path(), scenario, true);
  ASSERT_TRUE(renamed);
  EXPECT_EQ(*renamed, tmp.path() + "-2");
  std::filesystem::remove_all(*renamed);
}

TEST(RunFolder, ThatCannotBeMadeIsAnError) {
  EXPECT_FALSE(make_run_folder("/proc/nowhere/run", Scenario{}, true));
}

TEST(LastLines, AreFewAndPrintable) {
  const TempDir tmp;
  std::ofstream(tmp.file("log")) << "one\ntwo\n\nthr\x1b"
                                 << "ee\n";
  EXPECT_THAT(last_lines(tmp.file("log"), 2), ElementsAre("two", "thr\\x1bee"));
  EXPECT_THAT(last_lines(tmp.file("log"), 9), ElementsAre("one", "two", "thr\\x1bee"));
  EXPECT_THAT(last_lines(tmp.file("none"), 9), IsEmpty());
}

TEST(WorkerNumbers, AreReadAsTheWorkerWritesThem) {
  const TempDir tmp;
  std::ofstream(tmp.file("r.json")) << R"({"rank": 0, "steps": 3, "first_loss": 2.5,
      "last_loss": 1.25, "losses": [2.5, 2, 1.25], "step_ms_median": 40.5,
      "samples_per_s": 99, "recording_share": 0.001, "idle_share": 0.25,
      "data_wait_share": 0.125, "skipped_items": 3, "peak_rss_bytes": 1000,
      "retrieval": {"recall_at_1": 0.5, "recall_at_5": 0.75, "chance": 0.02, "items": 50,
                    "image_sketches": [0.5, -1]}, "error": null})";
  const auto numbers = read_worker_numbers(tmp.file("r.json"));
  ASSERT_TRUE(numbers);
  EXPECT_EQ(numbers->steps, 3);
  EXPECT_DOUBLE_EQ(*numbers->last_loss, 1.25);
  EXPECT_DOUBLE_EQ(numbers->recording_share, 0.001);
  EXPECT_DOUBLE_EQ(numbers->idle_share.value(), 0.25);
  EXPECT_DOUBLE_EQ(numbers->data_wait_share, 0.125);
  EXPECT_EQ(numbers->skipped_items, 3);
  ASSERT_TRUE(numbers->retrieval);
  EXPECT_DOUBLE_EQ(numbers->retrieval->recall_at_1, 0.5);
  EXPECT_EQ(numbers->retrieval->image_sketches, (std::vector<double>{0.5, -1}));
}

TEST(WorkerNumbers, WhatIsDamagedOrOfAnotherTypeIsLeftOut) {
  const TempDir tmp;
  std::ofstream(tmp.file("cut.json")) << R"({"rank": 0, "ste)";
  EXPECT_FALSE(read_worker_numbers(tmp.file("cut.json")));
  EXPECT_FALSE(read_worker_numbers(tmp.file("none.json")));
  std::ofstream(tmp.file("odd.json")) << R"({"steps": "x", "first_loss": [], "retrieval": 1})";
  const auto odd = read_worker_numbers(tmp.file("odd.json"));
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->steps, 0);
  EXPECT_FALSE(odd->first_loss);
  EXPECT_FALSE(odd->idle_share);
  EXPECT_FALSE(odd->retrieval);
}

std::string location(const std::string& text) {
  const TempDir folder;
  folder.write("rank_0.stack", text);
  return hanging_location(folder.file("rank_0.stack"));
}

TEST(HangingLocation, IsWhatWaitsAndWhatOfTheProgramCalledIt) {
  EXPECT_EQ(location(R"(rank 0 gave up: nothing moved for 20 s

Thread 1 (LWP 7) "lockstep-worker":
#0  poll () from /lib/libc.so.6
#1  ?? () from /lib/libcuda.so.1
#2  at::native::item(at::Tensor const&) from /lib/libtorch_cpu.so
#3  c10d::(anonymous namespace)::look(int (*)(int)) from /lib/libtorch_cpu.so
#4  std::function<void ()>::operator()() const from /lib/libtorch_cpu.so
#5  lockstep::TrainLoop::step(int) from /bin/lockstep-worker
#6  lockstep::(anonymous namespace)::train() from /bin/lockstep-worker
#7  lockstep::run_worker() from /bin/lockstep-worker
#8  main () from /bin/lockstep-worker

Thread 2 (LWP 9) "pt_autograd_0":
#0  other () from /lib/libc.so.6
)"),
            "poll < at::native::item < c10d::(anonymous namespace)::look < "
            "lockstep::TrainLoop::step < lockstep::(anonymous namespace)::train");
}

TEST(HangingLocation, IsWhatTheKernelSaysWhereTheThreadCouldNot) {
  EXPECT_EQ(
      location("rank 0 gave up\n\nThread 1 (LWP 7) \"w\":\n(no stack: state D, in nv_wait)\n"),
      "no stack: state D, in nv_wait");
}

TEST(HangingLocation, IsEmptyWithoutAFileAndOfAnyBytesNothingWorse) {
  EXPECT_EQ(hanging_location("/nowhere/rank_0.stack"), "");
  EXPECT_EQ(location(""), "");
  EXPECT_EQ(location("#\n#0\n#1  \n#2  ??"), "");
  EXPECT_EQ(location("#0  a\x1b[31m (x)\n").find('\x1b'), std::string::npos);
}

trace::End end_after_mark(const TempDir& folder, trace::End before) {
  trace::RingWriter::Options options;
  options.path = folder.file("rank_0.ring");
  auto ring = trace::RingWriter::create(options);
  if (before != trace::End::cut) (*ring)->finish(before);
  EXPECT_TRUE(mark_ended(options.path, trace::End::killed));
  return trace::RingTail::open(options.path)->end();
}

TEST(EndMark, IsWrittenWhereThereIsNone) {
  EXPECT_EQ(end_after_mark(TempDir(), trace::End::cut), trace::End::killed);
}

TEST(EndMark, TellsAnInterruptionFromAKill) {
  const TempDir folder;
  trace::RingWriter::Options options;
  options.path = folder.file("rank_0.ring");
  (void)trace::RingWriter::create(options);
  EXPECT_TRUE(mark_ended(options.path, trace::End::interrupted));
  EXPECT_EQ(trace::RingTail::open(options.path)->end(), trace::End::interrupted);
}

TEST(EndMark, ThatTheWorkerWroteItselfStays) {
  EXPECT_EQ(end_after_mark(TempDir(), trace::End::clean), trace::End::clean);
  EXPECT_EQ(end_after_mark(TempDir(), trace::End::hung), trace::End::hung);
}

TEST(EndMark, IsNotWrittenIntoOtherFiles) {
  const TempDir folder;
  EXPECT_FALSE(mark_ended(folder.file("none"), trace::End::killed));
  const std::string text(8192, 'x');
  std::ofstream(folder.file("text")) << text;
  EXPECT_FALSE(mark_ended(folder.file("text"), trace::End::killed));
  EXPECT_EQ(TempDir::read(folder.file("text")), text);
  std::ofstream(folder.file("short")) << "LKSRING1";
  EXPECT_FALSE(mark_ended(folder.file("short"), trace::End::killed));
}

}  // namespace
}  // namespace lockstep::runtime
