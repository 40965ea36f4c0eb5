// Most ranks may be the ones that are wrong: text-only batches are often most batches. The past
// tells, or the ranks beside the group; where nothing does, the many are taken to be right.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string judgement_of(const std::vector<std::string>& ranks) {
  return summary(verify(program(ranks)));
}

// Rank 0 issues text, image and head in each step. In the last step it waits in image, which the
// others left out: they wait in head.
std::vector<std::string> most_skip(int steps, const std::string& full, const std::string& text) {
  std::string past;
  for (int s = 0; s < steps; ++s) {
    const std::string step = fmt::format(" step={}; ", s);
    past += (full.empty() ? "" : fmt::format("modality {} image,text; ", s));
    past += "all_reduce n=1 at=a.py:1" + step + "all_reduce n=2 at=a.py:2" + step +
            "all_reduce n=3 at=a.py:3" + step;
  }
  const std::string now = fmt::format(" step={}; ", steps);
  const auto batch = [&](const std::string& has) {
    return has.empty() ? "" : fmt::format("modality {} {}; ", steps, has);
  };
  const std::string open = fmt::format(" open step={}; hung", steps);
  const std::string first = "all_reduce n=1 at=a.py:1" + now;
  const std::string skips = past + batch(text) + first + "all_reduce n=3 at=a.py:3" + open;
  return {past + batch(full) + first + "all_reduce n=2 at=a.py:2" + open, skips, skips, skips};
}

TEST(Majority, MayLeaveOutACallThatItAlwaysMade) {
  EXPECT_THAT(judgement_of(most_skip(3, "", "")),
              HasSubstr("missing-collective error proven culprits=1-3 group=world seq=10 step=3"));
  EXPECT_THAT(judgement_of(most_skip(1, "", "")),
              HasSubstr("missing-collective error proven culprits=1-3 group=world seq=4 step=1"));
  // In the first round nothing tells: then the many are right.
  EXPECT_THAT(judgement_of(most_skip(0, "", "")), HasSubstr("culprits=0 "));
}

TEST(Majority, MayHoldBatchesWithoutImages) {
  for (const int steps : {0, 1, 3}) {
    EXPECT_THAT(judgement_of(most_skip(steps, "image,text", "text")),
                HasSubstr("modality-divergence error proven culprits=1-3"))
        << steps;
  }
  // They lack what the one lacks as well: that explains nothing.
  EXPECT_THAT(judgement_of(most_skip(0, "text", "text")), Not(HasSubstr("culprits=1-3")));
}

TEST(Majority, MayPassByAGroupThatItAlwaysEntered) {
  const std::string past = "group image 0,1,2; group text 0,1,2; " +
                           repeated("all_reduce g=image n=4; all_reduce g=text n=8; ", 3);
  const std::string as_always = past + "all_reduce g=image n=4 open; hung";
  const std::string skips = past + "all_reduce g=text n=8 open; hung";
  EXPECT_THAT(judgement_of({as_always, skips, skips}),
              HasSubstr("cross-group-deadlock error proven culprits=1,2"));
  EXPECT_THAT(judgement_of({as_always, skips, as_always}),
              HasSubstr("cross-group-deadlock error proven culprits=1 "));
}

TEST(Majority, ThatEndsWithinARoundLeftOutItsRest) {
  const std::string past = repeated("all_reduce n=1; all_reduce n=2; all_reduce n=3; ", 3);
  const std::string head = past + "all_reduce n=1; all_reduce n=2; ";
  EXPECT_THAT(judgement_of({head + "all_reduce n=3 open; hung", head + "clean", head + "clean"}),
              HasSubstr("missing-collective error proven culprits=1,2"));
  // A program ends after a round: rank 0 has a batch more.
  EXPECT_THAT(judgement_of({past + "all_reduce n=1 open; hung", past + "clean", past + "clean"}),
              HasSubstr("unequal-iterations error proven culprits=0"));
  // Nobody can say what a round of equal calls is.
  const std::string equal = repeated("all_reduce n=4; ", 7);
  EXPECT_THAT(judgement_of({equal + "all_reduce n=4 open; hung", equal + "clean", equal + "clean"}),
              HasSubstr("unequal-iterations error proven culprits=0"));
}

