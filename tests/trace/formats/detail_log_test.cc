// PyTorch's DETAIL messages about collectives that do not fit together.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

std::string fingerprint(int seq, const std::string& op, const std::string& shape) {
  return "CollectiveFingerPrint(SequenceNumber=" + std::to_string(seq) + ", OpType=" + op +
         ", TensorShape=[" + shape +
         "], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), "
         "device=cuda))";
}

std::string detail_message(int rank, const std::string& own, int other, const std::string& others) {
  return "[rank" + std::to_string(rank) +
         "]: RuntimeError: Detected mismatch between collectives on ranks. Rank " +
         std::to_string(rank) + " is running collective: " + own + ", but Rank " +
         std::to_string(other) + " is running collective: " + others +
         ".Collectives differ in the following aspects: \t Op type: x vs y\n";
}

TEST(DetailLog, TheFewAreNamed) {
  const std::string reduce = fingerprint(7, "ALLREDUCE", "10");
  const std::string broadcast = fingerprint(7, "BROADCAST", "10");
  const std::string log = detail_message(0, reduce, 2, broadcast) +
                          detail_message(1, reduce, 2, broadcast) +
                          detail_message(2, broadcast, 0, reduce);
  EXPECT_THAT(judged(run_of(detail_log_format(), {{"job.log", log}})),
              HasSubstr("op-mismatch world#6 by 2"));
}

TEST(DetailLog, Shapes) {
  const std::string ten = fingerprint(1, "ALLREDUCE", "10");
  const std::string log = detail_message(0, ten, 1, fingerprint(1, "ALLREDUCE", "12")) +
                          detail_message(2, ten, 1, fingerprint(1, "ALLREDUCE", "12"));
  EXPECT_THAT(judged(run_of(detail_log_format(), {{"job.log", log}})),
              HasSubstr("size-mismatch world#0 by 1"));
}

TEST(DetailLog, NobodyOfTwoRanksIsSingledOut) {
  const std::string log =
      detail_message(0, fingerprint(1, "ALLREDUCE", "10"), 1, fingerprint(1, "BARRIER", ""));
  EXPECT_THAT(judged(run_of(detail_log_format(), {{"job.log", log}})),
              HasSubstr("op-mismatch world#0 by"));
}

TEST(DetailLog, NumbersAloneShowNoFault) {
  // PyTorch's own, of a barrier: https://github.com/pytorch/pytorch/issues/148976
  const std::string log =
      detail_message(1, "CollectiveFingerPrint(SequenceNumber=1OpType=BARRIER)", 2,
                     "CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER)");
  const std::string said = judged(run_of(detail_log_format(), {{"job.log", log}}));
  EXPECT_THAT(said, HasSubstr("inconclusive"));
  const auto run = run_of(detail_log_format(), {{"job.log", log}});
  EXPECT_THAT(run.ranks[0].inconclusive, HasSubstr("1 by rank 1 and 0 by rank 2"));
  // A version that tells no number shows no difference.
  const std::string untold =
      detail_message(1, "CollectiveFingerPrint(SequenceNumber=1OpType=BARRIER)", 2,
                     "CollectiveFingerPrint(OpType=BARRIER)");
  EXPECT_EQ(run_of(detail_log_format(), {{"job.log", untold}}).ranks[0].inconclusive, "");
  // Where the calls differ, too, the numbers change nothing.
  const std::string other =
      detail_message(0, fingerprint(7, "ALLREDUCE", "10"), 1, fingerprint(6, "BROADCAST", "10"));
  EXPECT_THAT(judged(run_of(detail_log_format(), {{"job.log", other}})), HasSubstr("op-mismatch"));
}

TEST(DetailLog, SurvivesDamage) {
  survives_damage(detail_log_format(), detail_message(0, fingerprint(7, "ALLREDUCE", "10, 2"), 1,
                                                      fingerprint(7, "BROADCAST", "10")));
}

}  // namespace
}  // namespace lockstep::trace
