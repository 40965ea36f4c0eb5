#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/text.h"
#include "reports/findings/reports.h"
#include "tests/reports/html/page_reader.h"
#include "tests/reports/samples.h"
#include "tests/support/trace_lines.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Page page_of(const trace::Run& run) { return read_page(html_report(verify::verify(run), run)); }

// Rank 1's batch has no image, so that it skips the call for the image branch.
trace::Run skips_image() {
  const auto rank = [](bool image) {
    std::vector<std::string> has = {"text"};
    if (image) has.insert(has.begin(), "image");
    std::string out = json_line({{"ev", "modality"}, {"n", 0}, {"has", has}});
    out += all_reduce(0, "text.weight", 64, {{"step", 0}, {"at", "train.py:41"}}) + complete(0);
    if (image) out += all_reduce(1, "image.weight", 64, {{"step", 0}, {"at", "train.py:43"}});
    return out + all_reduce(2, "head.weight", 32, {{"step", 0}, {"at", "train.py:45"}}) + kHung;
  };
  return inline_run({rank(true), rank(false), rank(true)});
}

// Rank 1's parameter diverges from the others' in step 2.
trace::Run parts() {
  const auto rank = [](bool other) {
    std::string out = all_reduce(0, "w", 8) + complete(0);
    for (int n = 0; n < 4; ++n) {
      const bool differs = other && n >= 2;
      out += json_line({{"ev", "step"}, {"n", n}, {"loss", 4 - n}}) +
             json_line({{"ev", "state"},
                        {"n", n},
                        {"name", "w"},
                        {"norm", differs ? 7.5 : 1.25},
                        {"hash", differs ? "bb" : "aa"}});
    }
    return out + kClean;
  };
  return inline_run({rank(false), rank(true), rank(false)});
}

TEST(HtmlReport, ACleanRunSaysSoAndShowsNoPictures) {
  const std::string rank = all_reduce(0, "w", 8) + complete(0) + kClean;
  const Page page = page_of(inline_run({rank, rank}));
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_THAT(page.texts("h1"), ElementsAre("Nothing is wrong"));
  EXPECT_THAT(page.text, HasSubstr("clean"));
  EXPECT_EQ(page.count("svg"), 0U);
  EXPECT_EQ(page.count("article"), 0U);
}

TEST(HtmlReport, BeginsWithTheVerdictAndTheCause) {
  const Page page = page_of(skips_image());
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_THAT(page.texts("h1"), ElementsAre("1 error in 3 ranks"));
  ASSERT_GT(page.texts("h2").size(), 1U);
  EXPECT_EQ(page.texts("h2")[0], "Who waits for whom");
  EXPECT_THAT(page.texts("h2")[1], HasSubstr("ank 1"));
  EXPECT_THAT(page.texts("h3")[0], HasSubstr("What to do"));
  std::size_t before = page.text.find(page.texts("h2")[1]);
  for (const char* later : {"What to do", "The calls around it", "Call by call", "Every rank",
                            "What the batches held", "This run", "Proven"}) {
    EXPECT_GT(page.text.find(later, before), before) << later;
    EXPECT_NE(page.text.find(later, before), std::string::npos) << later;
    before = page.text.find(later, before);
  }
  EXPECT_THAT(page.text, HasSubstr("train.py:43")) << "source lines";
}

TEST(HtmlReport, ADateIsNotBroken) {
  verify::Finding finding = full_finding();
  finding.headline = "rank 2 stopped at 22:41:33 UTC on 2026-11-21 before call 70";
  const std::string page = html_report(report_of({finding}), {});
  EXPECT_THAT(page, HasSubstr(" on <span class=\"whole\">2026-11-21</span> before call 70</h1>"));
  EXPECT_THAT(read_page(page).errors, IsEmpty());
}

TEST(HtmlReport, SaysWhoStoppedAndWhatToRunNextAboveAll) {
  verify::Finding finding = full_finding();
  finding.headline = "rank 2 (node4) stopped 10 min ago";
  finding.next = "ssh node4 py-spy dump --pid 7";
  const Page page = read_page(html_report(report_of({finding}), {}));
  EXPECT_THAT(page.texts("h1"), ElementsAre("Rank 2 (node4) stopped 10 min ago"));
  EXPECT_LT(page.text.find("ssh node4 py-spy dump --pid 7"), page.text.find("1 error in 3 ranks"));
}