// A text is generated until it ends, so that rounds have several lengths.
TEST(Majority, ThatEndsAfterARoundOfAnotherLengthLeftNothingOut) {
  const auto text = [](int tokens) {
    return "broadcast n=1; " + repeated("all_reduce n=8; ", tokens) + "all_gather n=2; ";
  };
  const std::string past = text(3) + text(5) + text(4);
  EXPECT_THAT(judgement_of({past + "broadcast n=1 open; hung", past + "clean", past + "clean"}),
              HasSubstr("unequal-iterations error proven culprits=0"));
  // So does an object whose size is another one each time.
  const auto object = [](int size) {
    return "all_reduce n=8; all_reduce n=4; broadcast n=" + std::to_string(size) + "; barrier; ";
  };
  const std::string sent = object(300) + object(307);
  EXPECT_THAT(judgement_of({sent + "all_reduce n=8 open; hung", sent + "clean", sent + "clean"}),
              HasSubstr("unequal-iterations error proven culprits=0"));
  // The look-alike: two whole rounds of one length, and a part of the third.
  const std::string alike =
      repeated(text(3), 3) + "broadcast n=1; " + repeated("all_reduce n=8; ", 3);
  EXPECT_THAT(judgement_of({alike + "all_gather n=2 open; hung", alike + "clean", alike + "clean"}),
              HasSubstr("missing-collective error proven culprits=1,2"));
}

// Each rank's batches by step; rank 1 ends before rank 0.
Finding ended_early_with(const std::vector<int>& of_rank_0, const std::vector<int>& of_rank_1) {
  const auto rank = [](int r, const std::vector<int>& batches, bool hangs) {
    std::string out = header_line(r, 2) + world_line(2);
    int step = 0;
    for (const int count : batches) {
      ++step;
      for (int i = 0; i < count; ++i)
        out += json_line({{"ev", "data"}, {"n", step}, {"indices", {100 * r + 10 * step + i}}});
      const bool open = hangs && step == static_cast<int>(batches.size());
      out += issue_line(step, "world", "all_reduce", {{"in", {{8}}}, {"step", step}}) +
             (open ? "" : event_line("complete", step));
    }
    return out + end_line(hangs ? "hung" : "clean");
  };
  const Report report =
      verify(run_from_text({rank(0, of_rank_0, true), rank(1, of_rank_1, false)}));
  for (const Finding& f : report.findings)
    if (f.rule == RuleId::unequal_iterations) return f;
  return {};
}

TEST(Finished, ARankThatLeftOutABatch) {
  const Finding skipped = ended_early_with({1, 1, 1, 1}, {1, 2, 1});
  EXPECT_THAT(skipped.culprits, testing::ElementsAre(trace::Rank(1)));
  EXPECT_THAT(skipped.why, HasSubstr("In step 2 it took 2 instead of 1"));
  EXPECT_THAT(skipped.fix, HasSubstr("leave a batch out on all ranks or on none"));
  // The look-alikes: it had fewer batches; or nothing tells how many.
  EXPECT_EQ(ended_early_with({1, 1, 1, 1}, {1, 1, 1}).why, "");
  EXPECT_EQ(ended_early_with({2, 2, 2, 2}, {2, 3, 2}).why, "");
  const Finding unknown = ended_early_with({0, 0, 0, 0}, {0, 0, 0});
  EXPECT_THAT(unknown.fix, HasSubstr("the same number of batches"));
}

