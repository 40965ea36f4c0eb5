#include <algorithm>
#include <cctype>

#include <gmock/gmock.h>

#include "reports/findings/reports.h"
#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(MarkdownText, LeavesNothingWithAMeaning) {
  EXPECT_EQ(markdown_text("a|b"), "a&#124;b");
  EXPECT_EQ(markdown_text("<i>&amp;"), "&lt;i&gt;&#38;amp;");
  EXPECT_EQ(markdown_text("__init__"), "&#95;&#95;init&#95;&#95;");
  EXPECT_EQ(markdown_text("@me #1"), "&#64;&#8203;me &#35;&#8203;1");
  EXPECT_EQ(markdown_text("a\nb"), "a&#92;x0ab") << "one line";
  EXPECT_EQ(markdown_text("https://e.com www.e.com"), "https&#58;//e.com www&#46;e.com");
  EXPECT_EQ(markdown_text("[a](b) [a][b] ![c]"), "&#91;a&#93;(b) [a&#93;[b] ![c]");
  EXPECT_EQ(markdown_text(":100: :tada:"), "&#58;100: &#58;tada:");
  EXPECT_EQ(markdown_text("- a"), "&#45; a");
  EXPECT_EQ(markdown_text("1. a"), "1&#46; a");
  EXPECT_EQ(markdown_text("[ ] a"), "&#91; ] a");
  EXPECT_EQ(
      markdown_text("$x$ ~~y~~ `z` *w* {{v}}"),
      "&#36;x&#36; &#126;&#126;y&#126;&#126; &#96;z&#96; &#42;w&#42; &#123;&#123;v&#125;&#125;");
}

// Whoever reads the source of a summary reads words.
TEST(MarkdownText, KeepsWhatHasNone) {
  for (const char* text :
       {"rank 2, step 3", "all_reduce([8388608] bfloat16) at train.py:41 (id 7)", "gr\xc3\xbcn",
        "image.proj.weight; ranks 0-7, 64-71", "it waits: 63 ranks, 45.3 % of \"them\"!", "a=b+c",
        "at 07:55:42 UTC", "who: rank 2"})
    EXPECT_EQ(markdown_text(text), text);
}

// No character that could begin something is left, alone or between blanks.
TEST(MarkdownText, HoldsForEveryCharacter) {
  for (int c = 1; c < 128; ++c) {
    const std::string out = markdown_text(std::string(1, static_cast<char>(c)));
    if (out.size() == 1) {
      EXPECT_TRUE(std::isalnum(c) != 0 ||
                  std::string(" ,;/'\"()%?!:]").find(out) != std::string::npos)
          << out;
    } else {
      EXPECT_THAT(out, testing::MatchesRegex("(&#?[a-z0-9]+;[a-z0-9]*)+")) << c;
    }
  }
}

TEST(MarkdownReport, ACleanRunIsTwoLines) {
  EXPECT_EQ(markdown_report(report_of({}), {}),
            "## Lockstep: clean\n\nNothing wrong in 3 ranks, 1,234 events.\n");
}

TEST(MarkdownReport, HasATableAndTheFirstFindingInFull) {
  const std::string text = markdown_report(report_of({full_finding()}), {});
  EXPECT_THAT(text, StartsWith("## Lockstep: findings\n\n1 error in 3 ranks"));
  EXPECT_THAT(text, HasSubstr("|---|---|---|---|---|---|\n| error | missing-collective | proven | "
                              "rank 2 | group world, seq 7, step 3 | rank 2 never issued "
                              "all_reduce |\n"));
  EXPECT_THAT(text, HasSubstr("### Error: `missing-collective`\n"));
  EXPECT_THAT(text, HasSubstr("- **who:** rank 2; concerns ranks 0,1 too\n"));
  EXPECT_THAT(text, HasSubstr("- **what:** <code>image.proj.weight</code>, "));
  EXPECT_THAT(text, HasSubstr("<details><summary>Evidence</summary>\n\n- rank 0 at <code>"));
}

TEST(MarkdownReport, BeginsWithWhoStoppedAndWhatToRunNext) {
  verify::Finding finding = full_finding();
  finding.headline = "rank 2 (node4) stopped 10 min ago";
  finding.next = "ssh node4 py-spy dump --pid 7";
  EXPECT_THAT(markdown_report(report_of({finding}), {}),
              StartsWith("## Lockstep: findings\n\n**Rank 2 (node4) stopped 10 min ago.**\n\n"
                         "Next: <code>ssh node4 py-spy dump --pid 7</code>\n\n1 error in 3 ranks"));
}

TEST(MarkdownReport, DrawsThePictureInACodeBlock) {
  const trace::Run run = inline_run({all_reduce(0, "``` <b>", 8), all_reduce(0, "b", 8)});
  verify::Finding finding = full_finding();
  finding.seq = 0;
  finding.ranks = ranks_of({0, 1});
  finding.culprits = ranks_of({1});
  const std::string text = markdown_report(report_of({finding}), run);
  EXPECT_THAT(text, HasSubstr("\n````text\ngroup world")) << "longer than the run in the name";
  EXPECT_THAT(text, HasSubstr("\n````\n"));
}

TEST(MarkdownReport, HostileTextMakesNoMarkup) {
  const std::string text = markdown_report(crowded_report(), {});
  for (const char* bad : {"<script>", "](", "**b**", "@me", "http:", "<i>", "<b>", "{0}", "\x1b"})
    EXPECT_THAT(text, Not(HasSubstr(bad))) << bad;
  EXPECT_EQ(std::count(text.begin(), text.end(), '<'), std::count(text.begin(), text.end(), '>'));
  // Every row of the table has its six cells.
  std::size_t begin = text.find("| error");
  for (; text[begin] == '|'; begin = text.find('\n', begin) + 1) {
    const std::string row = text.substr(begin, text.find('\n', begin) - begin);
    EXPECT_EQ(std::count(row.begin(), row.end(), '|'), 7) << row;
  }
}

TEST(MarkdownReport, FoldsAwayWhatIsSetAsideAndUnknown) {
  const std::string text = markdown_report(crowded_report(), {});
  EXPECT_THAT(text, HasSubstr("<details><summary>Found, but set aside (2)</summary>"));
  EXPECT_THAT(text, HasSubstr("Reason: TICKET-1"));
  EXPECT_THAT(text, HasSubstr("<details><summary>Not known from these traces (2)</summary>"));
  EXPECT_THAT(text, HasSubstr("<details><summary>About the filter (1)</summary>"));
}

}  // namespace
}  // namespace lockstep::reports
