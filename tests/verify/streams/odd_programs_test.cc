// Ranks of one kind run one program. Where one of them diverges from the others, it is named,
// whatever the call is: a message of a ring, an exchange of experts, a collective that a framework
// makes for a part of the model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A rank of a ring that passes something on `hops` times, then reduces with all. From hop `open_at`
// on nothing completes. `wrong_hop`: it receives from `wrong_peer` there. The ring is that of the
// ranks from `first` on.
struct RingRank {
  int rank = 0, size = 4, first = 0;
  int hops = 3, open_at = 3;
  int wrong_hop = -1, wrong_peer = 0;
  bool hangs = true;

  std::string text() const {
    const std::string g = first > 0 ? fmt::format("cp{}", first) : "cp";
    std::string out = fmt::format("backend nccl; group {} ", g);
    for (int r = 0; r < size; ++r) out += fmt::format("{}{}", r > 0 ? "," : "", first + r);
    out += "; barrier; ";
    const auto neighbour = [&](int distance) { return first + (rank - first + distance) % size; };
    for (int h = 0; h < hops; ++h) {
      const int from = h == wrong_hop ? wrong_peer : neighbour(size - 1);
      const char* const open = h >= open_at ? " open" : "";
      out += fmt::format("send g={} n=8 peer={} coalesced={} async{}; ", g, neighbour(1), h, open);
      out += fmt::format("recv g={} n=8 peer={} coalesced={} async{}; ", g, from, h, open);
    }
    return out + (hangs ? "all_reduce n=1 async open; hung" : "all_reduce n=1 async; clean");
  }
};

Report report_of_ring(const std::vector<RingRank>& ranks) {
  std::vector<std::string> out;
  for (const RingRank& r : ranks) out.push_back(r.text());
  return verify(program(out));
}

std::string judge_ring(const std::vector<RingRank>& ranks) {
  return summary(report_of_ring(ranks));
}

TEST(OddPrograms, ARankThatMakesOneHopLessIsNamed) {
  EXPECT_THAT(judge_ring({{.rank = 0, .open_at = 2},
                          {.rank = 1, .open_at = 2},
                          {.rank = 2, .hops = 2, .open_at = 2},
                          {.rank = 3, .open_at = 2}}),
              StartsWith("p2p-unmatched error observed culprits=2 group=cp seq=4"));
}

TEST(OddPrograms, ARankThatMakesOneHopMoreIsNamed) {
  EXPECT_THAT(judge_ring({{.rank = 0}, {.rank = 1, .hops = 4}, {.rank = 2}, {.rank = 3}}),
              StartsWith("p2p-unmatched error observed culprits=1 group=cp seq=6"));
}

TEST(OddPrograms, AReceiveFromTheWrongPeerIsNamed) {
  EXPECT_THAT(judge_ring({{.rank = 0, .open_at = 1},
                          {.rank = 1, .open_at = 1, .wrong_hop = 1, .wrong_peer = 3},
                          {.rank = 2, .open_at = 1},
                          {.rank = 3, .open_at = 1}}),
              StartsWith("p2p-unmatched error observed culprits=1 group=cp seq=3"));
}

// A message is that of the rank that left it out, in its own group.
TEST(OddPrograms, AMissingMessageIsToldAsTheRankWouldMakeIt) {
  std::vector<RingRank> ranks;
  for (int r = 0; r < 8; ++r)
    ranks.push_back({.rank = r, .first = r / 4 * 4, .hops = r == 6 ? 2 : 3, .open_at = 2});
  const Report report = report_of_ring(ranks);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].message,
            "rank 6 left out its send to rank 7 and 1 more call (call 4 of group cp4), which the "
            "other ranks that run this program make");
}

TEST(OddPrograms, SeveralRanksLeaveOutAMessageEach) {
  std::vector<RingRank> ranks;
  for (int r = 0; r < 8; ++r)
    ranks.push_back({.rank = r, .size = 8, .hops = r == 2 || r == 6 ? 2 : 3, .open_at = 2});
  const Report report = report_of_ring(ranks);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].message,
            "ranks 2, 6 each left out a send (rank 2: to rank 3) and 1 more call (call 4 of group "
            "cp), which the other ranks that run this program make");
}

