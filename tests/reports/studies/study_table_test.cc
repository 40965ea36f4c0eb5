#include "reports/studies/study_table.h"

#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/tables.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;

std::vector<Combination> combinations() {
  Combination base;
  base.strategy = "DDP";
  base.completed = true;
  base.end = "completed";
  base.repeats = 2;
  base.step_ms = Spread{40, 38, 44};
  base.bytes_per_step = Spread{2e5, 2e5, 2e5};
  base.peak_bytes = Spread{3e8, 3e8, 3e8};
  base.loss = Spread{1.25, 1.2, 1.3};
  base.recall_at_1 = Spread{0.5, 0.4, 0.6};
  Combination dummies = base;
  dummies.remedy = "dummy images";
  dummies.bytes_per_step = Spread{2.5e5, 2.5e5, 2.5e5};
  dummies.accuracy.emplace();
  dummies.accuracy->gradient_error = 1.5e-7;
  dummies.accuracy->image_drift = 0.002;
  Combination none;
  none.strategy = "DDP";
  none.remedy = "none";
  none.end = "missing-participant at step 1";
  Combination impossible;
  impossible.strategy = "FSDP";
  impossible.remedy = "find unused | parameters\x1b[31m";
  impossible.impossible = "it is an option of ddp";
  return {base, dummies, none, impossible};
}

TEST(StudyTable, TextFitsATerminalAndSaysAll) {
  for (const std::size_t width : {80U, 120U, 200U}) {
    std::istringstream lines(study_text(combinations(), width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << line;
  }
  const std::string text = study_text(combinations(), 80);
  EXPECT_THAT(text, HasSubstr("1.5e-07"));
  EXPECT_THAT(text, HasSubstr("244 (+48.8)"));
  EXPECT_THAT(text, HasSubstr("40 ±3"));
  EXPECT_THAT(text, HasSubstr("missing-participant at step 1"));
  EXPECT_THAT(text, HasSubstr("no such job: it is an option of ddp"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\x1b")));
}

TEST(StudyTable, MarkdownHasARowForEach) {
  const std::string text = study_markdown(combinations());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  EXPECT_THAT(text, HasSubstr("| DDP | (no image missing) | completed |"));
  EXPECT_THAT(text, HasSubstr("find unused &#124; parameters"));
}

TEST(StudyTable, JsonHasTheNumbers) {
  const auto json = nlohmann::json::parse(study_json(combinations()));
  ASSERT_EQ(json.size(), 4U);
  EXPECT_TRUE(json[0]["remedy"].is_null());
  EXPECT_EQ(json[1]["bytes_per_step"]["median"], 2.5e5);
  EXPECT_EQ(json[1]["gradient_error"], 1.5e-7);
  EXPECT_TRUE(json[2]["step_ms"].is_null());
  EXPECT_EQ(json[3]["impossible"], "it is an option of ddp");
}

}  // namespace
}  // namespace lockstep::reports
