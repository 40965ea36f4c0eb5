#include "reports/findings/markdown_report.h"

#include <algorithm>
#include <cctype>

#include <gmock/gmock.h>

#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(MarkdownText, LeavesNothingWithAMeaning) {
  EXPECT_EQ(markdown_text("rank 2, step 3"), "rank 2, step 3");
  EXPECT_EQ(markdown_text("a|b"), "a&#124;b");
  EXPECT_EQ(markdown_text("<i>&amp;"), "&#60;i&#62;&#38;amp;");
  EXPECT_EQ(markdown_text("__init__"), "&#95;&#95;init&#95;&#95;");
  EXPECT_EQ(markdown_text("@me #1"), "&#64;&#8203;me &#35;&#8203;1");
  EXPECT_EQ(markdown_text("a\nb"), "a&#92;x0ab") << "one line";
  EXPECT_EQ(markdown_text("gr\xc3\xbcn"), "gr\xc3\xbcn");
}

// Every ASCII character but letters, digits and a few harmless ones is a reference.
TEST(MarkdownText, HoldsForEveryCharacter) {
  for (int c = 1; c < 128; ++c) {
    std::string out = markdown_text(std::string(1, static_cast<char>(c)));
    if (out.size() == 1) {
      EXPECT_TRUE(std::isalnum(c) != 0 || std::string(" ,;/'").find(out) != std::string::npos)
          << out;
      continue;
    }
    out.erase(
        std::remove_if(out.begin(), out.end(),
                       [](char k) { return std::isalnum(static_cast<unsigned char>(k)) != 0; }),
        out.end());
    EXPECT_THAT(out, testing::MatchesRegex("(&#;)+")) << c;
  }
}

TEST(MarkdownReport, ACleanRunIsTwoLines) {
  EXPECT_EQ(markdown_report(report_of({}), {}),
            "## Lockstep: clean\n\nNothing wrong in 3 ranks, 1,234 events.\n");
}

TEST(MarkdownReport, HasATableAndTheFirstFindingInFull) {
  const std::string text = markdown_report(report_of({full_finding()}), {});
  EXPECT_THAT(text, StartsWith("## Lockstep: findings\n\n1 error in 3 ranks"));
  EXPECT_THAT(text,
              HasSubstr("|---|---|---|---|---|---|\n| error | `missing-collective` | proven | "
                        "rank 2 | group world, seq 7, step 3 | rank 2 never issued "
                        "all&#95;reduce |\n"));
  EXPECT_THAT(text, HasSubstr("### Error: `missing-collective`\n"));
  EXPECT_THAT(text, HasSubstr("- **who:** rank 2; concerns ranks 0,1 too\n"));
  EXPECT_THAT(text, HasSubstr("- **what:** <code>image&#46;proj&#46;weight</code>, "));
  EXPECT_THAT(text, HasSubstr("<details><summary>Evidence</summary>\n\n- rank 0 at <code>"));
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
  EXPECT_THAT(text, HasSubstr("Reason&#58; TICKET&#45;1"));
  EXPECT_THAT(text, HasSubstr("<details><summary>Not known from these traces (2)</summary>"));
  EXPECT_THAT(text, HasSubstr("<details><summary>About the filter (1)</summary>"));
}

}  // namespace
}  // namespace lockstep::reports
