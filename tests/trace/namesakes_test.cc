// Groups that have a name in common and nothing else are told apart when a run is put together.
#include <set>

#include <gtest/gtest.h>

#include "tests/support/trace_text.h"
#include "trace/groups.h"

namespace lockstep::trace {
namespace {

// A rank of four that declares group "1" and calls barrier in it.
std::string rank(int r, const std::string& group) {
  return R"({"header":1,"rank":)" + std::to_string(r) + R"(,"world_size":4})" + "\n" +
         R"({"group":"1","ranks":)" + group + "}\n" +
         R"({"ev":"issue","id":0,"g":"1","op":"barrier"})" + "\n";
}

using Names = std::set<std::string>;

Names names_in(const Run& run) {
  Names out;
  for (const RankTrace& trace : run.ranks) {
    for (const auto& m : trace.groups) out.insert(run.tables.str(m.group));
    for (const Call& call : trace.calls) {
      EXPECT_EQ(call.group, trace.groups.at(0).group) << "a call stays in its group";
    }
  }
  return out;
}

TEST(Namesakes, ListsWithoutACommonRankAreDifferentGroups) {
  EXPECT_EQ(names_in(run_from_text(
                {rank(0, "[0,2]"), rank(1, "[1,3]"), rank(2, "[0,2]"), rank(3, "[1,3]")})),
            (Names{"1 [0, 2]", "1 [1, 3]"}));
}

TEST(Namesakes, OneListIsOneGroup) {
  EXPECT_EQ(names_in(run_from_text({rank(0, "[0,1]"), rank(1, "[0,1]")})), Names{"1"});
}

TEST(Namesakes, ListsThatOverlapAreOneGroupThatRanksDisagreeAbout) {
  EXPECT_EQ(names_in(run_from_text({rank(0, "[0,1]"), rank(1, "[1,2]")})), Names{"1"});
}

TEST(Namesakes, AListThatARankOutsideGivesSaysThatItIsOneGroup) {
  EXPECT_EQ(names_in(run_from_text({rank(0, "[0,1]"), rank(1, "[2,3]")})), Names{"1"});
}

TEST(Namesakes, LongListsKeepDifferentNames) {
  EXPECT_EQ(names_in(run_from_text({R"({"header":1,"rank":0,"world_size":12}
{"group":"1","ranks":[0,1,2,3,4,5]})",
                                    R"({"header":1,"rank":6,"world_size":12}
{"group":"1","ranks":[6,7,8,9,10,11]})"})),
            (Names{"1 [0, 1, 2, 3, …]", "1 [6, 7, 8, 9, …]"}));
}

TEST(Namesakes, ThereIsOneWorld) {
  EXPECT_EQ(names_in(run_from_text({R"({"header":1,"rank":0,"world_size":4}
{"group":"world","ranks":[0,1]})",
                                    R"({"header":1,"rank":2,"world_size":4}
{"group":"world","ranks":[2,3]})"})),
            Names{"world"});
}

}  // namespace
}  // namespace lockstep::trace
