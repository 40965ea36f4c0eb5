#include <gtest/gtest.h>

#include "base/terminal.h"
#include "reports/findings/reports.h"
#include "tests/reports/inline_run.h"

namespace lockstep::reports {
namespace {

verify::Report report_of_ranks(std::int32_t ranks) {
  verify::Report report;
  report.ranks_expected = ranks;
  for (std::int32_t rank = 0; rank < ranks; ++rank) report.ranks_read.emplace_back(rank);
  report.events = 1234;
  return report;
}

verify::Finding text_only_rank() {
  verify::Finding finding;
  finding.rule = verify::RuleId::modality_divergence;
  finding.certainty = verify::Certainty::proven;
  finding.group = "world";
  finding.seq = 1;
  finding.step = 0;
  finding.culprits = ranks_of({1});
  finding.ranks = ranks_of({0, 1, 2});
  finding.what = {"image.conv.weight", "image.conv.bias",   "image_proj.weight",
                  "image_proj.bias",   "image.norm.weight", "image.norm.bias"};
  finding.message =
      "rank 1's batch of step 0 held text only; image.conv.weight and 5 more got no gradient there";
  finding.why = "ranks 0 and 2 held image and text in that step";
  finding.fix = "feed the branch a dummy input joined to the loss with weight 0";
  for (const std::int32_t rank : {0, 2})
    finding.evidence.push_back({trace::Rank(rank), 1, "sync.cc:41", "waits in all_reduce"});
  finding.evidence.push_back({trace::Rank(1), 1, "sync.cc:41", "issued temperature instead"});
  finding.consequences.emplace_back();
  finding.consequences.back().rule = verify::RuleId::deadlock;
  finding.consequences.back().message = "ranks 0-2 wait for ever";
  return finding;
}

TEST(TextReport, SaysWhoWhatWhereWhyAndWhatToDo) {
  const std::string usual =
      all_reduce(0, "text.weight", 8) + complete(0) + all_reduce(1, "image.conv.weight", 64);
  const std::string deviant =
      all_reduce(0, "text.weight", 8) + complete(0) + all_reduce(1, "temperature", 1);
  const std::string hung = R"({"end":"hung"})";
  const auto run = inline_run({usual + hung, deviant + hung, usual + hung});
  verify::Report report = report_of_ranks(3);
  report.verdict = verify::Verdict::findings;
  report.findings = {text_only_rank()};
  report.unknown = {"reduce op: not recorded in this format"};

  EXPECT_EQ(text_report(report, run),
            R"(FINDINGS: 1 error in 3 ranks, 1,234 events

ERROR modality-divergence (proven)
  rank 1's batch of step 0 held text only; image.conv.weight and 5 more got no
  gradient there

  group world   seq 0         seq 1
  ranks 0,2     all_reduce    all_reduce
                text.weight   image.conv.weight
                8 float32     64 float32
                              WAITS
  rank 1        all_reduce  ! all_reduce
                text.weight   temperature
                8 float32     1 float32
                              WAITS
  ! not what the other ranks called

  who    rank 1; concerns ranks 0,2 too
  what   image.conv.weight, image.conv.bias, image_proj.weight, image_proj.bias
         and 2 more
  where  step 0; group world, seq 1; sync.cc:41
  why    ranks 0 and 2 held image and text in that step
  seen   ranks 0,2 at sync.cc:41: waits in all_reduce
         rank 1 at sync.cc:41 (id 1): issued temperature instead
  so     ranks 0-2 wait for ever (deadlock)
  do     feed the branch a dummy input joined to the loss with weight 0

not known from these traces
  - reduce op: not recorded in this format
)");
}

TEST(TextReport, NothingIsSaidTwice) {
  verify::Report report = report_of_ranks(3);
  report.verdict = verify::Verdict::findings;
  verify::Finding stall;
  stall.rule = verify::RuleId::host_stall;
  stall.headline = stall.message =
      "rank 1 stopped before call 7 (train.py:41); 2 ranks wait for it";
  stall.culprits = ranks_of({1});
  stall.ranks = ranks_of({0, 1, 2});
  stall.evidence.push_back({trace::Rank(0), 7, "train.py:41",
                            "ranks 0, 2 wait in barrier (call 7, train.py:41) for rank 1"});
  stall.evidence.back().sentence = true;
  stall.evidence.push_back({trace::Rank(1), 6, "train.py:40", "its last call was barrier"});
  report.findings = {stall, stall};
  EXPECT_EQ(text_report(report, inline_run({})),
            R"(rank 1 stopped before call 7 (train.py:41); 2 ranks wait for it

FINDINGS: 2 errors in 3 ranks, 1,234 events

ERROR host-stall (observed)

  who    rank 1; concerns ranks 0,2 too
  where  train.py:41 and train.py:40
  seen   ranks 0, 2 wait in barrier (call 7, train.py:41) for rank 1
         rank 1 at train.py:40 (id 6): its last call was barrier

ERROR host-stall (observed)
  rank 1 stopped before call 7 (train.py:41); 2 ranks wait for it

  who    rank 1; concerns ranks 0,2 too
  where  train.py:41 and train.py:40
  seen   ranks 0, 2 wait in barrier (call 7, train.py:41) for rank 1
         rank 1 at train.py:40 (id 6): its last call was barrier
)");
}

TEST(TextReport, ACleanRunIsOneLine) {
  EXPECT_EQ(text_report(report_of_ranks(4), inline_run({})),
            "CLEAN: nothing wrong in 4 ranks, 1,234 events\n");
}

TEST(TextReport, InconclusiveSaysWhoseTraceIsMissing) {
  verify::Report report = report_of_ranks(2);
  report.verdict = verify::Verdict::inconclusive;
  report.ranks_expected = 4;
  report.ranks_missing = ranks_of({2, 3});
  report.ranks_damaged = ranks_of({1});
  EXPECT_EQ(text_report(report, inline_run({})),
            R"(INCONCLUSIVE: no error seen in 2 ranks, 1,234 events, but not all is known
  no trace of ranks 2,3: 2 of 4 ranks were read
  damaged trace of rank 1
)");
}

TEST(TextReport, TheVerdictIsWrappedAndColouredAlike) {
  verify::Report report = report_of_ranks(2000);
  report.verdict = verify::Verdict::inconclusive;
  const std::string plain = text_report(report, inline_run({}), {.width = 60});
  EXPECT_EQ(plain,
            "INCONCLUSIVE: no error seen in 2,000 ranks, 1,234 events,\n"
            "  but not all is known\n");
  EXPECT_EQ(text_report(report, inline_run({}), {.width = 60, .color = true}),
            Paint{true}.yellow("INCONCLUSIVE") + plain.substr(plain.find(':')));
}

TEST(TextReport, NotesAreBrief) {
  verify::Report report = report_of_ranks(2);
  verify::Finding note;
  note.rule = verify::RuleId::missing_rank;
  note.severity = verify::Severity::note;
  note.message = "rank 2's trace is not there";
  note.fix = "collect it";
  report.findings = {note};
  EXPECT_EQ(text_report(report, inline_run({})),
            R"(CLEAN: nothing wrong in 2 ranks, 1,234 events

NOTE missing-rank
  rank 2's trace is not there
  do     collect it
)");
}

TEST(TextReport, ManyFindingsAreCounted) {
  verify::Report report = report_of_ranks(2);
  report.verdict = verify::Verdict::findings;
  report.findings.assign(30, text_only_rank());
  const std::string text = text_report(report, inline_run({}), {.max_findings = 2});
  EXPECT_NE(text.find("FINDINGS: 30 errors in 2 ranks"), std::string::npos);
  EXPECT_NE(text.find("and 28 more findings; --output json=PATH has them all\n"),
            std::string::npos);
}

TEST(TextReport, ManyPiecesOfEvidenceAreFolded) {
  verify::Report report = report_of_ranks(2);
  report.verdict = verify::Verdict::findings;
  verify::Finding finding = text_only_rank();
  for (std::int32_t rank = 3; rank < 40; ++rank)
    finding.evidence.push_back({trace::Rank(rank), rank, "", "call " + std::to_string(rank)});
  report.findings = {finding};
  EXPECT_NE(text_report(report, inline_run({})).find("         and 35 more like these\n"),
            std::string::npos);
}

TEST(TextReport, OnDemandEachCallHasItsGroupShapesAndStack) {
  trace::Run run = inline_run({all_reduce(3, "w", 8), all_reduce(3, "w", 8)});
  run.ranks[0].calls.own()[0].stack = run.tables.strings.intern("a.py:2 reduce\nmlp.py:14 forward");
  verify::Report report = report_of_ranks(2);
  report.verdict = verify::Verdict::findings;
  verify::Finding finding = text_only_rank();
  finding.evidence = {{trace::Rank(0), 3, "", "waits"}};
  for (std::int32_t rank = 3; rank < 40; ++rank)
    finding.evidence.push_back({trace::Rank(rank), rank, "", "call " + std::to_string(rank)});
  report.findings = {finding};
  const std::string text = text_report(report, run, {.stacks = true});
  EXPECT_NE(text.find("rank 0 (id 3): waits\n"
                      "           group world, [8]\n"
                      "           a.py:2 reduce\n"
                      "           mlp.py:14 forward\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("call 39"), std::string::npos) << "and nothing is left out";
  EXPECT_EQ(text_report(report, run).find("mlp.py"), std::string::npos);
}

TEST(TextReport, ADamagedFileIsNamed) {
  verify::Report report = report_of_ranks(2);
  report.verdict = verify::Verdict::inconclusive;
  verify::Finding note;
  note.rule = verify::RuleId::damaged_trace;
  note.severity = verify::Severity::note;
  note.message = "1 record could not be used";
  note.ranks = ranks_of({1});
  note.evidence = {{trace::Rank(1), std::nullopt, "dumps/rank_1", "cut off (byte 2999)"}};
  report.findings = {note};
  EXPECT_NE(text_report(report, {}).find("  seen   rank 1 at dumps/rank_1: cut off (byte 2999)\n"),
            std::string::npos);
}

TEST(TextReport, ConsequencesAreBrief) {
  verify::Report report = report_of_ranks(2);
  report.verdict = verify::Verdict::findings;
  verify::Finding finding = text_only_rank();
  for (int i = 0; i < 400; ++i) finding.consequences[0].message += " and ever";
  report.findings = {finding};
  const std::string text = text_report(report, inline_run({}));
  EXPECT_NE(text.find(".. (deadlock)\n"), std::string::npos);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 20);
}

// Two groups of ranks that wait for each other need four lines.
TEST(TextReport, ADeadlockOfTwoGroupsIsWholeInText) {
  verify::Report report = report_of_ranks(2);
  verify::Finding finding = text_only_rank();
  finding.consequences[0].message =
      "ranks 0, 2 wait in all_reduce(logit_scale) (call 50 of group image_branch, step 2, "
      "manual.cc:59) for ranks 1, 3; ranks 1, 3 wait in all_reduce(text.token.weight) (call 62 of "
      "group text_branch, step 2, manual.cc:59) for ranks 0, 2";
  report.findings = {finding};
  EXPECT_NE(text_report(report, inline_run({})).find(" for ranks 0, 2 (deadlock)\n"),
            std::string::npos);
}

TEST(TextReport, NamesALongFolderOnce) {
  const std::string folder = "/mnt/shared/alice/projects/llm/src/";
  verify::Report report = report_of_ranks(3);
  report.findings = {text_only_rank()};
  report.findings[0].evidence[0].at = folder + "tensor_parallel/mappings.py:226";
  report.findings[0].evidence[1].at = folder + "tensor_parallel/mappings.py:226";
  report.findings[0].evidence[2].at = folder + "trainer.py:41";
  report.findings[0].message += " (" + folder + "trainer.py:41)";
  report.findings[0].consequences[0].message += " at " + folder + "trainer.py:41";
  const std::string text = text_report(report, {});
  EXPECT_NE(text.find("\n  source files are in " + folder + "\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tensor_parallel/mappings.py:226 and"), std::string::npos) << text;
  EXPECT_EQ(text.find(folder), text.rfind(folder)) << text;

  // Nothing is saved where they share little, and nothing is to share with a relative path.
  report.findings[0].evidence[2].at = "/mnt/other/trainer.py:41";
  EXPECT_EQ(text_report(report, {}).find("source files"), std::string::npos);
  report.findings[0].evidence[2].at = "trainer.py:41";
  EXPECT_EQ(text_report(report, {}).find("source files"), std::string::npos);
}

TEST(TextReport, StaysWithinTheWidthWithLongNamesAndManyRanks) {
  verify::Report report = report_of_ranks(4000);
  report.verdict = verify::Verdict::findings;
  verify::Finding finding = text_only_rank();
  finding.what.assign(200, "image_encoder." + std::string(200, 'y') + ".weight");
  for (std::int32_t rank = 0; rank < 4000; ++rank)
    (rank % 3 == 0 ? finding.culprits : report.ranks_missing).emplace_back(rank);
  finding.ranks = report.ranks_read;
  report.findings = {finding};
  for (const std::size_t width : {60U, 80U, 120U})
    EXPECT_LE(widest_line(text_report(report, inline_run({}), {.width = width})), width);
}

TEST(TextReport, ColorsOnlyWhenAsked) {
  verify::Report report = report_of_ranks(2);
  EXPECT_EQ(text_report(report, inline_run({})).find('\x1b'), std::string::npos);
  EXPECT_NE(text_report(report, inline_run({}), {.color = true}).find("\x1b[1;32mCLEAN\x1b[0m"),
            std::string::npos);
}

TEST(TextReport, ControlCharactersFromATraceAreNotPrinted) {
  verify::Report report = report_of_ranks(1);
  report.verdict = verify::Verdict::findings;
  verify::Finding finding = text_only_rank();
  finding.message = "\x1b]0;owned\x07";
  finding.group = "\x1b[2J";
  finding.what = {"\x1b[31m"};
  finding.evidence = {{trace::Rank(0), 1, "\x1b", "\x1b\n\n"}};
  report.findings = {finding};
  const std::string text = text_report(report, inline_run({}));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::reports
