// Tensors of calls, and the bounds on what a trace may ask for.
#include "runtime/replay/tensors.h"

#include <gmock/gmock.h>

#include "tests/runtime/replay/program_words.h"

namespace lockstep::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shapes = std::vector<CallTensors::Shape>;

std::string tensor_call(int id, const std::string& op, const LineKeys& keys) {
  return issue_line(id, "world", op, keys);
}

std::string refused(const std::string& body) {
  const Result<trace::Run> program = replay_program(recorded({body, body}));
  if (!program) return program.error().str();
  const Status ok = check_tensors(*program);
  return ok ? "no error" : ok.error().str();
}

CallTensors tensors(const std::string& body, bool is_root = false) {
  const Result<trace::Run> program = replay_program(recorded({body, body}));
  EXPECT_TRUE(program) << (program ? "" : program.error().str());
  return tensors_of(program->tables, program->ranks[0].calls[0], 2, is_root);
}

TEST(CallTensors, OneSideFollowsFromTheOther) {
  EXPECT_EQ(tensors(tensor_call(0, "all_gather_into_tensor", {{"in", {{3, 2}}}})).out,
            (Shapes{{12}}));
  EXPECT_EQ(tensors(tensor_call(0, "all_gather_into_tensor", {{"out", {{12}}}})).in, (Shapes{{6}}));
  EXPECT_EQ(tensors(tensor_call(0, "reduce_scatter_tensor", {{"in", {{12}}}})).out, (Shapes{{6}}));
  EXPECT_EQ(tensors(tensor_call(0, "all_gather", {{"in", {{3}}}, {"out", {{6}}}})).out,
            (Shapes{{3}, {3}}));
}

TEST(CallTensors, ARootAloneHasTheWhole) {
  const std::string gather = tensor_call(0, "gather", {{"in", {{3}}}, {"root", 0}});
  EXPECT_EQ(tensors(gather, true).out, (Shapes{{3}, {3}}));
  EXPECT_EQ(tensors(gather, false).out, Shapes());
}

TEST(CheckTensors, WhatDoesNotFitIntoMemoryIsRefused) {
  EXPECT_EQ(refused(tensor_call(0, "all_reduce", {{"in", {{1000000}}}})), "no error");
  EXPECT_THAT(refused(tensor_call(0, "all_reduce", {{"in", {{1000000, 1000}}}})),
              HasSubstr("more than 4 GiB at a time"));
  EXPECT_THAT(refused(tensor_call(0, "all_reduce", {{"in", {{INT64_MAX, INT64_MAX}}}})),
              AllOf(HasSubstr("more than 2^40 elements"), HasSubstr("--max-elements")));
}

TEST(CheckTensors, CallsThatAreWaitedForMakeRoom) {
  std::string waits, piles;
  for (int i = 0; i < 40; ++i) {
    waits += tensor_call(i, "all_reduce", {{"in", {{20'000'000}}}});  // 80 MB
    piles += tensor_call(i, "all_reduce", {{"in", {{20'000'000}}}, {"async", true}});
  }
  EXPECT_EQ(refused(waits), "no error");
  EXPECT_THAT(refused(piles + tensor_call(40, "barrier", {{"async", false}})),
              HasSubstr("more than 4 GiB"));
}

TEST(CheckTensors, ManyTensorsOfOneCallCount) {
  const std::vector<std::vector<int>> shapes(9, {1 << 30});
  EXPECT_THAT(refused(tensor_call(0, "all_reduce", {{"in", shapes}})),
              HasSubstr("more than 4 GiB"));
}

TEST(CheckTensors, TypesAndSplitsHaveToBeKnown) {
  EXPECT_THAT(refused(tensor_call(0, "all_reduce", {{"in", {{4}}}, {"dtype", "quaternion"}})),
              HasSubstr("type quaternion"));
  EXPECT_THAT(refused(tensor_call(0, "all_to_all_single", {{"in", {{5}}}, {"out", {{5}}}})),
              HasSubstr("its splits were not recorded"));
  EXPECT_THAT(refused(tensor_call(
                  0, "all_to_all_single",
                  {{"in", {{5}}}, {"out", {{5}}}, {"splits_in", {1, 2}}, {"splits_out", {2, 3}}})),
              HasSubstr("not those of its rows"));
}

}  // namespace
}  // namespace lockstep::runtime
