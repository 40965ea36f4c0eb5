#include "reports/table.h"

#include <gmock/gmock.h>

#include "tests/reports/html/page_reader.h"

namespace lockstep::reports {
namespace {

Table sample() {
  Table out({{"rank", Column::number}, {"call", Column::code}, {"state"}});
  out.add({"7", "all_reduce(w)", "waits"}, {"rank-7", "bad"});
  out.add({"-12", "a|b, \"c\" <i>", "=1+1"});
  return out;
}

TEST(Table, IsAlignedAsText) {
  EXPECT_EQ(sample().text(),
            "rank  call           state\n"
            "   7  all_reduce(w)  waits\n"
            " -12  a|b, \"c\" <i>   =1+1\n");
  EXPECT_EQ(sample().text(80, 2).substr(0, 8), "  rank  ");
}

TEST(Table, ANarrowTerminalShortensWordsAndNoNumber) {
  EXPECT_EQ(sample().text(21),
            "rank  call      state\n"
            "   7  all..(w)  waits\n"
            " -12  a|b..<i>  =1+1\n");
}

TEST(Table, AColumnThatMayWrapLosesNothing) {
  Table out({{"row", Column::number}, {.name = "label", .wrapped = true}, {"end"}});
  out.add({"1", "8B, 8 GPUs, t\u00a01 d\u00a08", "x"});
  out.add({"20", "short", "y"});
  EXPECT_EQ(out.text(80),
            "row  label                end\n"
            "  1  8B, 8 GPUs, t 1 d 8  x\n"
            " 20  short                y\n");
  EXPECT_EQ(out.text(25),
            "row  label            end\n"
            "  1  8B, 8 GPUs, t 1  x\n"
            "       d 8\n"
            " 20  short            y\n");
  // A word that is too wide is shortened, as in other columns.
  Table narrow({{.name = "", .wrapped = true}});
  narrow.add({"abcdefghijkl"});
  EXPECT_EQ(narrow.text(8), "abc..jkl\n");
}

TEST(Table, HasAColumnPerCellInMarkdown) {
  EXPECT_EQ(sample().markdown(),
            "| rank | call | state |\n|---:|---|---|\n"
            "| 7 | <code>all_reduce(w)</code> | waits |\n"
            "| &#45;12 | <code>a&#124;b, \"c\" &lt;i&gt;</code> | &#61;1+1 |\n");
}

TEST(Table, IsSafeToOpenInASpreadsheet) {
  EXPECT_EQ(sample().csv(),
            "rank,call,state\r\n7,all_reduce(w),waits\r\n"
            "-12,\"a|b, \"\"c\"\" <i>\",\"'=1+1\"\r\n");
}

TEST(Table, OfManyColumnsNamesEachCellForPhones) {
  Table wide(
      {{"place", Column::number}, {"strategy", Column::code}, {"step"}, {"MFU"}, {"verdict"}});
  wide.add({"1", "ddp", "20.3 s", "", "front"});
  const std::string markup = wide.html("plans");
  EXPECT_THAT(markup, testing::HasSubstr("<table class=\"list\">"));
  EXPECT_THAT(markup, testing::HasSubstr("<td class=\"n\" data-name=\"place\">1</td>"));
  EXPECT_THAT(markup, testing::HasSubstr("<td data-name=\"step\">20.3 s</td><td></td>"))
      << "a cell without text has no name either";
  EXPECT_THAT(sample().html("calls"), testing::Not(testing::HasSubstr("data-name")));
  // The names of a thousand rows would be a third of the page: the script gives them.
  const std::string explored = wide.html("plans", "explore");
  EXPECT_THAT(explored, testing::HasSubstr("<table class=\"explore list\">"));
  EXPECT_THAT(explored, testing::Not(testing::HasSubstr("data-name")));
}

TEST(Table, IsMarkupWithRowsToLinkTo) {
  const std::string markup = sample().html("calls", "explore");
  const Page page = read_page(markup);
  EXPECT_THAT(page.errors, testing::IsEmpty());
  EXPECT_TRUE(page.ids.contains("rank-7"));
  EXPECT_THAT(page.texts("td"), testing::Contains("a|b, \"c\" <i>"));
  EXPECT_THAT(markup, testing::HasSubstr("<table class=\"explore\">"));
  EXPECT_THAT(markup, testing::HasSubstr("<td class=\"n\">7</td>"));
}

}  // namespace
}  // namespace lockstep::reports