// A ring: each rank sends to the next one. Rank 0 begins another round.
TEST(Majority, ThatFinishedIsNotAskedForAMessageMore) {
  const auto rank = [](int r, const std::string& more) {
    const std::string next = std::to_string((r + 1) % 4), last = std::to_string((r + 3) % 4);
    const std::string round =
        "send n=8 peer=" + next + " async; recv n=8 peer=" + last + " async; all_reduce n=4; ";
    return "backend nccl; " + round + round + more;
  };
  const std::string end = "clean";
  EXPECT_THAT(judgement_of({rank(0, "send n=8 peer=1 async open; hung"), rank(1, end), rank(2, end),
                            rank(3, end)}),
              HasSubstr("unequal-iterations error observed culprits=0 "));
  // Two pipelines: rank 1 receives once more than rank 3, which has the same stage.
  const auto stage = [](int r, const std::string& more) {
    const std::string peer = std::to_string(r ^ 1);
    const std::string round =
        (r % 2 == 0 ? "send n=8 peer=" : "recv n=8 peer=") + peer + " async; all_reduce n=4; ";
    return "backend nccl; " + round + round + more;
  };
  EXPECT_THAT(judgement_of({stage(0, end), stage(1, "recv n=8 peer=0 async open; hung"),
                            stage(2, end), stage(3, end)}),
              HasSubstr("unequal-iterations error observed culprits=1 "));
  // The look-alike: of two ranks, either may have the wrong number of rounds.
  const std::string round = "send n=8 peer=1 async; all_reduce n=4; ";
  EXPECT_THAT(judgement_of({"backend nccl; " + round + "send n=8 peer=1 async open; hung",
                            "backend nccl; recv n=8 peer=0 async; all_reduce n=4; clean"}),
              HasSubstr("p2p-unmatched error observed "));
}

// A call after every second round: that the past shows one there is no reason to miss it.
TEST(Majority, ThatEndsBeforeACallThatIsMadeNowAndThenEndedWell) {
  const std::string round = "all_reduce n=1; all_reduce n=2; ";
  const std::string past = round + round + "barrier; " + round;
  EXPECT_THAT(judgement_of({past + "barrier open; hung", past + "clean", past + "clean"}),
              HasSubstr("culprits=0"));
}

// The look-alike: rank 0 goes on as always and misses the checkpoint that is new to all.
TEST(Majority, ThatComesToANewPartAfterARoundLeftNothingOut) {
  std::string past;
  for (int s = 0; s < 3; ++s) past += "all_reduce n=1; all_reduce n=2; ";
  const std::string saves = past + "barrier open; hung";
  EXPECT_THAT(judgement_of({past + "all_reduce n=1 open; hung", saves, saves, saves}),
              HasSubstr("culprits=0 "));
}

// Rank 0 accumulates over fewer batches, and makes more rounds than the others. After the first
// round DDP orders its buckets.
TEST(Majority, ThatComesOutOfALoopDidNotLeaveOutARound) {
  const std::string round = "all_reduce n=64 at=a.py:16; all_reduce n=1 at=a.py:21; ";
  const std::string past =
      round + "broadcast n=5 root=0 at=a.py:15; broadcast n=1 root=0 at=a.py:15; " + round + round;
  const std::string ends = past + "barrier at=a.py:23 open; hung";
  EXPECT_THAT(judge({past + "all_reduce n=64 at=a.py:16 open; hung", ends, ends}),
              HasSubstr("culprits=0 "));
  // Within a round they left out its rest.
  const std::string begun = past + "all_reduce n=64 at=a.py:16; ";
  const std::string within = begun + "barrier at=a.py:23 open; hung";
  EXPECT_THAT(judge({begun + "all_reduce n=1 at=a.py:21 open; hung", within, within}),
              HasSubstr("culprits=1,2 "));
}

TEST(Majority, ThatComesToANewPartWithinARoundLeftOutItsRest) {
  const std::string past = repeated("all_reduce n=1; all_reduce n=2; all_reduce n=3; ", 3) +
                           "all_reduce n=1; all_reduce n=2; ";
  const std::string saves = past + "barrier open; hung";
  EXPECT_THAT(judgement_of({past + "all_reduce n=3 open; hung", saves, saves, saves}),
              HasSubstr("missing-collective error proven culprits=1-3"));
}