// The two data-parallel groups do different things in the end, and rank 0 finished before. Without
// it, its three neighbours are fewer than the other four, which says nothing.
TEST(OddPrograms, ARankThatEndedBeforeCouldHaveTurnedTheNumbers) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 8; ++r) {
    std::string out =
        fmt::format("backend nccl; group dp_{} {}; ", r / 4, r < 4 ? "0,1,2,3" : "4,5,6,7");
    const std::string g = fmt::format("g=dp_{}", r / 4);
    for (int step = 0; step < 3; ++step)
      out += fmt::format("all_reduce {0} n=64 async; all_reduce {0} n=32 async; ", g);
    if (r == 0)
      out += "clean";
    else if (r < 4)
      out += fmt::format("all_reduce {} n=2 async open; hung", g);
    else
      out += fmt::format("all_reduce {} n=1 async; all_reduce n=8 async open; hung", g);
    ranks.push_back(out);
  }
  const std::string report = summary(verify(program(ranks)));
  EXPECT_THAT(report, HasSubstr("culprits=0 "));
  EXPECT_THAT(report, Not(HasSubstr("culprits=1")));
}

TEST(OddPrograms, ARingInWhichAllDoTheSameIsFine) {
  EXPECT_THAT(judge_ring({{.rank = 0, .hangs = false},
                          {.rank = 1, .hangs = false},
                          {.rank = 2, .hangs = false},
                          {.rank = 3, .hangs = false}}),
              Not(HasSubstr("error")));
}

TEST(OddPrograms, NobodyOfTwoInTheirFirstRoundIsNamed) {
  const std::string verdict =
      judge_ring({{.rank = 0, .size = 2}, {.rank = 1, .size = 2, .hops = 2}});
  EXPECT_THAT(verdict, Not(HasSubstr("culprits=0 ")));
}

// Experts: tokens go out and come back. Rank 1 gives its counts the wrong way round in one call.
std::string expert(int rank, bool wrong, bool repeats) {
  const char* const out =
      rank == 0 ? "in_splits=8,11 out_splits=8,13" : "in_splits=13,9 out_splits=11,9";
  const char* const back =
      rank == 0 ? "in_splits=8,13 out_splits=8,11" : "in_splits=11,9 out_splits=13,9";
  std::string text = "backend nccl; ";
  const auto call = [&](const char* splits, const char* state) {
    text += fmt::format("all_to_all_single {} async{}; ", splits, state);
  };
  if (repeats) {
    call(out, "");
    call(back, "");
  }
  call(out, repeats ? "" : " open");
  if (repeats) call(wrong ? out : back, " open");
  return text + "hung";
}

TEST(OddPrograms, SplitsThatDoNotSendBackWhatCameAreWrong) {
  EXPECT_THAT(judge({expert(0, false, true), expert(1, true, true)}),
              StartsWith("splits-mismatch error observed culprits=1 group=world seq=3"));
  EXPECT_THAT(judge({expert(0, true, true), expert(1, false, true)}),
              StartsWith("splits-mismatch error observed culprits=0 group=world seq=3"));
}

TEST(OddPrograms, NobodyKnowsWhoseSplitsAreWrongInTheFirstExchange) {
  EXPECT_THAT(
      judge({"backend nccl; all_to_all_single in_splits=8,11 out_splits=8,13 async open; hung",
             "backend nccl; all_to_all_single in_splits=11,9 out_splits=13,9 async open; "
             "hung"}),
      StartsWith("splits-mismatch error observed group=world seq=0"));
}

// A first step of FSDP. `image`: the batch has images. `named`: parameters were recorded.
std::string first_step(bool image, const std::string& at, bool named,
                       const std::string& extra = "") {
  std::string out = "backend nccl; ";
  bool open = false;
  const auto gather = [&](const std::string& part, int n) {
    const bool is_odd = part == "image.0.weight";
    open |= is_odd;
    out += fmt::format("all_gather_into_tensor n={}{}{} async{}; ", n, named ? " what=" + part : "",
                       at.empty() ? "" : " at=" + at, open ? " open" : "");
  };
  gather("text.0.weight", 64);
  if (image) gather("image.0.weight", 48);
  if (!image) open = true;
  out += extra;
  gather("head.0.weight", 32);
  return out + "all_reduce n=1 async open; hung";
}

