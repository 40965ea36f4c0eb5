#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "reports/ci/ci_reports.h"
#include "tests/reports/against_schema.h"
#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "sarif-schema-2.1.0.json";

json run_of(const FilteredReport& report, std::string_view root = {}) {
  return json::parse(sarif_report(report, root))["runs"][0];
}

TEST(SarifReport, IsValidWhateverIsInIt) {
  for (const FilteredReport& report : {report_of({}), report_of({full_finding()}), crowded_report(),
                                       inconclusive_report(), report_of({verify::Finding{}})})
    EXPECT_EQ(schema_errors(sarif_report(report, "/job"), kSchema), "");
}

TEST(SarifReport, TheSchemaWouldNoticeAMistake) {
  json broken = json::parse(sarif_report(report_of({full_finding()})));
  broken["runs"][0]["results"][0]["level"] = "fatal";
  EXPECT_NE(schema_errors(broken.dump(), kSchema), "");
}

TEST(SarifReport, ListsEveryRuleWithHelp) {
  const json driver = run_of(report_of({full_finding()}))["tool"]["driver"];
  EXPECT_EQ(driver["name"], "lockstep");
  ASSERT_EQ(driver["rules"].size(), verify::all_rules().size());
  for (std::size_t i = 0; i < verify::all_rules().size(); ++i) {
    EXPECT_EQ(driver["rules"][i]["id"], verify::all_rules()[i].name);
    EXPECT_THAT(driver["rules"][i]["help"]["text"].get<std::string>(),
                testing::HasSubstr("What to do: "));
  }
}

TEST(SarifReport, AResultPointsToItsRuleAndTheCulpritsLocation) {
  const json run = run_of(report_of({full_finding()}));
  const json& result = run["results"][0];
  EXPECT_EQ(result["ruleId"], "missing-collective");
  EXPECT_EQ(run["tool"]["driver"]["rules"][result["ruleIndex"].get<std::size_t>()]["id"],
            "missing-collective");
  EXPECT_EQ(result["level"], "error");
  EXPECT_EQ(result["locations"][0]["physicalLocation"],
            json::parse(R"({"artifactLocation":{"uri":"src/skip.cc"},
                            "region":{"startLine":57,"startColumn":9}})"));
  EXPECT_EQ(result["partialFingerprints"]["lockstepFinding/v1"], "00c0ffee00c0ffee");
  EXPECT_EQ(result["properties"]["culprits"], json::parse("[2]"));
  EXPECT_FALSE(result.contains("baselineState"));
  EXPECT_FALSE(result.contains("suppressions"));
}

TEST(SarifReport, HasAThreadFlowForEachRankThatRecordedLocations) {
  const json flows =
      run_of(report_of({full_finding()}))["results"][0]["codeFlows"][0]["threadFlows"];
  ASSERT_EQ(flows.size(), 2U) << "rank 1 recorded no place";
  EXPECT_EQ(flows[0]["id"], "rank 0");
  EXPECT_EQ(flows[0]["locations"].size(), 2U);
  EXPECT_EQ(flows[0]["locations"][1]["location"]["physicalLocation"]["region"]["startLine"], 121);
  EXPECT_EQ(flows[1]["id"], "rank 2");
}

TEST(SarifReport, WithoutLocationsThereIsNoCodeFlow) {
  verify::Finding finding = full_finding();
  for (verify::Evidence& evidence : finding.evidence) evidence.at = "somewhere in train()";
  const json result = run_of(report_of({finding}))["results"][0];
  EXPECT_FALSE(result.contains("codeFlows"));
  EXPECT_FALSE(result["locations"][0].contains("physicalLocation"));
}

TEST(SarifReport, PathsBecomeUris) {
  verify::Finding finding = full_finding();
  const auto uri = [&](const std::string& at) {
    finding.evidence = {{trace::Rank(2), 1, at, "seen"}};
    return run_of(
        report_of({finding}),
        "/job")["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
  };
  EXPECT_EQ(uri("/job/src/a b%.py:1"), "src/a%20b%25.py");
  EXPECT_EQ(uri("/usr/lib/torch.py:1"), "file:///usr/lib/torch.py");
  EXPECT_EQ(uri("C:\\job\\x.py:1"), "file:///C%3A/job/x.py");
  EXPECT_EQ(uri("javascript:alert(1):1"), "javascript%3Aalert%281%29");
  EXPECT_EQ(uri("gr\xc3\xbcn.py:1"), "gr%C3%BCn.py");
}

TEST(SarifReport, TellsSuppressedFromKnownAndNew) {
  const json results = run_of(crowded_report())["results"];
  ASSERT_EQ(results.size(), 6U);
  EXPECT_EQ(results[0]["baselineState"], "new");
  EXPECT_EQ(results[4]["suppressions"][0]["kind"], "external");
  EXPECT_EQ(results[4]["suppressions"][0]["justification"], "TICKET-1 <i>");
  EXPECT_EQ(results[5]["baselineState"], "unchanged");
  EXPECT_FALSE(results[5].contains("suppressions"));
}

TEST(SarifReport, TextIsNoPlaceholderAndNoLink) {
  verify::Finding finding = full_finding();
  finding.message = "all_reduce([4,4]) of {0} [click](http://e.com)";
  const std::string text = run_of(report_of({finding}))["results"][0]["message"]["text"];
  EXPECT_THAT(text, testing::StartsWith("all_reduce([4,4]) of {{0}} [click\\](http://e.com)\n"));
}

TEST(SarifReport, AnInconclusiveRunSaysSo) {
  const json run = run_of(inconclusive_report());
  EXPECT_TRUE(run["results"].empty());
  EXPECT_THAT(
      run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"].get<std::string>(),
      testing::HasSubstr("no trace of rank 1"));
}

}  // namespace
}  // namespace lockstep::reports
