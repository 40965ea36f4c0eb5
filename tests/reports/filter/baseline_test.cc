#include <gmock/gmock.h>

#include "reports/filter/filter.h"
#include "reports/findings/reports.h"
#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;

TEST(BaselineText, HasALinePerFindingAndReadsBack) {
  const std::string text =
      baseline_text(report_of({full_finding(), full_finding(),
                               finding_of(verify::RuleId::deadlock, verify::Severity::error)}));
  EXPECT_EQ(text, R"({"lockstep_baseline":1,"tool":"lockstep 0.1.0","findings":[)"
                  "\n"
                  R"({"fingerprint":"f0f0","rule":"deadlock","message":"it happened"},)"
                  "\n"
                  R"({"fingerprint":"00c0ffee00c0ffee","rule":"missing-collective",)"
                  R"("message":"rank 2 never issued all_reduce"})"
                  "\n]}\n");
  const auto read = parse_baseline(text, "b.json");
  ASSERT_TRUE(read) << read.error().str();
  EXPECT_THAT(*read, testing::ElementsAre("00c0ffee00c0ffee", "f0f0"));
}

TEST(BaselineText, KeepsWhatIsKnownAndLeavesOutWhatIsSuppressed) {
  FilteredReport report = report_of({});
  report.set_aside = {{full_finding(), SetAside::Why::known, "", ""},
                      {hostile_finding(), SetAside::Why::suppressed, "", ""}};
  const std::string text = baseline_text(report);
  EXPECT_THAT(text, HasSubstr("missing-collective"));
  EXPECT_THAT(text, testing::Not(HasSubstr("size-mismatch")));
}

TEST(BaselineText, TakesHostileTextAndNoFindings) {
  EXPECT_TRUE(parse_baseline(baseline_text(report_of({hostile_finding()})), ""));
  const auto none = parse_baseline(baseline_text(report_of({})), "");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
}

TEST(ParseBaseline, SaysWhatIsWrongAndWhere) {
  const auto error = [](const std::string& text) {
    const auto read = parse_baseline(text, "b.json");
    return read ? "none" : read.error().str();
  };
  EXPECT_EQ(error("{\"lockstep_baseline\":1,\n\"findings\":[}"),
            "b.json:2:13: error: the baseline is not valid JSON\n"
            "  fix: write it again with --write-baseline");
  EXPECT_THAT(error(""), HasSubstr("b.json:1:1: error: "));
  EXPECT_THAT(error("[]"), HasSubstr("not a baseline"));
  EXPECT_THAT(error(R"({"report":1,"findings":[]})"), HasSubstr("not a baseline"));
  EXPECT_THAT(error(R"({"lockstep_baseline":2,"findings":[]})"), HasSubstr("version is not 1"));
  EXPECT_THAT(error(R"({"lockstep_baseline":1})"), HasSubstr("\"findings\" is missing"));
  EXPECT_THAT(error(R"({"lockstep_baseline":1,"findings":[{"fingerprint":"a"},{"rule":"b"}]})"),
              HasSubstr("finding 2 of the baseline has no \"fingerprint\""));
  EXPECT_THAT(error(R"({"lockstep_baseline":1,"findings":[{"fingerprint":""}]})"),
              HasSubstr("finding 1"));
}

TEST(ParseBaseline, NumbersThatNothingHoldsAreAnError) {
  for (const std::string number : {"1e999", "-1e999", "888888e888"}) {
    SCOPED_TRACE(number);
    for (const std::string& text :
         {number, "{\"lockstep_baseline\":" + number + "}",
          "{\"lockstep_baseline\":1,\"findings\":[{\"fingerprint\":" + number + "}]}"}) {
      const auto read = parse_baseline(text, "b.json");
      ASSERT_FALSE(read);
      EXPECT_EQ(read.error().str(),
                "b.json: error: the baseline holds a number that is out of range\n"
                "  fix: write it again with --write-baseline");
    }
  }
  // Odd, but in range; nor does a fingerprint's text count as a number.
  EXPECT_TRUE(parse_baseline(
      R"({"lockstep_baseline":1.0,"x":1e308,"findings":[{"fingerprint":"1e999"}]})", "b.json"));
}

TEST(ParseBaseline, DamagedFilesAreRefusedAndDeepOnesDoNoHarm) {
  const std::string good = baseline_text(report_of({full_finding()}));
  for (std::size_t cut = 0; cut + 3 < good.size(); ++cut)
    EXPECT_FALSE(parse_baseline(good.substr(0, cut), "")) << cut;
  EXPECT_FALSE(parse_baseline(std::string(1'000'000, '['), ""));
}

TEST(JsonReportOfAFilter, HasTwoMoreKeys) {
  const std::string json = json_report(crowded_report());
  EXPECT_THAT(json, HasSubstr(R"("status":"suppressed","reason":"TICKET-1 <i>",)"
                              R"("expires":"2026-12-31")"));
  EXPECT_THAT(json, HasSubstr(R"("status":"known"}])"));
  EXPECT_THAT(json, HasSubstr(R"("notes":["an entry matches nothing"]})"));
  const FilteredReport plain = report_of({full_finding()});
  EXPECT_EQ(json_report(plain), json_report(plain.report)) << "nothing to say, nothing added";
}

TEST(TextReportOfAFilter, SaysWhatWasSetAside) {
  FilteredReport report = report_of({});
  report.set_aside = crowded_report().set_aside;
  report.notes = {std::string(100, 'x') + " matches nothing"};
  const std::string text = text_report(report, {});
  EXPECT_THAT(text, testing::StartsWith("CLEAN: nothing else wrong in 3 ranks"));
  EXPECT_THAT(text, HasSubstr("\nfound, but set aside\n  - suppressed: warning size-mismatch"));
  EXPECT_THAT(text, HasSubstr("  - known: error missing-collective in group world\n"));
  EXPECT_THAT(text, HasSubstr("\nabout the filter\n"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::reports