// 4 groups of 2; rank 5 stops.
trace::Run pairs() {
  std::vector<std::string> files;
  for (int r = 0; r < 8; ++r) {
    const std::string group = std::to_string(1 + r / 2);
    std::string file =
        header_line(r, 8, {{"host", fmt::format("node{}", r / 4)}, {"gpu", 10 + r % 4}}) +
        group_line(group, {r / 2 * 2, r / 2 * 2 + 1}, {{"desc", "TENSOR_PARALLEL"}});
    if (r != 5) file += issue_line(0, group, "all_reduce", {{"in", {{8}}}, {"at", "mlp.py:7"}});
    if (r < 4 || r > 5) file += complete(0);
    files.push_back(file + kHung);
  }
  return run_from_text(files);
}

TEST(HtmlReport, HasNoCellsWhereNothingSetsARankApart) {
  const auto rank = [](const std::string& hash) {
    return json_line({{"ev", "state"}, {"n", 0}, {"name", "w"}, {"norm", 1}, {"hash", hash}}) +
           kClean;
  };
  const trace::Run run = inline_run({rank("a"), rank("b")});
  const verify::Report report = verify::verify(run);
  ASSERT_FALSE(report.findings.empty());
  ASSERT_THAT(report.findings[0].culprits, IsEmpty());
  EXPECT_THAT(html_report(report, run), Not(HasSubstr("id=\"ranks\"")));
}

TEST(HtmlReport, HasACellAndARowForEveryRank) {
  const std::string text = html_report(verify::verify(pairs()), pairs());
  const Page page = read_page(text);
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_THAT(page.texts("h2"), Contains("Every rank, by TENSOR_PARALLEL"));
  EXPECT_THAT(page.labels, Contains("ranks 4,5")) << "a row of cells per group";
  for (int r = 0; r < 8; ++r) {
    EXPECT_TRUE(page.ids.contains(fmt::format("rank-{}", r)));
    EXPECT_THAT(page.links, Contains(fmt::format("#rank-{}", r)));
  }
  EXPECT_THAT(text, HasSubstr("<a class=\"bad\" href=\"#rank-5\" title=\""));
  EXPECT_THAT(text, HasSubstr("<a class=\"direct\" href=\"#rank-4\" title=\"waits\">"));
  EXPECT_THAT(page.texts("span"), Contains("culprit: 1"));
  EXPECT_THAT(page.texts("th"), Contains("GPU"));
  EXPECT_THAT(page.texts("td"), Contains("node1"));
  EXPECT_THAT(page.texts("td"), Contains("13"));
  EXPECT_THAT(page.texts("td"), Contains("mlp.py:7"));
}

// 2 groups of 4, and 4 across them; rank 5 stops. In a narrow window the graph is a list.
TEST(HtmlReport, TheNarrowListFoldsWhoWaitsForTheSame) {
  std::vector<std::string> files;
  for (int r = 0; r < 8; ++r) {
    const auto call = [&](int id, const std::string& group, int bytes) {
      return issue_line(id, group, "all_reduce", {{"in", {{bytes}}}});
    };
    const std::string own = std::to_string(1 + r / 4), across = std::to_string(3 + r % 4);
    const int first = r / 4 * 4;
    files.push_back(
        header_line(r, 8) + group_line(own, {first, first + 1, first + 2, first + 3}) +
        group_line(across, {r % 4, r % 4 + 4}) +
        // Rank 5 makes no call, its group's others hang in theirs, and the rest one later.
        (r == 5 ? ""
                : call(0, own, 8) + (r > 4 || r == 4 ? "" : complete(0) + call(1, across, 9))) +
        kHung);
  }
  const Page page = page_of(run_from_text(files));
  EXPECT_THAT(page.texts("li"), Contains(AllOf(HasSubstr("ranks 4,6,7"), HasSubstr("for rank 5"))));
  EXPECT_THAT(page.texts("li"), Contains(AllOf(HasSubstr("ranks 0,2,3"), HasSubstr("3 calls like"),
                                               HasSubstr("for ranks 4,6,7"))));
}

// Five calls are wider than a phone; the one that is missing must be seen without scrolling.
TEST(HtmlReport, ANarrowWindowShowsTheDifference) {
  std::string calls;
  for (int id = 0; id < 4; ++id) calls += all_reduce(id, "w", 8) + complete(id);
  const std::string waits = calls + all_reduce(4, "w", 8) + kHung;
  const trace::Run run = inline_run({waits, calls + kHung, waits});
  const std::string text = html_report(verify::verify(run), run);
  const std::size_t begin = text.find("<div class=\"narrow\"><svg");
  ASSERT_NE(begin, std::string::npos);
  const std::string picture = text.substr(begin, text.find("</svg>", begin) - begin);
  EXPECT_THAT(picture, HasSubstr("never called"));
  EXPECT_THAT(picture, HasSubstr("width=\"340\""));
  EXPECT_THAT(read_page(text).errors, IsEmpty());
}