// In a first text, the past shows only that tokens follow each other.
TEST(Majority, LeavesOutTheCallAfterAFirstCheckpointThatEndsLikeItsRound) {
  // What the others make now is what they made before the checkpoint: no run of two.
  const std::string past = repeated("all_reduce n=2; all_reduce n=1; ", 2) + "barrier; ";
  const std::string skips = "backend nccl; " + past + "all_reduce n=1 open; hung";
  EXPECT_THAT(judgement_of({"backend nccl; " + past + "all_reduce n=2 open; hung", skips, skips}),
              HasSubstr("missing-collective error observed culprits=1,2"));
  // In the first round nothing shows whether a call comes once or twice.
  const std::string first = "backend nccl; all_reduce n=1; ";
  EXPECT_THAT(
      judgement_of({first + "all_reduce n=1 open; hung", first + "all_reduce n=2 open; hung",
                    first + "all_reduce n=2 open; hung"}),
      HasSubstr("culprits=0 "));
}

TEST(Majority, OfOtherStagesIsJudgedByItsOwnPast) {
  const std::string first = "send n=8 peer=1 async; ";
  const std::string middle = "recv n=8 peer=0 async; send n=8 peer=2 async; ";
  const std::string last = "recv n=8 peer=1 async; ";
  const std::string sums = "all_reduce n=1 async; all_reduce n=2 async; ";
  const auto job = [&](const std::string& stage, const std::string& now) {
    return "backend nccl; " + repeated(stage + sums, 3) + stage + "all_reduce n=1 async; " + now;
  };
  const std::string skips = "barrier async open; hung";
  EXPECT_THAT(judgement_of({job(first, "all_reduce n=2 async open; barrier async open; hung"),
                            job(middle, skips), job(last, skips)}),
              HasSubstr("missing-collective error observed culprits=1,2"));
  // Rank 0 alone makes a call that it never made.
  EXPECT_THAT(judgement_of({job(first, "all_reduce n=4 async open; barrier async open; hung"),
                            job(middle, skips), job(last, skips)}),
              HasSubstr("culprits=0 "));
}

TEST(Majority, OfManyIsNotBlamedByThePastOfOne) {
  const auto ranks = [](int n) {
    std::vector<std::string> out;
    for (int r = 0; r < n; ++r) {
      const std::string tp = "tp" + std::to_string(r / 2);
      const std::string pair = std::to_string(r / 2 * 2) + "," + std::to_string(r / 2 * 2 + 1);
      const std::string token = "all_reduce g=" + tp + " n=8; ";
      out.push_back("group " + tp + " " + pair + "; broadcast n=9; " + repeated(token, 9) +
                    "all_gather g=" + tp + " n=3; all_gather n=2; " +
                    (r == 4 ? "all_reduce g=" + tp + " n=8" : "broadcast n=9") + " open; hung");
    }
    return judgement_of(out);
  };
  EXPECT_THAT(ranks(20), HasSubstr("culprits=4 "));
  EXPECT_THAT(ranks(32), HasSubstr("culprits=4 "));
}

// But all of them may have skipped the branch in the third of three equal rounds.
TEST(Majority, OfManyThatBreakOffARoundIsBlamed) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 20; ++r) {
    const std::string text = "all_reduce n=8; ", loss = "all_reduce n=2; ";
    ranks.push_back("backend nccl; broadcast n=9 root=0; " +
                    repeated(text + text + text + loss, 2) + text + text +
                    (r == 4 ? "all_reduce n=8" : "all_reduce n=2") + " open; hung");
  }
  EXPECT_THAT(judgement_of(ranks), HasSubstr("culprits=0-3,5-19 "));
}

