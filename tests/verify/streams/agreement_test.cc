// Whether two calls may belong to one collective: the fast answer is that of the slow one.
#include "verify/streams/agreement.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using trace::Op;

// Signatures of one operation, each field recorded or not, in two values.
std::vector<trace::SignatureId> signatures_of(trace::Tables& tables, Op op) {
  std::vector<trace::SignatureId> out;
  const auto list = [&](std::int64_t n) {
    return n == 0 ? trace::IntListId() : tables.int_lists.intern({1, n});
  };
  const std::vector<std::vector<std::string>> dtypes = {
      {}, {"half"}, {"float", "half"}, {"half", "float"}, {"half", "half", "float"}};
  const auto add = [&](std::int64_t in, std::int64_t sent, std::int64_t count, std::int32_t root,
                       const char* redop, const std::vector<std::string>& types) {
    trace::Signature s;
    s.op = op;
    s.in = list(in);
    s.out = list(sent);
    s.count = count;
    s.root = root;
    if (*redop != 0) s.redop = tables.strings.intern(redop);
    if (!types.empty()) s.dtypes = tables.make_names(types);
    if (count != trace::kNone && in == 4) s.splits_in = list(2);
    out.push_back(tables.make_signature(s));
  };
  for (const std::int64_t in : {0, 4, 5}) {
    for (const std::int64_t sent : {0, 4, 5})
      for (const std::int64_t count : {std::int64_t{trace::kNone}, std::int64_t{4}})
        for (const auto& types : dtypes) add(in, sent, count, trace::kNone, "", types);
    for (const std::int32_t root : {trace::kNone, 0, 1})
      for (const char* redop : {"", "sum", "max"}) add(in, 4, trace::kNone, root, redop, {});
  }
  return out;
}

TEST(Agreement, TheNumberOfASignatureSaysWhatTheFieldsSay) {
  trace::Tables tables;
  std::vector<std::vector<trace::SignatureId>> by_op;
  for (const Op op : {Op::all_reduce, Op::all_gather, Op::all_gather_into_tensor, Op::gather,
                      Op::scatter, Op::all_to_all_single, Op::all_to_all, Op::barrier, Op::send})
    by_op.push_back(signatures_of(tables, op));
  Agreement agreement(tables);
  std::size_t agree = 0, differ = 0;
  for (const auto& ids : by_op) {
    for (const trace::SignatureId a : ids)
      for (const trace::SignatureId b : ids) {
        const bool expected = agreement.differences(a, b) == kSame;
        ++(expected ? agree : differ);
        ASSERT_EQ(agreement.agree(a, b), expected)
            << describe(tables, a) << " and " << describe(tables, b);
      }
    EXPECT_FALSE(agreement.agree(ids[0], by_op[ids == by_op[0] ? 1 : 0][0]));
  }
  EXPECT_GT(agree, 1000U);
  EXPECT_GT(differ, 1000U);
}

// Of 130 ranks each makes calls of sizes of its own in so many groups.
std::vector<std::string> calls_of_own_sizes(int groups) {
  std::vector<std::string> out;
  int size = 1;
  for (int r = 0; r < 130; ++r) {
    std::string program;
    for (int g = 0; g < groups; ++g) {
      const std::string name = "g" + std::to_string(g);
      std::string members = "0";
      for (int m = 1; m < 130; ++m) members += "," + std::to_string(m);
      program += "group " + name + " " + members + "; ";
      for (int i = 0; i < 70; ++i)
        program += "all_reduce n=" + std::to_string(size++) + " g=" + name + "; ";
    }
    out.push_back(program + "clean");
  }
  return out;
}

bool says_that_there_are_more(const Report& report) {
  for (const std::string& line : report.unknown)
    if (line.starts_with("further differences")) return true;
  return false;
}

TEST(Deviations, NotAllAreLookedForInARunOfRandomCalls) {
  // 64 places in each group at which 129 ranks differ: 8,256 of the 8,192 edits that are searched.
  const Report report = verify(program(calls_of_own_sizes(1)));
  EXPECT_EQ(report.verdict, Verdict::findings);
  EXPECT_TRUE(says_that_there_are_more(report));
}

TEST(Deviations, AllAreLookedForIfThereAreFewer) {
  std::vector<std::string> programs = calls_of_own_sizes(1);
  programs.resize(64);
  std::vector<RankProgram> ranks;
  for (std::size_t r = 0; r < programs.size(); ++r)
    ranks.push_back({static_cast<std::int32_t>(r), programs[r]});
  const Report report = verify(run_of(ranks, 130));
  EXPECT_EQ(report.verdict, Verdict::findings);
  EXPECT_FALSE(says_that_there_are_more(report));
}

}  // namespace
}  // namespace lockstep::verify
