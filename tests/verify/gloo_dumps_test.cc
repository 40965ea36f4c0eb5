// Flight Recorder dumps of real jobs over Gloo, made by gloo_dumps/make_dumps.py with PyTorch 2.15:
// each as a pickle and as JSON.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/verify/program.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum class Form { pickle, json };

Report verify_dumps(const std::string& job, Form form, const VerifyOptions& options = {}) {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/tests/verify/gloo_dumps/" + job)) {
    const bool json = entry.path().extension() == ".json";
    if (json == (form == Form::json)) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  const auto run = trace::load_run(files);
  if (!run) {
    ADD_FAILURE() << job << ": " << run.error().str();
    return {};
  }
  return verify(*run, options);
}

// What the report says of a job, in both forms. `undecided`: what it says it does not know.
struct Expected {
  std::string job;
  std::string summary;
  std::vector<std::string> undecided;
};

std::string all_text(const Report& report) {
  std::string out;
  for (const std::string& line : report.unknown) out += line + "\n";
  for (const Finding& f : report.findings) out += f.message + "\n" + f.why + "\n" + f.fix + "\n";
  return out;
}

void expect(const Expected& expected) {
  for (const Form form : {Form::pickle, Form::json}) {
    const Report report = verify_dumps(expected.job, form);
    const std::string text = all_text(report);
    EXPECT_EQ(summary(report), expected.summary) << expected.job;
    for (const std::string& part : expected.undecided) {
      EXPECT_THAT(text, HasSubstr(part)) << expected.job;
    }
    EXPECT_THAT(text, Not(HasSubstr("Xid"))) << expected.job;
    EXPECT_THAT(text, Not(HasSubstr("device"))) << expected.job;
  }
}

TEST(GlooDumps, HungJobsAreExplainedByTheirCalls) {
  expect({"skip",
          "missing-collective error proven culprits=1 group=0 seq=7\nverdict findings",
          {"rank 1 never issued all_gather"}});
  expect({"order",
          "cross-group-deadlock error proven culprits=0 group=1 seq=2\nverdict findings",
          {}});
  expect({"subgroup",
          "cross-group-deadlock error proven culprits=2 group=0 seq=9\nverdict findings",
          {"rank 1 waits in all_reduce of 5 float32"}});
}

// Dumps name no members: that rank 1 waits in a cycle is certain, whoever the other member is.
TEST(GlooDumps, AGroupThatOneRankUsesLacksAMemberThatIsNotNamed) {
  expect({"subgroup_first",
          "cross-group-deadlock error proven group=0 seq=3\nverdict findings",
          {"for another member of the group, which the dumps do not list: one of ranks 0, 2",
           "and so not who left its call out"}});
}

trace::Run load_pairs(const std::vector<std::string>& ranks) {
  std::vector<std::string> files;
  files.reserve(ranks.size());
  for (const std::string& rank : ranks)
    files.push_back(LOCKSTEP_SOURCE_DIR "/tests/verify/gloo_dumps/pairs/rank_" + rank);
  auto run = trace::load_run(files);
  EXPECT_TRUE(run);
  return run ? std::move(*run) : trace::Run{};
}

// Who adds stacks suspects a hang, and nothing in the dumps speaks against one in a message.
TEST(GlooDumps, WithStacksOfItsRanksAJobIsNotClean) {
  const std::string folder = LOCKSTEP_SOURCE_DIR "/tests/verify/gloo_dumps/ended/";
  std::vector<std::string> files = {folder + "rank_0", folder + "rank_1", folder + "rank_2"};
  trace::LoadOptions all;
  all.evidence = true;
  const auto alone = trace::load_run(files, all);
  ASSERT_TRUE(alone);
  EXPECT_EQ(summary(verify(*alone)), "verdict clean");
  const TempDir dir;
  files.push_back(dir.write("rank_1.stack",
                            "Process 7: python train.py\nThread 7 (idle): \"MainThread\"\n"
                            "    _wait_batch_p2p (torch/distributed/pipelining/schedules.py:958)\n"
                            "    main (train.py:80)\n"));
  const auto with_stack = trace::load_run(files, all);
  ASSERT_TRUE(with_stack);
  const Report report = verify(*with_stack);
  EXPECT_EQ(summary(report), "verdict inconclusive");
  EXPECT_THAT(all_text(report), HasSubstr("whether they hang there, in a message"));
}

// Who is in another group of the kind is in no second one.
TEST(GlooDumps, TheOtherMemberIsNotInAnotherGroupOfTheKind) {
  const Report report = verify(load_pairs({"0", "1", "2", "3"}), {.hung = true});
  EXPECT_THAT(summary(report), HasSubstr("host-stall error observed culprits=1 "));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings[0].group_label, HasSubstr("TENSOR_PARALLEL"));
}

// The rank without a dump may be the other member, so that nobody can be said to have stopped.
TEST(GlooDumps, TheOtherMemberMayHaveLeftNoDump) {
  EXPECT_EQ(summary(verify(load_pairs({"0", "2", "3"}), {.hung = true})), "verdict inconclusive");
}