// Four stages wait for one another and the last for the one that stopped: a chain, not four boxes.
TEST(HtmlReport, FoldsAPipelinesChainOfWaitingStages) {
  std::vector<std::string> stages = {kHung};
  for (int r = 1; r < 12; ++r)
    stages.push_back(issue_line(0, "world", "recv", {{"in", {{8}}}, {"peer", r - 1}}) + kHung);
  const trace::Run run = inline_run(stages);
  const Page page = page_of(run);
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_THAT(page.labels, Contains("rank 1 wait for rank 0. ranks 2-11 wait for rank 1. "));
  EXPECT_THAT(page.texts("text"), Contains("ranks 2-11"));
  EXPECT_THAT(page.texts("li"), Contains(HasSubstr("each for the one before, for rank 1")));
}

TEST(HtmlReport, AGridWithoutCallsIsNotDrawn) {
  verify::Finding finding = full_finding();
  finding.seq = 0;
  const Page page =
      read_page(html_report(report_of({finding}), inline_run({kHung, kHung, kClean})));
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_THAT(page.texts("h3"), Not(Contains("The calls around it")));
}

TEST(HtmlReport, ShowsWholeStacksOnDemand) {
  trace::Run run =
      inline_run({all_reduce(0, "w", 8) + kHung, kHung, all_reduce(0, "w", 8) + kHung});
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}})
    run.ranks[r].calls.own()[0].stack =
        run.tables.strings.intern("a.py:2 reduce\nmlp.py:140 forward");
  const Page page = page_of(run);
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_THAT(page.texts("summary"), Contains("Stack of rank 0"));
  EXPECT_THAT(page.texts("pre"), Contains(HasSubstr("mlp.py:140 forward\n")));
}

TEST(HtmlReport, DrawsALanePerKindOfRankAndListsItsCallsInFull) {
  const Page page = page_of(skips_image());
  EXPECT_THAT(page.texts("text"), Contains("ranks 0,2"));
  EXPECT_THAT(page.texts("text"), Contains("rank 1"));
  EXPECT_THAT(page.texts("text"), Contains("waits"));
  EXPECT_GT(page.count("path"), 0U) << "calls that match are joined";
  EXPECT_THAT(page.texts("title"), Contains(HasSubstr("ranks 0,2: all_reduce, text.weight")));
  EXPECT_FALSE(page.links.empty()) << "every box leads to its row of the table";
}

TEST(HtmlReport, TheTableOfCallsHasTheWholeNames) {
  const auto rank = [](int elements) {
    return issue_line(0, "world", "all_reduce",
                      {{"in", {{elements}}}, {"what", {"a.weight", "b.weight", "c.weight"}}}) +
           kHung;
  };
  const Page page = page_of(inline_run({rank(8), rank(9), rank(8)}));
  EXPECT_THAT(page.texts("text"), Contains("a.weight +2"));
  EXPECT_THAT(page.texts("code"), Contains(HasSubstr("a.weight, b.weight and c.weight")));
}

TEST(HtmlReport, PutsBothSequencesSideBySide) {
  const std::string text = html_report(verify::verify(skips_image()), skips_image());
  EXPECT_THAT(read_page(text).text, HasSubstr("Call by call"));
  EXPECT_THAT(text, HasSubstr("<td class=\"in\"><span class=\"sign\">+</span>"
                              "<code>all_reduce(image.weight)</code>"));
  EXPECT_THAT(text, HasSubstr("class=\"empty\"")) << "rank 1 called nothing there";
}

TEST(HtmlReport, ShowsWhatTheBatchesHeld) {
  const Page page = page_of(skips_image());
  EXPECT_THAT(page.texts("h2"), Contains("What the batches held"));
  EXPECT_THAT(page.texts("span"), Contains("no image"));
  const std::string rank = all_reduce(0, "w", 8) + complete(0) + kClean;
  EXPECT_THAT(page_of(inline_run({rank})).text, Not(HasSubstr("batches")));
}

TEST(HtmlReport, ShowsWhoWaitsForWhom) {
  const std::string waits = all_reduce(0, "w", 8) + kHung;
  const Page page = page_of(inline_run({waits, kClean, waits}));
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_THAT(page.texts("h2"), Contains("Who waits for whom"));
  EXPECT_THAT(page.texts("text"), Contains("finished"));
  EXPECT_THAT(page.labels, Contains("ranks 0,2 wait for rank 1. "));
}

TEST(HtmlReport, ShowsValuesAndWhereTheyDiverge) {
  const Page page = page_of(parts());
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_THAT(page.texts("h3"), Contains("loss mean over the ranks"));
  EXPECT_THAT(page.texts("h3"), Contains("w parameter"));
  EXPECT_EQ(page.count("polyline"), 3U) << "the loss, and two norms";
  EXPECT_THAT(page.labels,
              Contains("w, parameter, between 1.25 and 7.5; ranks differ from step 2"));
}