TEST(OddPrograms, APartOfTheModelThatMostNeverGatherWasLeftOutByThem) {
  for (const bool named : {false, true}) {
    EXPECT_THAT(
        judge({first_step(false, "fsdp.py:310", named), first_step(true, "fsdp.py:310", named),
               first_step(false, "fsdp.py:310", named), first_step(false, "fsdp.py:310", named)}),
        StartsWith("missing-collective error observed culprits=0,2,3 group=world seq=1"));
  }
}

TEST(OddPrograms, ACallFromALineOfItsOwnIsOneTooMany) {
  const std::string metric = "all_gather_into_tensor n=48 at=metrics.py:12 async open; ";
  EXPECT_THAT(
      judge({first_step(false, "fsdp.py:310", false),
             first_step(false, "fsdp.py:310", false, metric),
             first_step(false, "fsdp.py:310", false), first_step(false, "fsdp.py:310", false)}),
      StartsWith("extra-collective error observed culprits=1 group=world seq=1"));
}

TEST(OddPrograms, WithoutLinesAndNamesTheLargerNumberDecides) {
  EXPECT_THAT(judge({first_step(false, "", false), first_step(true, "", false),
                     first_step(false, "", false), first_step(false, "", false)}),
              StartsWith("extra-collective error observed culprits=1 group=world seq=1"));
}

// Gathers of a model's parts, without lines and names. In the first of `rounds`, rank 1 gathers two
// parts more than the others.
std::string gathering_rank(int rank, int rounds) {
  std::string out = "backend nccl; all_gather_into_tensor n=64 async; ";
  const auto gather = [&](int n) {
    out += fmt::format("all_gather_into_tensor n={} async open; ", n);
  };
  if (rank == 1) {
    gather(48);
    gather(56);
  }
  gather(32);
  for (int round = 1; round < rounds; ++round) {
    gather(64);
    gather(32);
  }
  return out + "all_reduce n=1 async open; hung";
}

TEST(OddPrograms, SeveralCallsMoreInAFirstRoundMayBeABranchThatMostLeftOut) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back(gathering_rank(r, 1));
  const Report report = verify(program(ranks));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(summary(report), StartsWith("extra-collective error observed group=world seq=1"));
  EXPECT_THAT(report.findings[0].why, HasSubstr("whether rank 1 made these calls too many, or "
                                                "ranks 0, 2, 3 left them out"));
}

TEST(OddPrograms, LaterRoundsWithoutTheCallsShowThatTheyWereTooMany) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back(gathering_rank(r, 3));
  EXPECT_THAT(judge(ranks),
              StartsWith("extra-collective error observed culprits=1 group=world seq=1"));
}

// Data and tensor parallelism; `calls` of the rank in its tensor-parallel group.
std::string mesh_rank(int rank, int calls) {
  const int t = rank / 2;
  std::string out = fmt::format("backend nccl; group tp{} {},{}; group dp{} {},{},{}; ", t, 2 * t,
                                2 * t + 1, rank % 2, rank % 2, rank % 2 + 2, rank % 2 + 4);
  for (int i = 0; i < calls; ++i)
    out += fmt::format("all_reduce g=tp{} n=8 async{}; ", t, i > 1 ? " open" : "");
  return out + fmt::format("all_reduce g=dp{} n=16 async open; all_reduce n=1 async open; hung",
                           rank % 2);
}

TEST(OddPrograms, SisterGroupsTellWhichRankOfAPairLeftOutACall) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 6; ++r) ranks.push_back(mesh_rank(r, r == 3 ? 2 : 3));
  EXPECT_THAT(judge(ranks),
              StartsWith("missing-collective error observed culprits=3 group=tp1 seq=2"));
}