// Layers issue equal calls; how many there are in a row is what tells.
TEST(Majority, MayMakeARunOfEqualCallsTooShort) {
  const std::string past = repeated("all_reduce n=4; all_reduce n=4; all_reduce n=1; ", 3);
  const std::string few = past + "all_reduce n=4; all_reduce n=4 open; hung";
  const std::string most = past + "all_reduce n=4; all_reduce n=1 open; hung";
  EXPECT_THAT(judgement_of({few, most, most}),
              HasSubstr("missing-collective error proven culprits=1,2"));
  // One more than ever is one too many.
  const std::string longer = past + "all_reduce n=4; all_reduce n=4; all_reduce n=4 open; hung";
  const std::string usual = past + "all_reduce n=4; all_reduce n=4; all_reduce n=1 open; hung";
  EXPECT_THAT(judgement_of({longer, usual, usual}), Not(HasSubstr("culprits=1,2")));
}

// The tokens of a text: each run has a length of its own, so that one of the same length is chance.
TEST(Majority, IsNotBlamedForARunOfAnotherLengthWhereLengthsVary) {
  const auto text = [](int tokens) {
    return repeated("all_reduce g=tp n=8; ", tokens) + "all_reduce n=2; ";
  };
  const std::string past = "group tp 0,1,2,3; " + text(3) + text(4);
  const std::string whole =
      past + repeated("all_reduce g=tp n=8; ", 4) + "all_reduce g=tp n=8 open; hung";
  const std::string skips =
      past + repeated("all_reduce g=tp n=8; ", 4) + "all_reduce n=2 open; hung";
  EXPECT_THAT(judgement_of({whole, whole, whole, skips}), HasSubstr("culprits=3 "));
  // The look-alike: twice the same length, which most leave now.
  const std::string twice = "group tp 0,1,2,3; " + text(5) + text(5) + text(3);
  const std::string usual =
      twice + repeated("all_reduce g=tp n=8; ", 4) + "all_reduce g=tp n=8 open; hung";
  const std::string most =
      twice + repeated("all_reduce g=tp n=8; ", 4) + "all_reduce n=2 open; hung";
  EXPECT_THAT(judgement_of({usual, most, most, most}), HasSubstr("culprits=1-3 "));
}

// Two of the three ranks of a data-parallel group leave out a call that all ranks of the groups
// beside it make, in a first round, which has no past.
TEST(Majority, OfAGroupMayBeFewOfTheJob) {
  const auto head = [](int group) {
    const std::string g = std::to_string(group);
    return fmt::format("group dp{} {},{},{}; all_reduce g=dp{} n=1; ", g, 3 * group, 3 * group + 1,
                       3 * group + 2, g);
  };
  std::vector<std::string> ranks;
  for (int r = 0; r < 9; ++r) {
    const int group = r / 3;
    const std::string g = fmt::format(" g=dp{}", group);
    std::string calls = head(group);
    const bool skips = r == 1 || r == 2;
    if (!skips) calls += "all_reduce" + g + " n=2" + (r == 0 ? " open; hung" : "; ");
    if (r != 0) calls += "all_reduce" + g + " n=3" + (skips ? " open; hung" : "; clean");
    ranks.push_back(calls);
  }
  EXPECT_THAT(judgement_of(ranks), HasSubstr("missing-collective error proven culprits=1,2"));
}

// Ranks 0 and 1 are the first stage of a pipeline, 2 and 3 the second one. Three of the four leave
// out a call of all; rank 3 is the only witness for what its stage does.
TEST(Majority, MayBeInOtherStagesOfAPipeline) {
  const std::string sends[] = {"send peer=2 n=9; ", "send peer=3 n=9; ", "recv peer=0 n=9; ",
                               "recv peer=1 n=9; "};
  std::vector<std::string> ranks;
  for (int r = 0; r < 4; ++r) {
    const std::string round = sends[r] + "all_reduce n=1; all_reduce n=2; ";
    ranks.push_back(repeated(round, 3) + sends[r] +
                    (r == 3 ? "all_reduce n=1 open; hung" : "all_reduce n=2 open; hung"));
  }
  EXPECT_THAT(judgement_of(ranks), HasSubstr("missing-collective error proven culprits=0-2"));
}

