#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "reports/findings/reports.h"
#include "tests/reports/inline_run.h"

namespace lockstep::reports {
namespace {

verify::Report report_with(verify::Finding finding) {
  verify::Report report;
  report.verdict = verify::Verdict::findings;
  report.ranks_expected = 2;
  report.ranks_read = ranks_of({0, 1});
  report.events = 12;
  report.findings.push_back(std::move(finding));
  return report;
}

TEST(JsonReport, HasTheContractsKeysInTheContractsOrder) {
  verify::Finding finding;
  finding.rule = verify::RuleId::missing_collective;
  finding.certainty = verify::Certainty::proven;
  finding.group = "world";
  finding.seq = 7;
  finding.step = 3;
  finding.culprits = ranks_of({1});
  finding.ranks = ranks_of({0, 1});
  finding.what = {"image.proj.weight"};
  finding.message = "rank 1 never issued all_reduce";
  finding.evidence = {{trace::Rank(1), 16, "trainer.cc:120", "issued barrier instead"}};
  finding.fix = "issue it";
  finding.fingerprint = "c0ffee";
  verify::Report report = report_with(finding);
  report.unknown = {"root: not recorded"};

  EXPECT_EQ(
      json_report(report),
      R"({"report":1,"tool":"lockstep 0.1.0","verdict":"findings",)"
      R"("ranks":{"expected":2,"read":2,"missing":[],"damaged":[]},"events":12,"findings":[)"
      R"({"rule":"missing-collective","severity":"error","certainty":"proven","group":"world",)"
      R"("seq":7,"step":3,"culprits":[1],"ranks":[0,1],"what":["image.proj.weight"],)"
      R"("message":"rank 1 never issued all_reduce","evidence":[{"rank":1,"id":16,)"
      R"("at":"trainer.cc:120","text":"issued barrier instead"}],"fix":"issue it",)"
      R"("fingerprint":"c0ffee"}],"unknown":["root: not recorded"]})"
      "\n");
}

TEST(JsonReport, LeavesOutWhatIsNotKnown) {
  verify::Finding finding;
  finding.evidence = {{trace::Rank(0), std::nullopt, "", "seen"}};
  const auto json = nlohmann::json::parse(json_report(report_with(finding)));
  const auto& written = json["findings"][0];
  for (const char* key : {"group", "seq", "step", "consequences"})
    EXPECT_FALSE(written.contains(key)) << key;
  for (const char* key : {"id", "at"}) EXPECT_FALSE(written["evidence"][0].contains(key)) << key;
}

TEST(JsonReport, HasGroupAndShapesOfACall) {
  const trace::Run run = inline_run(
      {R"({"ev":"issue","id":4,"g":"9","op":"all_gather_into_tensor","in":[[2,3]],"out":[[4,3]]})"
       "\n",
       ""});
  verify::Finding finding;
  finding.evidence = {{trace::Rank(0), 4, "a.py:7", "waits"},
                      {trace::Rank(1), std::nullopt, "", "-"}};
  const auto json = nlohmann::json::parse(json_report(report_with(finding), &run));
  const auto& evidence = json["findings"][0]["evidence"];
  EXPECT_EQ(evidence[0]["group"], "9");
  EXPECT_EQ(evidence[0]["in"].dump(), "[[2,3]]");
  EXPECT_EQ(evidence[0]["out"].dump(), "[[4,3]]");
  EXPECT_FALSE(evidence[1].contains("group"));
}

TEST(JsonReport, NestsConsequences) {
  verify::Finding cause;
  cause.rule = verify::RuleId::modality_divergence;
  cause.consequences.emplace_back();
  cause.consequences.back().rule = verify::RuleId::size_mismatch;
  const auto json = nlohmann::json::parse(json_report(report_with(cause)));
  EXPECT_EQ(json["findings"].size(), 1U);
  EXPECT_EQ(json["findings"][0]["consequences"][0]["rule"], "size-mismatch");
}

TEST(JsonReport, ListsMissingAndDamagedRanks) {
  verify::Report report;
  report.verdict = verify::Verdict::inconclusive;
  report.ranks_expected = 4;
  report.ranks_read = ranks_of({0, 1});
  report.ranks_missing = ranks_of({2, 3});
  report.ranks_damaged = ranks_of({1});
  const auto ranks = nlohmann::json::parse(json_report(report))["ranks"];
  EXPECT_EQ(ranks.dump(), R"({"damaged":[1],"expected":4,"missing":[2,3],"read":2})");
}

TEST(JsonReport, BytesThatAreNoUtf8DoNotMatter) {
  verify::Finding finding;
  finding.what = {"im\xff\xfe.weight"};
  finding.message = std::string("a\0b\n", 4);
  const auto json = nlohmann::json::parse(json_report(report_with(finding)));
  EXPECT_EQ(json["findings"][0]["what"][0], "im\uFFFD\uFFFD.weight");
  EXPECT_EQ(json["findings"][0]["message"], std::string("a\0b\n", 4));
}

}  // namespace
}  // namespace lockstep::reports
