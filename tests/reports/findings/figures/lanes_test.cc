#include "reports/findings/figures/lanes.h"

#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/reports/inline_run.h"

namespace lockstep::reports {
namespace {

verify::Finding difference_at(std::uint64_t seq, const std::vector<std::int32_t>& culprits) {
  verify::Finding finding;
  finding.rule = verify::RuleId::missing_collective;
  finding.group = "world";
  finding.seq = seq;
  finding.culprits = ranks_of(culprits);
  return finding;
}

TEST(Lanes, EqualRanksShareARowAndTheDeviantIsMarked) {
  const std::string usual = all_reduce(0, "a", 8) + complete(0) + all_reduce(1, "image.w", 64);
  const std::string deviant =
      all_reduce(0, "a", 8) + complete(0) + all_reduce(1, "temperature", 64);
  const auto run = inline_run({usual + kHung, deviant + kHung, usual + kHung});
  EXPECT_EQ(lanes(difference_at(1, {1}), run),
            "    group world   seq 0        seq 1\n"
            "    ranks 0,2     all_reduce   all_reduce\n"
            "                  a            image.w\n"
            "                               WAITS\n"
            "    rank 1        all_reduce ! all_reduce\n"
            "                  a            temperature\n"
            "                               WAITS\n"
            "    ! not what the other ranks called\n");
}

TEST(Lanes, SizesAreShownOnlyWhereTheySayMore) {
  const auto run = inline_run({all_reduce(0, "a", 8) + kHung, all_reduce(0, "a", 9) + kHung});
  EXPECT_EQ(lanes(difference_at(0, {1}), run),
            "    group world   seq 0\n"
            "    rank 0        all_reduce\n"
            "                  a\n"
            "                  8 float32\n"
            "                  WAITS\n"
            "    rank 1      ! all_reduce\n"
            "                  a\n"
            "                  9 float32\n"
            "                  WAITS\n"
            "    ! not what the other ranks called\n");
}

TEST(Lanes, AmountsOfAnAllToAllMayDiffer) {
  const auto exchange = [](int elements) {
    return issue_line(0, "world", "all_to_all", {{"in", {{elements}}}, {"dtype", "float32"}}) +
           complete(0);
  };
  const std::string both = all_reduce(1, "a", 8) + kHung;
  const std::string picture =
      lanes(difference_at(1, {1}),
            inline_run({exchange(5) + both, exchange(7) + kHung, exchange(6) + both}));
  EXPECT_NE(picture.find("7 float32"), std::string::npos);
  EXPECT_EQ(picture.find('!'), std::string::npos) << picture;
}

// The root of a scatter has the input of all ranks, and the others have none.
TEST(Lanes, AScattersSizeIsWhatEachRankGets) {
  const auto scatter = [](int id, int whole, int part) {
    LineKeys keys = {{"out", {{part}}}, {"dtype", "float32"}, {"root", 0}};
    if (whole > 0) keys["in"] = {{whole}};
    return issue_line(id, "world", "scatter", keys);
  };
  const auto lanes_of = [&](int part) {
    return lanes(difference_at(1, {1}),
                 inline_run({scatter(0, 12, 6) + complete(0) + all_reduce(1, "a", 8) + kHung,
                             scatter(0, 0, part) + complete(0) + kHung}));
  };
  EXPECT_EQ(lanes_of(6).find('!'), std::string::npos) << lanes_of(6);
  EXPECT_NE(lanes_of(5).find("! scatter"), std::string::npos) << lanes_of(5);
}

// A type's short name stands in all cells or in none: equal sizes look equal.
TEST(Lanes, TypesAreShortenedEverywhere) {
  const auto call = [](int id) {
    return issue_line(id, "world", "all_reduce", {{"in", {{33554432}}}, {"dtype", "bfloat16"}});
  };
  const std::string two = call(0) + complete(0) + call(1) + complete(1);
  const auto run = inline_run({two + call(2) + kHung, two + kHung});
  std::set<bool> shortened;
  for (std::size_t width = 50; width < 100; ++width) {
    LaneOptions options;
    options.width = width;
    const std::string text = lanes(difference_at(2, {1}), run, options);
    const bool has_short = text.find("33554432 bf16") != std::string::npos;
    EXPECT_NE(text.find("bfloat16") != std::string::npos, has_short) << text;
    shortened.insert(has_short);
  }
  EXPECT_EQ(shortened.size(), 2U) << "both occur, each where it fits";
}

// A rank that left out a step's calls makes the next step's where the others make this one's: the
// calls are alike, and their steps tell the difference.
TEST(Lanes, StepsAreShownWhereTheyDiffer) {
  const auto call = [](int id, int step) { return all_reduce(id, "a", 8, {{"step", step}}); };
  const auto run = inline_run({call(0, 1) + complete(0) + call(1, 2) + kHung,
                               call(0, 1) + complete(0) + call(1, 3) + kHung,
                               call(0, 1) + complete(0) + call(1, 2) + kHung});
  EXPECT_EQ(lanes(difference_at(1, {1}), run),
            "    group world   seq 0        seq 1\n"
            "    ranks 0,2     all_reduce   all_reduce\n"
            "                  a            a\n"
            "                  step 1       step 2\n"
            "                               WAITS\n"
            "    rank 1        all_reduce ! all_reduce\n"
            "                  a            a\n"
            "                  step 1       step 3\n"
            "                               WAITS\n"
            "    ! not what the other ranks called\n");
}

TEST(Lanes, ShowsHowEveryStreamStops) {
  const std::string first = all_reduce(0, "a", 8) + complete(0);
  const auto run =
      inline_run({first + all_reduce(1, "b", 8) + kHung, first + kHung, first + kClean,
                  first + end_line("exception"), first + end_line("killed"), first, ""});
  EXPECT_EQ(lanes(difference_at(1, {}), run),
            "    group world   seq 0        seq 1\n"
            "    rank 0        all_reduce   all_reduce\n"
            "                  a            b\n"
            "                               WAITS\n"
            "    rank 1        all_reduce   (never called)\n"
            "                  a\n"
            "    rank 2        all_reduce   (ended)\n"
            "                  a\n"
            "    rank 3        all_reduce   (exception)\n"
            "                  a\n"
            "    rank 4        all_reduce   (killed)\n"
            "                  a\n"
            "    rank 5        all_reduce   (trace ends)\n"
            "                  a\n"
            "    rank 6        (no trace)\n");
}

// A dump of active calls of a rank that waits for nothing holds none, but counters.
TEST(Lanes, CallsThatADumpLeftOutWereMade) {
  trace::Run run = inline_run({all_reduce(0, "a", 8) + complete(0) + all_reduce(1, "a", 8) +
                                   complete(1) + all_reduce(2, "a", 8) + kHung,
                               kHung});
  const auto row_of_rank_1 = [&] {
    const std::string picture = lanes(difference_at(2, {1}), run);
    return picture.substr(picture.find("rank 1"));
  };
  EXPECT_EQ(row_of_rank_1(), "rank 1        (never called)\n");
  trace::RankTrace::Progress counters;
  counters.group = run.ranks[0].calls[0].group;
  counters.enqueued = 2;
  run.ranks[1].progress.push_back(counters);
  EXPECT_EQ(row_of_rank_1(), "rank 1        (not kept)   (not kept)   (never called)\n");
}

// Dumps over Gloo list no members: who calls in the group, and who is said to have left a call out.
TEST(Lanes, OfAGroupThatNobodyListsOnlyItsCallersHaveRows) {
  const auto call = [](int id) {
    return issue_line(id, "pair (7)", "all_reduce", {{"in", {{8}}}, {"dtype", "float32"}});
  };
  const std::string all = call(0) + complete(0) + call(1) + kHung;
  trace::Run run = inline_run({all, call(0) + complete(0) + kHung, all_reduce(0, "a", 8) + kHung});
  for (trace::RankTrace& trace : run.ranks) trace.first_number = 1;
  verify::Finding finding = difference_at(1, {1});
  finding.group = "pair (7)";
  finding.ranks = ranks_of({0, 1, 2});
  EXPECT_EQ(lanes(finding, run),
            "    pair     seq 1        seq 2\n"
            "    rank 0   all_reduce   all_reduce\n"
            "             8 float32    8 float32\n"
            "                          WAITS\n"
            "    rank 1   all_reduce   (never called)\n"
            "             8 float32\n");
}

TEST(Lanes, RanksThatBlockAcrossGroupsAreShownInProgramOrder) {
  const auto issue = [](int id, const char* group) {
    return issue_line(id, group, "all_reduce", {{"in", {{9}}}, {"dtype", "float32"}});
  };
  const std::string groups = group_line("dp", {0, 1}) + group_line("tp", {0, 1});
  const auto run = inline_run({groups + issue(0, "dp") + complete(0) + issue(1, "tp") + kHung,
                               groups + issue(0, "dp") + complete(0) + issue(1, "dp") + kHung});
  verify::Finding finding;
  finding.rule = verify::RuleId::cross_group_deadlock;
  finding.ranks = ranks_of({0, 1});
  EXPECT_EQ(lanes(finding, run),
            "    last calls   1 before     last\n"
            "    rank 0       all_reduce   all_reduce\n"
            "                 in dp        in tp\n"
            "                 9 float32    9 float32\n"
            "                              WAITS\n"
            "    rank 1       all_reduce   all_reduce\n"
            "                 in dp        in dp\n"
            "                 9 float32    9 float32\n"
            "                              WAITS\n");
}

TEST(Lanes, ARankThatWaitsElsewhereSaysWhere) {
  const std::string groups = group_line("image", {0, 1}) + group_line("text", {0, 1});
  const auto run = inline_run({groups + issue_line(0, "image", "barrier") + kHung,
                               groups + issue_line(0, "text", "barrier") + kHung});
  verify::Finding finding = difference_at(0, {1});
  finding.group = "image";
  EXPECT_EQ(lanes(finding, run),
            "    group image   seq 0\n"
            "    rank 0        barrier\n"
            "                  WAITS\n"
            "    rank 1        (waits in\n"
            "                   text)\n");
}

TEST(Lanes, PointToPointCallsNameTheirPeer) {
  const auto recv = [](int peer) {
    return issue_line(0, "world", "recv", {{"peer", peer}, {"out", {{9}}}, {"dtype", "float32"}});
  };
  const auto run = inline_run({recv(1) + kHung, recv(0) + kHung});
  verify::Finding finding;
  finding.rule = verify::RuleId::p2p_cycle;
  finding.ranks = ranks_of({0, 1});
  EXPECT_EQ(lanes(finding, run),
            "    last calls   last\n"
            "    rank 0       recv from rank 1\n"
            "                 9 float32\n"
            "                 WAITS\n"
            "    rank 1       recv from rank 0\n"
            "                 9 float32\n"
            "                 WAITS\n");
}

TEST(Lanes, ThousandsOfRanksAndLongNamesStayWithinTheWidth) {
  const std::string name(300, 'x');
  std::vector<std::string> traces;
  for (int rank = 0; rank < 2000; ++rank) {
    std::string trace;
    for (int id = 0; id < 6; ++id)
      trace += all_reduce(id, name + std::to_string(rank % 20), 1 << 28);
    traces.push_back(trace + kHung);
  }
  const auto run = inline_run(traces);
  const std::string picture = lanes(difference_at(3, {7}), run);
  EXPECT_LE(widest_line(picture), 80U);
  EXPECT_NE(picture.find("100 ranks: "), std::string::npos);
  EXPECT_NE(picture.find("rank 7"), std::string::npos) << "the culprit is never left out";
  EXPECT_LE(std::count(picture.begin(), picture.end(), '\n'), 40);
}

// In the middle is what tells such operations apart.
TEST(Lanes, ALongOperationKeepsItsBeginning) {
  std::string calls;
  for (int id = 0; id < 4; ++id)
    calls += issue_line(id, "world", "reduce_scatter_tensor", {{"in", {{8}}}}) + complete(id);
  const std::string other =
      calls + issue_line(4, "world", "all_gather_into_tensor", {{"in", {{8}}}}) + kHung;
  const std::string usual =
      calls + issue_line(4, "world", "reduce_scatter_tensor", {{"in", {{8}}}}) + kHung;
  const std::string picture = lanes(difference_at(4, {1}), inline_run({usual, other, usual}));
  EXPECT_LE(widest_line(picture), 80U);
  EXPECT_NE(picture.find("reduce_scatt"), std::string::npos) << picture;
  EXPECT_NE(picture.find("! all_gather_i"), std::string::npos) << picture;
}

// Calls of one kind from two lines of the program: only the line tells that they differ.
TEST(Lanes, LocationsAreShownWhereNothingElseDiffers) {
  const auto from = [](int id, int line) {
    return issue_line(
        id, "world", "all_reduce",
        {{"in", {{8}}}, {"dtype", "float32"}, {"at", fmt::format("/src/model.py:{}", line)}});
  };
  const std::string first = from(0, 1) + complete(0);
  const auto run = inline_run({first + from(1, 1) + kHung, first + from(1, 2) + kHung});
  EXPECT_EQ(lanes(difference_at(1, {1}), run),
            "    group world   seq 0        seq 1\n"
            "    rank 0        all_reduce   all_reduce\n"
            "                  8 float32    8 float32\n"
            "                  model.py:1   model.py:1\n"
            "                               WAITS\n"
            "    rank 1        all_reduce ! all_reduce\n"
            "                  8 float32    8 float32\n"
            "                  model.py:1   model.py:2\n"
            "                               WAITS\n"
            "    ! not what the other ranks called\n");
  // The look-alike: sizes differ, too, and say it.
  const auto sizes =
      inline_run({first + from(1, 1) + kHung,
                  first +
                      issue_line(1, "world", "all_reduce",
                                 {{"in", {{9}}}, {"dtype", "float32"}, {"at", "/src/model.py:2"}}) +
                      kHung});
  EXPECT_EQ(lanes(difference_at(1, {1}), sizes).find("model.py"), std::string::npos);
}

// A group's name is whole where the calls leave room, and is cut before they are.
TEST(Lanes, AGroupsNameTakesWhatTheCallsLeave) {
  const std::string name = "TENSOR_MODEL_PARALLEL_GROUP";
  const auto head = [&](int calls, std::size_t width) {
    std::vector<std::string> traces;
    for (const int elements : {8, 9}) {
      std::string trace = group_line(name, {0, 1});
      for (int id = 0; id < calls; ++id)
        trace += issue_line(id, name, "all_reduce", {{"in", {{elements}}}, {"dtype", "float32"}}) +
                 (id + 1 < calls ? complete(id) : kHung);
      traces.push_back(trace);
    }
    verify::Finding finding = difference_at(static_cast<std::uint64_t>(calls) - 1, {1});
    finding.group = name;
    LaneOptions options;
    options.width = width;
    const std::string picture = lanes(finding, inline_run(traces), options);
    EXPECT_LE(widest_line(picture), width);
    return picture.substr(0, picture.find('\n'));
  };
  EXPECT_EQ(head(3, 80), "    group TENSOR_MODEL_PARALLEL_GROUP   seq 0        seq 1        seq 2");
  EXPECT_EQ(head(3, 60), "    group TENSOR_M..PARALLEL_GROUP   seq 1        seq 2");
}

TEST(Lanes, NothingIsDrawnWithoutALocation) {
  const auto run = inline_run({all_reduce(0, "a", 8) + kClean});
  EXPECT_EQ(lanes(verify::Finding{}, run), "");
  verify::Finding unknown_group = difference_at(0, {});
  unknown_group.group = "no such group";
  EXPECT_EQ(lanes(unknown_group, run), "");
}

TEST(Lanes, HostileNamesAreMadePrintable) {
  const auto run = inline_run({all_reduce(0, "\\u001b[31mred", 8) + kClean});
  EXPECT_EQ(lanes(difference_at(0, {}), run).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::reports