// What ends the first round is new, and is not a checkpoint between two rounds: the exchanges
// before it do not predict those of a rank that left out what begins the second round.
TEST(Majority, DoesNotMakeTheFirstCallOfTheSecondRoundTooOften) {
  const std::string exchange = repeated("all_to_all_single g=sp n=4; ", 3);
  const auto gather = [](int layer) { return fmt::format("all_gather n={0} what=l{0}; ", layer); };
  const auto layers = [&](bool first) {
    return (first ? gather(1) : "") + exchange + gather(2) + exchange + gather(2) + exchange +
           "reduce_scatter n=2 what=l2; " + gather(1) + exchange + "reduce_scatter n=1 what=l1; ";
  };
  const std::string groups = "backend nccl; group sp 0,1,2; ";
  const std::string norm = "all_reduce n=1; ", waits = "all_reduce n=1 open; hung";
  const std::string usual = groups + layers(true) + norm + layers(true) + waits;
  EXPECT_THAT(
      judge({groups + layers(true) + norm + layers(false) + "all_reduce n=1; clean", usual, usual}),
      HasSubstr("missing-collective error observed culprits=0"));
}

// Rank 0 sends each other rank a batch in several messages: how many differs by rank and round, and
// says nothing about the collectives.
TEST(Majority, IsNotJudgedByHowManyMessagesItPosted) {
  const auto job = [](const std::string& odd_round, const std::string& odd_end) {
    constexpr int kRounds = 4;
    const std::string metric = "all_reduce n=1 what=norm at=clip.py:1; ";
    std::string sender = "backend nccl; ";
    std::vector<std::string> receivers(3, sender);
    for (int round = 0; round < kRounds; ++round) {
      int rank = 1;
      for (std::string& receiver : receivers) {
        const int messages = 1 + (rank + round * round) % 3;
        sender += repeated(fmt::format("send n=8 peer={}; ", rank), messages);
        receiver += repeated("recv n=8 peer=0; ", messages) +
                    (rank == 3 && round == 1 ? odd_round : metric);
        ++rank;
      }
      sender += metric;
    }
    return judge(
        {sender + "clean", receivers[0] + "clean", receivers[1] + "clean", receivers[2] + odd_end});
  };
  EXPECT_THAT(
      job("all_reduce n=1 what=debug at=debug.py:1; all_reduce n=1 what=norm at=clip.py:1; ",
          "cut"),
      HasSubstr("extra-collective error observed culprits=3 "));
  EXPECT_THAT(job("all_reduce n=8 what=norm at=clip.py:1; ", "clean"),
              HasSubstr("size-mismatch error observed culprits=3 "));
}

// A first checkpoint between two steps, after which most ranks leave out the first call: the texts
// before and after it are no two calls in a row.
TEST(Majority, LeavesOutTheFirstCallAfterAFirstCheckpoint) {
  const auto step = [](int n) {
    return fmt::format("all_reduce g=image n=9 step={0}; all_reduce g=text n=5 step={0}; ", n);
  };
  const std::string head = "backend nccl; group image 0,1,2,3; group text 0,1,2,3; " + step(0) +
                           step(1) + "barrier step=1; ";
  const std::string skips = head + "all_reduce g=text n=5 step=2 open; hung";
  const std::string whole =
      head + "all_reduce g=image n=9 step=2 open; all_reduce g=text n=5 step=2 open; hung";
  EXPECT_THAT(judgement_of({skips, skips, whole, skips}),
              HasSubstr("missing-collective error observed culprits=0,1,3 group=image seq=2"));
}

// DDP reduces its buckets in another order in the first step than in all later ones, and broadcasts
// the new order before the second. Rank 1 leaves out the first bucket of the third step: what came
// first in the first step says nothing about who is right.
TEST(Majority, IsNotBlamedByTheOrderOfAFirstStepOfItsOwn) {
  const auto bucket = [](int n, int step) {
    return fmt::format("all_reduce n={} what=bucket.{} step={}", n, n, step);
  };
  const std::string past = bucket(5, 0) + "; " + bucket(3, 0) + "; " + bucket(4, 0) +
                           "; broadcast n=2 root=0 step=1; " + bucket(4, 1) + "; " + bucket(3, 1) +
                           "; " + bucket(6, 1) + "; ";
  const std::string usual = past + bucket(4, 2) + " open; hung";
  const std::string skips = past + bucket(3, 2) + " open; hung";
  EXPECT_THAT(judgement_of({usual, skips, usual}),
              HasSubstr("missing-collective error proven culprits=1 group=world seq=7 step=2"));
  // In the order of the second step, the other one comes first.
  EXPECT_THAT(judgement_of({skips, usual, skips}),
              HasSubstr("missing-collective error proven culprits=0,2 group=world seq=7 step=2"));
}

