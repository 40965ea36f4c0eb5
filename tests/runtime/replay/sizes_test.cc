// Small tensors whose sizes agree and differ as the large ones did.
#include "runtime/replay/sizes.h"

#include <gmock/gmock.h>

#include "tests/runtime/replay/program_words.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

TEST(SizeClasses, EqualStaysEqualAndLargerStaysLarger) {
  SizeClasses sizes(8);
  for (const std::int64_t n : {1000000, 4, 5, 999999, 1000000, 0}) sizes.add(n);
  ASSERT_TRUE(sizes.settle());
  EXPECT_EQ(sizes.small(0), 0);
  EXPECT_EQ(sizes.small(4), 4);
  EXPECT_EQ(sizes.small(5), 5);
  EXPECT_EQ(sizes.small(999999), 6);
  EXPECT_EQ(sizes.small(1000000), 7);
}

TEST(SizeClasses, TooManySizesAreTooMany) {
  SizeClasses sizes(4);
  for (const std::int64_t n : {10, 20, 30}) sizes.add(n);
  EXPECT_FALSE(sizes.settle());
}

trace::Run shrunk(const std::string& call, std::int64_t max) {
  auto run = recorded({call, call});
  const Status ok = shrink_sizes(run, max);
  EXPECT_TRUE(ok) << (ok ? "" : ok.error().str());
  return run;
}

const trace::Signature& signature(const trace::Run& run) {
  return run.tables.signatures[run.ranks[0].calls[0].signature];
}

TEST(ShrinkSizes, AGatherKeepsItsRelation) {
  const auto run = shrunk(R"({"ev":"issue","id":0,"g":"world","op":"all_gather_into_tensor",)"
                          R"("in":[[500,4]],"out":[[1000,4]]})"
                          "\n"
                          R"({"group":"world","ranks":[0,1]})",
                          64);
  EXPECT_EQ(signature(run).in_elements, 33);
  EXPECT_EQ(signature(run).out_elements, 66);
}

TEST(ShrinkSizes, RowsOfAnAllToAllStay) {
  const auto run =
      shrunk(R"({"ev":"issue","id":0,"g":"world","op":"all_to_all_single",)"
             R"("in":[[5,4096]],"out":[[5,4096]],"splits_in":[2,3],"splits_out":[2,3]})"
             "\n"
             R"({"group":"world","ranks":[0,1]})",
             16);
  EXPECT_EQ(run.tables.int_lists[signature(run).in], (trace::IntList{5, 9, -1}));
}

TEST(ShrinkSizes, RefusesWhereThereIsNoRoom) {
  std::string calls;
  for (int i = 0; i < 4; ++i) {
    calls += issue_line(i, "world", "broadcast", {{"in", {{100 + i}}}});
  }
  auto run = recorded({calls, calls});
  const Status refused = shrink_sizes(run, 4);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().str(), HasSubstr("more different sizes than fit below 4 elements"));
}

}  // namespace
}  // namespace lockstep::runtime
