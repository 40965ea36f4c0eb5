// What PyTorch's analysis of dumps says.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/evidence/evidence_testing.h"
#include "trace/evidence/evidence.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

const std::string kMissing =
    "Not all ranks joining collective, sequence number: 41\n"
    "internal record id: 40\n"
    "group info: 0:default_pg\n"
    "collective: nccl:all_reduce\n"
    "missing ranks: {2, 3}\n"
    "world size: 4\n"
    "expected ranks: {0, 1, 2, 3}\n"
    "collective state: scheduled\n"
    "collective stack trace: \n"
    " all_reduce at /x/torch/distributed/distributed_c10d.py:2707\n"
    "sync at /home/u/model.py:65\n";

const std::string kErrors =
    "Collective sequence number: 7 has errors\n"
    "group info: 3:tp\n"
    "collective: nccl:broadcast\n"
    "error msg: Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected sizes: [[4]]\n";

TEST(Analyses, TellWhoDidNotJoin) {
  const std::string said =
      " analysis @1: by torchfrtrace it did not join all_reduce (call 41 of group "
      "default_pg) in all_reduce (/x/torch/distributed/distributed_c10d.py:2707), called from sync "
      "(/home/u/model.py:65); 4 ranks expected in it";
  EXPECT_EQ(notes_of(analysis_source(), kMissing), "rank 2" + said + "\nrank 3" + said);
  EXPECT_EQ(analysis_source().read({kMissing, "f", std::nullopt}).world_size, 4);
  EXPECT_THAT(notes_of(analysis_source(),
                       "Not all ranks joining collective 5 at entry 4\ngroup info: 0:default_pg\n"
                       "collective: nccl:all_reduce\nmissing ranks: {1}\nexpected ranks: 2\n"),
              HasSubstr("rank 1 analysis @1: by torchfrtrace it did not join all_reduce "
                        "(call 5 of group default_pg)"));
}

// It takes the first rank's call for the right one.
TEST(Analyses, NameNoCulpritOfAMismatch) {
  EXPECT_THAT(notes_of(analysis_source(), kErrors + kMissing),
              testing::StartsWith("some rank analysis @1: by torchfrtrace ranks called "
                                  "differently in broadcast (call 7 of group tp): Culprit rank 1"));
}

TEST(Analyses, OtherTextIsNone) {
  EXPECT_FALSE(analysis_source().recognises("missing ranks: {1}\n", "f"));
  EXPECT_FALSE(analysis_source().recognises("Not all ranks joining collective\n", "f"));
}

TEST(Analyses, SurviveDamage) { survives_damage(analysis_source(), kErrors + kMissing); }

}  // namespace
}  // namespace lockstep::trace