// Data and tensor parallelism over Gloo. From its third step on, rank 1 makes one tensor-parallel
// call a step instead of two: the next one's pairs with it, so that it is a step ahead in the end.
std::string rank_of_steps(int rank) {
  const bool leaves_out = rank == 1;
  const int t = rank / 3;
  const auto state = [&](int step) {
    if (leaves_out) return step < 4;  // completed
    return step < (rank == 4 ? 4 : 3);
  };
  std::string out = fmt::format("group tp{} {},{},{}; group dp{} {},{}; ", t, 3 * t, 3 * t + 1,
                                3 * t + 2, rank % 3, rank % 3, rank % 3 + 3);
  int call = 0;
  for (int step = 0; step < 5; ++step) {
    const int in_tensor_group = leaves_out && step >= 2 ? 1 : 2;
    for (int i = 0; i < in_tensor_group; ++i, ++call) {
      const bool open = t == 0 && rank != 1 ? step == 3 && i == 1 : rank == 4 && step == 4;
      out += fmt::format("all_reduce g=tp{} n=48{}; ", t, open ? " open" : "");
      if (open) return out + "hung";
    }
    for (const int n : {400, 100, 200})
      out +=
          fmt::format("all_reduce g=dp{} n={} async{}; ", rank % 3, n, state(step) ? "" : " open");
    for (int i = 0; i < 3; ++i) {
      out += fmt::format("wait {}{}; ", call + i, state(step) ? "" : " open");
      if (!state(step)) return out + "hung";
    }
    call += 3;
  }
  return out + "hung";
}

TEST(OddPrograms, ACallLeftOutInEachStepIsNotARoundTooMany) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 6; ++r) ranks.push_back(rank_of_steps(r));
  EXPECT_THAT(judge(ranks),
              StartsWith("missing-collective error proven culprits=1 group=tp0 seq=5"));
}

// Stages that all send to both neighbours before they receive. The first has none before it.
TEST(OddPrograms, TheFirstStageOfAPipelineIsNotAnOddOneInARing) {
  EXPECT_THAT(judge({"send peer=1 n=1 open; hung", "send peer=0 n=1 open; hung",
                     "send peer=1 n=1 open; hung", "send peer=2 n=1 open; hung"}),
              StartsWith("p2p-cycle error proven group=world seq=0"));
}

// Gathers of sharded parts of equal size. In step 2 ranks 1 and 3 leave out those of the encoder,
// at line 71, so that each later one pairs with that of another layer, until a reduction meets one.
TEST(OddPrograms, CallsLeftOutAreToldWhereTheyBeganToPairWithOthers) {
  const auto rank = [](bool leaves_out) {
    std::string out;
    for (int step = 0; step < 3; ++step) {
      const bool last = step == 2;
      out += "all_gather_into_tensor n=580 at=m.py:82; ";
      if (!last || !leaves_out) out += repeated("all_gather_into_tensor n=276 at=m.py:71; ", 2);
      out += repeated("all_gather_into_tensor n=276 at=m.py:73; ", last && !leaves_out ? 2 : 3);
      if (last && !leaves_out) return out + "all_gather_into_tensor n=276 at=m.py:73 open; hung";
      if (last)
        return out +
               "all_gather_into_tensor n=276 at=m.py:82; "
               "reduce_scatter_tensor n=1104 at=m.py:82 open; hung";
      out += repeated("all_gather_into_tensor n=276 at=m.py:82; ", 1) +
             repeated("reduce_scatter_tensor n=1104 at=m.py:82; ", 3);
    }
    return out;
  };
  const Report report = verify(program({rank(false), rank(true), rank(false), rank(true)}));
  EXPECT_THAT(summary(report),
              StartsWith("missing-collective error proven culprits=1,3 group=world seq=21"));
  EXPECT_THAT(report.findings.at(0).message,
              HasSubstr("ranks 1, 3 never issued all_gather_into_tensor of 276 and the call after "
                        "it, which ranks 0, 2 issued as call 21 of group world, m.py:71"));
}

}  // namespace
}  // namespace lockstep::verify
