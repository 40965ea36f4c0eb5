#include "runtime/launch/run_folder.h"

#include <gmock/gmock.h>

#include "tests/runtime/launch/launch_testing.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RunFolder, is_named_after_the_scenario_and_the_time) {
  EXPECT_EQ(run_folder_name("scenarios/modality/manual_hang_bad.yaml", 1'000'000'000),
            "manual_hang_bad-20010909T014640Z");
}

TEST(RunFolder, holds_a_copy_of_the_scenario) {
  const TempDir tmp;
  std::ofstream(tmp.file("a.yaml")) << "{lockstep: 1, name: a}\n";
  const auto folder = make_run_folder(tmp.file("x/y"), *load_scenario(tmp.file("a.yaml")), false);
  ASSERT_TRUE(folder);
  EXPECT_EQ(TempDir::read(*folder + "/scenario.yaml"), "{lockstep: 1, name: a}\n");
}

TEST(RunFolder, of_an_earlier_run_is_not_used_again) {
  const TempDir tmp;
  const Scenario scenario;
  std::ofstream(tmp.file("rank_0.ring")) << "x";
  const auto refused = make_run_folder(tmp.path(), scenario, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the folder holds the traces of an earlier run");
  const auto renamed = make_run_folder(tmp.path(), scenario, true);
  ASSERT_TRUE(renamed);
  EXPECT_EQ(*renamed, tmp.path() + "-2");
  std::filesystem::remove_all(*renamed);
}

TEST(RunFolder, that_cannot_be_made_is_an_error) {
  EXPECT_FALSE(make_run_folder("/proc/nowhere/run", Scenario{}, true));
}

TEST(LastLines, are_few_and_printable) {
  const TempDir tmp;
  std::ofstream(tmp.file("log")) << "one\ntwo\n\nthr\x1b"
                                 << "ee\n";
  EXPECT_THAT(last_lines(tmp.file("log"), 2), ElementsAre("two", "thr\\x1bee"));
  EXPECT_THAT(last_lines(tmp.file("log"), 9), ElementsAre("one", "two", "thr\\x1bee"));
  EXPECT_THAT(last_lines(tmp.file("none"), 9), IsEmpty());
}

}  // namespace
}  // namespace lockstep::runtime
