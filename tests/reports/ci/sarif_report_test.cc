#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "reports/ci/ci_reports.h"
#include "tests/reports/against_schema.h"
#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "sarif-schema-2.1.0.json";

// The repository is checked out in `root`.
Locator checked_out(const std::string& root) { return Locator(Repository{root, root, {}, {}}); }

json run_of(const FilteredReport& report, const std::string& root = {}) {
  return json::parse(sarif_report(report, checked_out(root)))["runs"][0];
}

TEST(SarifReport, IsValidWhateverIsInIt) {
  for (const FilteredReport& report : {report_of({}), report_of({full_finding()}), crowded_report(),
                                       inconclusive_report(), report_of({verify::Finding{}})})
    EXPECT_EQ(schema_errors(sarif_report(report, checked_out("/job")), kSchema), "");
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
  ASSERT_EQ(flows.size(), 2U) << "rank 1 recorded no location";
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
  EXPECT_EQ(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "unknown");
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
  EXPECT_EQ(uri("/usr/lib/torch.py:1"), "usr/lib/torch.py");
  EXPECT_EQ(uri("C:\\job\\x.py:1"), "C%3A/job/x.py");
  EXPECT_EQ(uri("javascript:alert(1):1"), "javascript%3Aalert%281%29");
  EXPECT_EQ(uri("gr\xc3\xbcn.py:1"), "gr%C3%BCn.py");
}

TEST(SarifReport, MarksWhatIsSuppressedKnownAndNew) {
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

// What GitHub's code scanning demands beyond the schema: it refuses a file with a result without a
// location, and does not show results of absolute paths. Its limits:
// https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support
std::vector<std::string> refused_by_github(const json& file) {
  std::vector<std::string> out;
  const auto check = [&](bool good, const std::string& rule) {
    if (!good) out.push_back(rule);
  };
  const auto located = [&](const json& location, const std::string& where) {
    const json physical = location.value("physicalLocation", json::object());
    const std::string uri =
        physical.value("artifactLocation", json::object()).value("uri", std::string());
    check(!uri.empty(), where + ": no artifactLocation.uri");
    check(!uri.starts_with("/") && !uri.starts_with("..") && uri.find("://") == std::string::npos,
          where + ": not relative: " + uri);
    check(physical.value("region", json::object()).value("startLine", 0) >= 1,
          where + ": no startLine");
  };
  check(file["version"] == "2.1.0", "version");
  check(file["runs"].size() <= 20, "20 runs");
  for (const json& run : file["runs"]) {
    check(!run["tool"]["driver"].value("name", std::string()).empty(), "tool.driver.name");
    check(run["tool"]["driver"]["rules"].size() <= 25'000, "25,000 rules");
    for (const json& rule : run["tool"]["driver"]["rules"]) {
      check(rule["id"].get<std::string>().size() <= 255, "rule.id");
      for (const char* key : {"shortDescription", "fullDescription"})
        check(!rule[key]["text"].get<std::string>().empty(), std::string("rule.") + key);
      check(rule["shortDescription"]["text"].get<std::string>().size() <= 1024, "shortDescription");
      check(!rule["help"]["text"].get<std::string>().empty(), "rule.help.text");
      check(rule["properties"]["tags"].size() <= 20, "20 tags");
    }
    check(run["results"].size() <= 25'000, "25,000 results");
    for (const json& result : run["results"]) {
      check(!result["message"].value("text", std::string()).empty(), "message.text");
      check(!result.value("ruleId", std::string()).empty(), "ruleId");
      check(!result["locations"].empty(), "expected at least one location");
      check(result["locations"].size() <= 1000, "1,000 locations");
      for (const json& location : result["locations"]) located(location, "location");
      std::size_t flow_locations = 0;
      for (const json& code : result.value("codeFlows", json::array()))
        for (const json& flow : code["threadFlows"]) {
          check(!flow["locations"].empty(), "an empty threadFlow");
          for (const json& one : flow["locations"]) {
            ++flow_locations;
            located(one["location"], "threadFlow");
            check(one["location"].contains("message"), "threadFlow: no message");
          }
        }
      check(flow_locations <= 10'000, "10,000 threadFlow locations");
    }
  }
  return out;
}

TEST(SarifReport, KeepsTheRulesOfCodeScanning) {
  verify::Finding elsewhere = full_finding();
  elsewhere.evidence[3].at = "/usr/lib/python3/site-packages/torch/x.py:9";
  verify::Finding nowhere = full_finding();
  nowhere.evidence.clear();
  verify::Finding above = full_finding();
  above.evidence = {{trace::Rank(2), 1, "../../x.py:3", "seen"}};
  for (const FilteredReport& report :
       {report_of({}), report_of({full_finding(), elsewhere, nowhere, above}), crowded_report(),
        inconclusive_report(),
        report_of({finding_of(verify::RuleId::deadlock, verify::Severity::error)})})
    for (const char* root : {"", "/job"})
      EXPECT_THAT(refused_by_github(json::parse(sarif_report(report, checked_out(root)))),
                  testing::IsEmpty());
}

TEST(SarifReport, TheRulesWouldNoticeAMistake) {
  const json good = json::parse(sarif_report(report_of({full_finding()})));
  json broken = good;
  broken["runs"][0]["results"][0]["locations"] = json::array();
  EXPECT_THAT(refused_by_github(broken), testing::ElementsAre("expected at least one location"));
  broken = good;
  broken["runs"][0]["results"][0]["locations"][0].erase("physicalLocation");
  EXPECT_THAT(refused_by_github(broken), testing::Contains("location: no artifactLocation.uri"));
  broken = good;
  broken["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] =
      "file:///app/train.py";
  EXPECT_THAT(refused_by_github(broken),
              testing::ElementsAre("location: not relative: file:///app/train.py"));
}

TEST(SarifReport, TheWorstAreWrittenIfThereAreMoreThanGithubTakes) {
  const json run = run_of(report_of(std::vector<verify::Finding>(
      25'003, finding_of(verify::RuleId::deadlock, verify::Severity::error))));
  EXPECT_EQ(run["results"].size(), 25'000U);
  EXPECT_EQ(run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"],
            "3 of 25003 findings are left out");
}

TEST(SarifReport, SaysTheHeadlineFirstAndWhatToRunNext) {
  verify::Finding finding = full_finding();
  finding.headline = "rank 2 (node4) stopped 10 min ago";
  finding.next = "ssh node4 py-spy dump --pid 7";
  const json result = run_of(report_of({finding}))["results"][0];
  EXPECT_THAT(result["message"]["text"].get<std::string>(),
              testing::StartsWith("rank 2 (node4) stopped 10 min ago\n"
                                  "rank 2 never issued all_reduce\nwho: rank 2"));
  EXPECT_EQ(result["properties"]["next"], "ssh node4 py-spy dump --pid 7");
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
