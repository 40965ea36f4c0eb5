#include "runtime/launch/run_folder.h"
#include "tests/runtime/launch/launch_testing.h"

namespace lockstep::runtime {
namespace {

TEST(WorkerNumbers, are_read_as_the_worker_writes_them) {
  const TempDir tmp;
  std::ofstream(tmp.file("r.json")) << R"({"rank": 0, "steps": 3, "first_loss": 2.5,
      "last_loss": 1.25, "losses": [2.5, 2, 1.25], "step_ms_median": 40.5,
      "samples_per_s": 99, "recording_share": 0.001, "idle_share": 0.25,
      "data_wait_share": 0.125, "skipped_items": 3, "peak_rss_bytes": 1000,
      "retrieval": {"recall_at_1": 0.5, "recall_at_5": 0.75, "chance": 0.02, "items": 50,
                    "image_sketches": [0.5, -1]}, "error": null})";
  const auto numbers = read_worker_numbers(tmp.file("r.json"));
  ASSERT_TRUE(numbers);
  EXPECT_EQ(numbers->steps, 3);
  EXPECT_DOUBLE_EQ(*numbers->last_loss, 1.25);
  EXPECT_DOUBLE_EQ(numbers->recording_share, 0.001);
  EXPECT_DOUBLE_EQ(numbers->idle_share.value(), 0.25);
  EXPECT_DOUBLE_EQ(numbers->data_wait_share, 0.125);
  EXPECT_EQ(numbers->skipped_items, 3);
  ASSERT_TRUE(numbers->retrieval);
  EXPECT_DOUBLE_EQ(numbers->retrieval->recall_at_1, 0.5);
  EXPECT_EQ(numbers->retrieval->image_sketches, (std::vector<double>{0.5, -1}));
}

TEST(WorkerNumbers, what_is_damaged_or_of_another_type_is_left_out) {
  const TempDir tmp;
  std::ofstream(tmp.file("cut.json")) << R"({"rank": 0, "ste)";
  EXPECT_FALSE(read_worker_numbers(tmp.file("cut.json")));
  EXPECT_FALSE(read_worker_numbers(tmp.file("none.json")));
  std::ofstream(tmp.file("odd.json")) << R"({"steps": "x", "first_loss": [], "retrieval": 1})";
  const auto odd = read_worker_numbers(tmp.file("odd.json"));
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->steps, 0);
  EXPECT_FALSE(odd->first_loss);
  EXPECT_FALSE(odd->idle_share);
  EXPECT_FALSE(odd->retrieval);
}

}  // namespace
}  // namespace lockstep::runtime