// The same where buckets of one size follow each other: how long a row of them was in the first
// step says nothing, unless it stood in a like place. One bucket is no row.
TEST(Majority, IsNotBlamedByARowOfAFirstStepOfItsOwn) {
  const auto of = [&](const std::string& first_step, int row) {
    const std::string buckets = repeated("all_reduce n=4; ", row);
    const std::string past =
        first_step + buckets + "all_reduce n=1; broadcast n=2 root=0; " + buckets;
    const std::string one_more = past + "all_reduce n=4 open; hung";
    return judgement_of({past + "all_reduce n=1 open; hung", one_more, one_more});
  };
  for (const int row : {1, 2}) {
    EXPECT_THAT(of("all_reduce n=5; ", row),
                HasSubstr("missing-collective error proven culprits=0 "));
  }
  EXPECT_THAT(of("", 1), HasSubstr("missing-collective error proven culprits=0 "));
  EXPECT_THAT(of("", 2), Not(HasSubstr("culprits=0 ")));
}

// In a first round, that one call once followed another shows little: there may be more of the same
// to come.
TEST(Majority, IsNotBlamedByWhatCameOnceInAFirstRound) {
  const auto judgement = [](int ranks, const std::string& done, const std::string& of_most,
                            const std::string& of_last) {
    const auto calls = [](const std::string& order, const char* state) {
      std::string out;
      for (const char c : order)
        out += fmt::format("all_reduce g={} n=8 async{}; ", c == 't' ? "text" : "image", state);
      return out;
    };
    const std::string members = ranks == 2 ? "0,1" : "0,1,2,3";
    const std::string head = fmt::format(
        "backend nccl; group image {0}; group text {0}; broadcast n=9 async; ", members);
    std::vector<std::string> out;
    for (int r = 0; r < ranks; ++r) {
      out.push_back(head + calls(done, "") + calls(r + 1 == ranks ? of_last : of_most, " open") +
                    "hung");
    }
    return judgement_of(out);
  };
  // Rank 3 left out the first call of the second step; an image came once after a text.
  EXPECT_THAT(judgement(4, "tit", "tit", "it"),
              HasSubstr("cross-group-deadlock error observed culprits=3 "));
  // The look-alike: two whole steps show that an image comes here, so most left it out.
  EXPECT_THAT(judgement(4, "tittitt", "t", "it"),
              HasSubstr("cross-group-deadlock error observed culprits=0-2 "));
  // If neither rank made such a call there before, nothing shows which one is wrong.
  EXPECT_THAT(judgement(2, "ti", "t", "i"), HasSubstr("cross-group-deadlock error observed group"));
}

// DDP broadcasts the new order of its buckets before the second step, and one rank of many issues
// its first bucket before that. The bucket is a part of the model that no other rank has made yet.
TEST(Majority, OfManyIsNotBlamedForTheCallOfOne) {
  const auto ranks = [](std::size_t all) {
    const std::string head = "all_reduce n=5 what=m.a step=0; broadcast n=2 root=0 step=1; ";
    std::vector<std::string> out(all, head + "broadcast n=3 root=0 step=1 open; hung");
    out[4] = head + "all_reduce n=6 what=m.b step=1; broadcast n=3 root=0 step=1 open; hung";
    return judgement_of(out);
  };
  EXPECT_THAT(ranks(32), HasSubstr("culprits=4 "));
}

