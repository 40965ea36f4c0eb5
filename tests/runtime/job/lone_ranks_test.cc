// Which ranks draw equal batches, as a worker says it.
#include "runtime/job/lone_ranks.h"

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

TEST(DrawnAlike, IsReadAsItWasWritten) {
  const TempDir folder;
  const DrawnAlike drawn{{0, 1, 2}, {0, 1, 0}, {0, 0, 0}};
  folder.write("draws.json", drawn_alike_text(drawn));
  const Result<DrawnAlike> read = read_drawn_alike(folder.file("draws.json"), 3);
  ASSERT_TRUE(read) << read.error().str();
  EXPECT_EQ(*read, drawn);
}

TEST(DrawnAlike, WhatIsNoneIsRefused) {
  const TempDir folder;
  for (const char* text :
       {"", "[]", "{}", R"({"images": [0], "micro_batches": [0], "steps": [0, 1]})",
        R"({"images": [0, 2], "micro_batches": [0, 0], "steps": [0, 0]})",
        R"({"images": [0, -1], "micro_batches": [0, 0], "steps": [0, 0]})",
        R"({"images": [0, "1"], "micro_batches": [0, 0], "steps": [0, 0]})"}) {
    folder.write("draws.json", text);
    EXPECT_FALSE(read_drawn_alike(folder.file("draws.json"), 2)) << text;
  }
  EXPECT_FALSE(read_drawn_alike(folder.file("none.json"), 2));
}

}  // namespace
}  // namespace lockstep::runtime
