// One rank's calls in two runs.
#include <gmock/gmock.h>

#include "tests/support/trace_text.h"
#include "verify/compare_runs.h"

namespace lockstep::verify {
namespace {

constexpr const char* kHead = R"({"header":1,"rank":0,"world_size":2}
{"group":"world","ranks":[0,1]}
)";

std::string call(int id, const std::string& size, const std::string& what) {
  return R"({"ev":"issue","id":)" + std::to_string(id) +
         R"(,"g":"world","op":"all_reduce","dtype":["float32"],"redop":"sum","in":[[)" + size +
         R"(]],"what":[")" + what + "\"]}\n";
}

CallComparison compared(const std::string& a, const std::string& b) {
  const auto run_a = run_from_text({kHead + a});
  const auto run_b = run_from_text({kHead + b});
  return compare_calls(run_a, 0, run_b, 0);
}

TEST(CompareCalls, EqualOnesAreTheSame) {
  const std::string calls = call(0, "4", "a.w") + call(1, "8", "b.w");
  const CallComparison c = compared(calls, calls);
  EXPECT_TRUE(c.same());
  EXPECT_EQ(c.equal, 2U);
  EXPECT_FALSE(c.a || c.b);
}

TEST(CompareCalls, ARunThatWasStoppedDidTheBeginning) {
  const CallComparison c = compared(call(0, "4", "a.w") + call(1, "8", "b.w"), call(0, "4", "a.w"));
  EXPECT_FALSE(c.same());
  EXPECT_TRUE(c.b_is_beginning());
  EXPECT_TRUE(c.a && !c.b);
  EXPECT_FALSE(
      compared(call(0, "4", "a.w"), call(0, "4", "a.w") + call(1, "8", "b.w")).b_is_beginning());
}

TEST(CompareCalls, SizeAndIdentityCount) {
  const CallComparison size = compared(call(0, "4", "a.w"), call(0, "5", "a.w"));
  EXPECT_EQ(size.equal, 0U);
  EXPECT_THAT(*size.a, ::testing::HasSubstr("in=4,"));
  EXPECT_FALSE(compared(call(0, "4", "a.w"), call(0, "4", "b.w")).b_is_beginning());
}

}  // namespace
}  // namespace lockstep::verify