TEST(HtmlReport, SaysWhatIsNotKnownAndWhatWasSetAside) {
  const Page page = read_page(html_report(crowded_report(), {}));
  EXPECT_THAT(page.errors, IsEmpty());
  for (const char* title :
       {"Not known from these traces", "Found, but set aside", "About the filter"})
    EXPECT_THAT(page.texts("h2"), Contains(title));
  EXPECT_THAT(page.text, HasSubstr("Reason: TICKET-1 <i>"));
  EXPECT_EQ(page.count("nav"), 1U) << "several findings have a table of contents";
}

TEST(HtmlReport, TextFromTracesIsOnlyEverText) {
  const std::string evil = "\"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\u202e";
  const auto rank = [&](int elements) {
    return group_line(evil, {0, 1}) + json_line({{"ev", "modality"}, {"n", 0}, {"has", {evil}}}) +
           issue_line(0, evil, "all_reduce",
                      {{"in", {{elements}}},
                       {"dtype", evil},
                       {"redop", evil},
                       {"what", {evil}},
                       {"at", evil},
                       {"tag", evil},
                       {"step", 0}}) +
           json_line({{"ev", "state"}, {"n", 0}, {"name", evil}, {"norm", 1}, {"hash", "a"}}) +
           kHung;
  };
  const trace::Run run = inline_run({rank(8), rank(9)});
  FilteredReport report = verify::verify(run);
  report.report.findings.push_back(hostile_finding());
  const std::string text = html_report(report, run);
  const Page page = read_page(text);
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_EQ(page.count("script"), 1U) << "the page's own";
  for (const char* tag : {"img", "iframe", "object", "form", "link", "base"})
    EXPECT_EQ(page.count(tag), 0U) << tag;
  EXPECT_EQ(page.count("style"), 1U);
  EXPECT_THAT(page.text, HasSubstr("<script>alert(1)</script>")) << "seen as it was written";
  EXPECT_EQ(text, to_utf8(text));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(HtmlReport, LoadsNothing) {
  const trace::Run run = skips_image();
  const std::string text = html_report(verify::verify(run), run);
  const Page page = read_page(text);
  EXPECT_THAT(page.errors, IsEmpty());
  for (const std::string& link : page.links) EXPECT_EQ(link.substr(0, 1), "#") << link;
  for (const char* from : {"src=", "http:", "https:", "@import", "url("})
    EXPECT_THAT(text, Not(HasSubstr(from)));
}

TEST(HtmlReport, TheFirstOfManyFindingsAreInFullAndNoneIsLost) {
  std::vector<verify::Finding> findings;
  for (int i = 0; i < 30; ++i)
    findings.push_back(
        finding_of(verify::RuleId::deadlock, verify::Severity::error, fmt::format("event {}", i)));
  const Page page = read_page(html_report(report_of(findings), {}));
  EXPECT_THAT(page.errors, IsEmpty());
  EXPECT_EQ(page.count("article"), 12U);
  EXPECT_THAT(page.texts("h2"), Contains("Further findings"));
  EXPECT_THAT(page.texts("td"), Contains("event 29"));
}

TEST(HtmlReport, TheSizeForAVeryLargeJobFollowsTheNumberOfDifferentRanks) {
  std::vector<std::string> ranks(
      5000, all_reduce(0, "w", 8) + complete(0) + all_reduce(1, "image", 8) + kHung);
  const auto size = [](const std::vector<std::string>& traces) {
    const trace::Run run = inline_run(traces);
    return html_report(verify::verify(run), run).size();
  };
  ranks[7] = all_reduce(0, "w", 8) + complete(0) + kClean;
  const std::vector<std::string> few(ranks.begin(), ranks.begin() + 8);
  EXPECT_LT(size(ranks), size(few) + 2000);
  // Below that every rank has its cell and its row.
  ranks.resize(1024);
  EXPECT_LT(size(ranks), 420'000U);
}

TEST(HtmlReport, RunsInEveryStateMakeAPage) {
  const std::string done = all_reduce(0, "w", 8) + complete(0);
  for (const std::string& end : {kClean, kHung, std::string("{\"end\":\"killed\"}\n"),
                                 std::string("{\"end\":\"exception\"}\n"), std::string()}) {
    for (const std::string& rank : {done, done + all_reduce(1, "b", 8), std::string()}) {
      EXPECT_THAT(page_of(inline_run({done + all_reduce(1, "b", 8) + kHung, rank + end})).errors,
                  IsEmpty())
          << rank << end;
    }
  }
  EXPECT_THAT(page_of({}).errors, IsEmpty());
}

}  // namespace
}  // namespace lockstep::reports
