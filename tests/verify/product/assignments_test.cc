// as_program(): ranks that share one list of calls, as those of a large derived job do.
#include "verify/product/assignments.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>

#include "tests/verify/program.h"
#include "trace/spread.h"

namespace lockstep::verify {
namespace {

TEST(AsProgram, GivesEachOfManyRanksThatDoTheSameItsCalls) {
  constexpr std::int32_t kRanks = 70;
  trace::Run two =
      run_of({{0, "backend gloo; all_reduce g=world n=4 redop=sum; all_gather g=world n=4; clean"},
              {1, "backend gloo; all_reduce g=world n=4 redop=sum; all_gather g=world n=4; clean"}},
             kRanks);
  std::vector<std::int32_t> traced(kRanks, 1);
  traced.front() = 0;
  const Result<trace::Run> whole = trace::spread(std::move(two), traced, 0);
  ASSERT_TRUE(whole) << whole.error().str();

  const trace::Run program = as_program(*whole);
  ASSERT_EQ(program.ranks.size(), whole->ranks.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const trace::RankTrace& rank = program.ranks[r];
    EXPECT_EQ(rank.rank.value, static_cast<std::int32_t>(r));
    EXPECT_EQ(rank.calls.size(), 2U) << "rank " << r;
    EXPECT_EQ(rank.end, trace::End::clean) << "rank " << r;
    EXPECT_EQ(rank.groups.size(), whole->ranks[r].groups.size()) << "rank " << r;
  }
}

}  // namespace
}  // namespace lockstep::verify