TEST(GlooDumps, WhoIsWaitedForIsSaidWhereNothingShowsThatItNeverComes) {
  expect({"skip_alike",
          "verdict inconclusive",
          {"ranks 0, 2 wait in all_reduce of 4 float32", "for rank 1"}});
  expect({"asleep",
          "verdict inconclusive",
          {"ranks 0, 1 wait in all_reduce of 12 float32", "for rank 2", "a minute later"}});
  expect({"asleep_at_once", "verdict inconclusive", {"ranks 0, 2 wait", "for rank 1"}});
  expect({"send",
          "verdict inconclusive",
          {"ranks 1, 2 wait", "for rank 0", "in a message (Gloo's dumps hold none)"}});
}

// Who took the dumps knows that the job had hung. The rank that did not come waits in a send, or
// sleeps: the dumps look alike.
TEST(GlooDumps, ARankThatStoppedMayWaitInAMessage) {
  for (const char* const job : {"send", "asleep"}) {
    std::vector<std::string> files;
    for (const char* const rank : {"rank_0", "rank_1", "rank_2"})
      files.push_back(
          fmt::format("{}/tests/verify/gloo_dumps/{}/{}", LOCKSTEP_SOURCE_DIR, job, rank));
    const auto run = trace::load_run(files);
    ASSERT_TRUE(run);
    const Report report = verify(*run, {.hung = true});
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(report.findings[0].rule, RuleId::host_stall);
    EXPECT_THAT(report.findings[0].fix, HasSubstr("in a message (Gloo's dumps hold none)"));
  }
}

// The dumps hold no messages, but number them together with the collectives: rank 0 issued none
// where it issued one in each round before, and rank 1, which did not come, waits in it.
TEST(GlooDumps, ARankThatLeftAMessageOutIsNamedByTheCounts) {
  for (const Form form : {Form::pickle, Form::json}) {
    const Report report = verify_dumps("left_out", form, {.hung = true});
    EXPECT_EQ(summary(report),
              "p2p-unmatched error observed culprits=0 group=0 seq=12\nverdict findings");
    EXPECT_THAT(all_text(report), HasSubstr("with no message, where it issued 1 in its earlier"));
  }
}

// Here the ranks that wait issued as many messages as before: the one that did not come is at fault
// by itself, whether it sleeps or waits in a message too many.
TEST(GlooDumps, ARankThatStoppedAfterItsMessagesIsNamed) {
  for (const char* const job : {"received_twice", "asleep_among_messages"}) {
    for (const Form form : {Form::pickle, Form::json}) {
      const Report report = verify_dumps(job, form, {.hung = true});
      EXPECT_EQ(summary(report),
                "host-stall error observed culprits=1 group=0 seq=12\nverdict findings")
          << job;
    }
  }
}

// In the first rounds there is nothing to compare with: either side may be at fault.
TEST(GlooDumps, WithoutEarlierRoundsNobodyIsNamedForAMessage) {
  TempDir dir;
  const auto entry = [](int op, int seq, bool retired) {
    return fmt::format(
        R"({{"collective_seq_id":{},"frames":[],"input_dtypes":["Float"],"input_sizes":[[3]],)"
        R"("is_p2p":false,"op_id":{},"output_dtypes":["Float"],"output_sizes":[[3]],"p2p_seq_id":0,)"
        R"("pg_id":0,"process_group":["0","default_pg"],"profiling_name":"gloo:all_reduce",)"
        R"("record_id":{},"retired":{},"state":"scheduled","time_created_ns":{}}})",
        seq, op, seq - 1, retired, 1'800'000'000'000'000'000 + op);
  };
  const auto write = [&](int rank, const std::string& entries) {
    dir.write(fmt::format("rank_{}.json", rank),
              fmt::format(R"({{"comm_lib_version":"","entries":[{}],"pg_config":{{}},)"
                          R"("pg_status":{{}},"version":"2.10"}})",
                          entries));
  };
  write(0, entry(3, 1, true) + "," + entry(5, 2, false));
  write(1, entry(3, 1, true));
  write(2, entry(1, 1, true) + "," + entry(2, 2, false));
  const auto run = trace::load_run({dir.path()});
  ASSERT_TRUE(run);
  const Report report = verify(*run, {.hung = true});
  EXPECT_EQ(summary(report), "host-stall error observed group=0 seq=1\nverdict findings");
}

TEST(GlooDumps, HealthyJobsAreNotAccused) {
  expect({"ended", "verdict clean", {}});
  expect({"running", "verdict inconclusive", {}});
  expect({"running_ddp", "verdict inconclusive", {}});
  expect({"nothing_called", "verdict inconclusive", {"no recording holds a call"}});
}

TEST(GlooDumps, ARankThatWasDumpedBeforeTheOthersIsNotMissed) {
  const Report report = verify_dumps("running", Form::pickle);
  EXPECT_THAT(all_text(report), HasSubstr("the dumps were not taken at one moment"));
}

// One of two ranks died, so that only one dump is left. It says that there was another rank.
TEST(GlooDumps, TheDumpOfTheFirstRankAloneIsNotAWholeJob) {
  for (const char* const file : {"rank_0", "rank_0.json"}) {
    const auto run =
        trace::load_run({LOCKSTEP_SOURCE_DIR "/tests/verify/gloo_dumps/skip/" + std::string(file)});
    ASSERT_TRUE(run);
    const Report report = verify(*run);
    EXPECT_EQ(summary(report), "verdict inconclusive");
    EXPECT_THAT(all_text(report), HasSubstr("no trace of ranks 1, 2 was given"));
  }
}

}  // namespace
}  // namespace lockstep::verify
