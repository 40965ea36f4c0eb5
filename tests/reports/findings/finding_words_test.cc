#include "reports/findings/finding_words.h"

#include <gtest/gtest.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "tests/reports/inline_run.h"

namespace lockstep::reports {
namespace {

TEST(Columns, CountsCodePoints) {
  EXPECT_EQ(columns_of("image"), 5U);
  EXPECT_EQ(columns_of("größe"), 5U);
  EXPECT_EQ(columns_of(""), 0U);
}

TEST(Columns, ShortenMiddleKeepsBothEnds) {
  EXPECT_EQ(shorten_middle("text_proj.weight", 16), "text_proj.weight");
  EXPECT_EQ(shorten_middle("image_encoder.layer1.0.conv1.weight", 16), "image_e...weight");
  EXPECT_EQ(shorten_middle("äöüßäöüß", 6), "äö..üß");
  EXPECT_EQ(shorten_middle("weight", 2), "..");
  EXPECT_EQ(shorten_middle("weight", 0), "");
}

TEST(Columns, ShortenEndCutsAtABlank) {
  EXPECT_EQ(shorten_end("rank 0 waits", 12), "rank 0 waits");
  EXPECT_EQ(shorten_end("rank 0 waits for rank 1", 12), "rank 0 ..");
  EXPECT_EQ(shorten_end("image_encoder.conv1.weight", 10), "image_e ..");
  EXPECT_EQ(shorten_end("äöüß äöüß", 8), "äöüß ..");
}

TEST(Columns, PadRightNeverCuts) {
  EXPECT_EQ(pad_right("é", 3), "é  ");
  EXPECT_EQ(pad_right("weight", 3), "weight");
}

TEST(Columns, GroupsThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(12345678), "12,345,678");
}

TEST(Columns, RankLabelFitsAndNeverCutsANumber) {
  EXPECT_EQ(rank_label(ranks_of({7})), "rank 7");
  EXPECT_EQ(rank_label(ranks_of({0, 2, 3, 4})), "ranks 0,2-4");
  std::vector<std::int32_t> even;
  for (std::int32_t rank = 0; rank < 1024; rank += 2) even.push_back(rank);
  EXPECT_EQ(rank_label(ranks_of(even), 22), "512 ranks: 0,2,..");
  EXPECT_EQ(rank_label(ranks_of(even), 28), "512 ranks: 0,2,.. every 2nd");
  EXPECT_EQ(rank_label(ranks_of(even)), "ranks 0,2,...,1022 (every 2nd)");
}

}  // namespace
}  // namespace lockstep::reports