// Most left out a of the last but one step. What they make next pairs with it, and the barrier of
// every second step seems to be one that rank 0 lacks.
TEST(Majority, LeavesOutACallAfterWhichCallsOfEqualFormPair) {
  const std::string head = "backend nccl; group tp 0,1; group tp2 2,3; ";
  const auto job = [&](const std::string& tp, bool skips) {
    const std::string layer = fmt::format("all_reduce g={} n=8", tp);
    const std::string two = repeated(layer + "; ", 2) + "all_reduce n=1; ";
    const std::string three = two + "barrier; ";
    const std::string last = repeated(layer + " open; ", 2) + "all_reduce n=1 open; barrier open; ";
    return head + two + three + two + three + repeated(layer + "; ", 2) +
           (skips ? "" : "all_reduce n=1 open; ") + last + "hung";
  };
  EXPECT_THAT(judgement_of({job("tp", true), job("tp", false), job("tp2", true), job("tp2", true)}),
              HasSubstr("missing-collective error observed culprits=0,2,3 group=world"));
  // One left it out.
  EXPECT_THAT(
      judgement_of({job("tp", true), job("tp", false), job("tp2", false), job("tp2", false)}),
      HasSubstr("culprits=0 "));
}

// Most left out line 4 of the last round, so that line 6 paired with it, and finished.
TEST(Majority, ThatFinishedAfterCallsOfEqualFormLeftOneOut) {
  const std::string head = "backend nccl; ";
  const auto lines = [&](const std::string& of) {
    std::string out = head;
    for (const char line : of) out += fmt::format("all_reduce n=4 at=model.py:{}; ", line);
    return out;
  };
  const std::string most = lines("46466") + "clean";
  EXPECT_THAT(
      judgement_of({most, lines("46464") + "all_reduce n=4 at=model.py:6 open; hung", most, most}),
      HasSubstr("missing-collective error observed culprits=0,2,3"));
  // They ended with a round: the one went on.
  const std::string usual = lines("4646") + "clean";
  EXPECT_THAT(judgement_of(
                  {usual, lines("4646") + "all_reduce n=4 at=model.py:4 open; hung", usual, usual}),
              HasSubstr("unequal-iterations error observed culprits=1"));
}

// A checkpoint that came once between two rounds belongs to neither.
TEST(Majority, EndsWithinARoundAfterOneWithACheckpoint) {
  const std::string head = "backend nccl; group dp 0,1,2,3; broadcast n=9 root=0; ";
  const std::string round = "all_reduce g=dp n=4; all_reduce g=dp n=6; ";
  const std::string past = head + round + round + "barrier; ";
  const std::string most = past + "all_reduce g=dp n=4; clean";
  EXPECT_THAT(judgement_of(
                  {most, past + "all_reduce g=dp n=4; all_reduce g=dp n=6 open; hung", most, most}),
              HasSubstr("missing-collective error observed culprits=0,2,3"));
  const std::string whole = past + round + "clean";
  EXPECT_THAT(judgement_of({whole, past + round + "all_reduce g=dp n=4 open; hung", whole, whole}),
              HasSubstr("unequal-iterations error observed culprits=1"));
}

// In its first step, rank 3 makes a call of the branch twice. The others wait in their last call
// for it: they did not leave out what they have not come to yet.
TEST(Majority, WhoWaitsMayStillComeToTheCall) {
  const auto rank = [](bool twice) {
    std::string out = "backend nccl; group image 0,1,2,3; broadcast n=9 root=0; ";
    for (int s = 0; s < 3; ++s) {
      const bool last = s == 2;
      const std::string branch =
          fmt::format("all_reduce g=image n=5 what=image.weight{}; ", last && twice ? " open" : "");
      out += branch + (s == 0 && twice ? branch : "");
      out += fmt::format("all_reduce n=2 what=loss{}; ", last ? " open" : "");
    }
    return out + "hung";
  };
  EXPECT_THAT(judge({rank(false), rank(false), rank(false), rank(true)}),
              HasSubstr("extra-collective error observed culprits=3 group=image"));
}

}  // namespace
}  // namespace lockstep::verify
