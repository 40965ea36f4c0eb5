// A cut leaves out whole collectives and whole messages, or nothing.
#include "runtime/replay/kept_calls.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <tuple>

#include <gmock/gmock.h>

#include "tests/runtime/replay/program_words.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

std::string kept_call(int id, const std::string& group, const LineKeys& more = LineKeys::object()) {
  return issue_line(id, group, "barrier", more);
}
std::string message(int id, const std::string& op, int peer, int tag = 0) {
  return issue_line(id, "world", op, {{"in", {{1}}}, {"peer", peer}, {"ptag", tag}});
}

// How many calls of each rank are left.
std::vector<std::size_t> left(const trace::Run& run, std::size_t last) {
  const auto kept = kept_calls(run, last);
  if (!kept) {
    ADD_FAILURE() << kept.error().str();
    return {};
  }
  std::vector<std::size_t> out;
  for (const auto& of_rank : *kept)
    out.push_back(static_cast<std::size_t>(std::count(of_rank.begin(), of_rank.end(), true)));
  return out;
}

std::string times(int n, const std::string& group) {
  std::string out;
  for (int i = 0; i < n; ++i) out += kept_call(i, group);
  return out;
}

TEST(KeptCalls, AllWithoutLast) {
  EXPECT_EQ(left(recorded({times(9, "world"), times(7, "world")}), 0),
            (std::vector<std::size_t>{9, 7}));
}

TEST(KeptCalls, TheLastOnesStartAtOneInstance) {
  // Rank 1 stopped two calls earlier: from its last three on, rank 0 has five.
  EXPECT_EQ(left(recorded({times(9, "world"), times(7, "world")}), 3),
            (std::vector<std::size_t>{5, 3}));
}

TEST(KeptCalls, AMemberThatNeverCallsKeepsAllOfItsGroup) {
  EXPECT_EQ(
      left(recorded({group_line("dp", {0, 1}) + times(9, "dp"), group_line("dp", {0, 1})}), 2),
      (std::vector<std::size_t>{9, 0}));
}

TEST(KeptCalls, AMessageIsLeftOutWithItsReceive) {
  // The send of rank 0 would go; rank 1 receives after its first three barriers.
  const std::string sender = message(0, "send", 1) + kept_call(1, "world") + kept_call(2, "world") +
                             kept_call(3, "world") + kept_call(4, "world");
  const std::string receiver = kept_call(0, "world") + kept_call(1, "world") +
                               kept_call(2, "world") + message(3, "recv", 0) +
                               kept_call(4, "world");
  EXPECT_EQ(left(recorded({sender, receiver}), 2), (std::vector<std::size_t>{5, 5}));
  EXPECT_EQ(left(recorded({sender, receiver}), 1), (std::vector<std::size_t>{1, 1}));
}

TEST(KeptCalls, ACutGoesBackThroughTwoGroups) {
  const std::string groups = group_line("a", {0, 1}) + group_line("b", {0, 1});
  // In opposite orders: a cut between the two calls of one rank tears the other's.
  const auto run = recorded({groups + kept_call(0, "a") + kept_call(1, "b") + kept_call(2, "a"),
                             groups + kept_call(0, "b") + kept_call(1, "a") + kept_call(2, "a")});
  EXPECT_EQ(left(run, 2), (std::vector<std::size_t>{3, 3}));
  EXPECT_EQ(left(run, 1), (std::vector<std::size_t>{1, 1}));
}

TEST(KeptCalls, AStepIsKeptWhole) {
  std::string steps;
  for (int i = 0; i < 9; ++i) {
    steps += kept_call(i, "world", {{"step", i / 3}});
  }
  EXPECT_EQ(left(recorded({steps, steps}), 4), (std::vector<std::size_t>{6, 6}));
  EXPECT_EQ(left(recorded({steps, times(7, "world")}), 2), (std::vector<std::size_t>{6, 4}));
}

// Each message is received one place off the order in which it was sent, to alternating sides: any
// cut tears one, and moving it back tears the next.
TEST(KeptCalls, ACutGoesBackAsFarAsItHasTo) {
  constexpr int kMessages = 20'000;
  std::string sender, receiver;
  for (int i = 0; i < kMessages; ++i) {
    const bool last = i + 1 == kMessages;
    sender += message(i, "send", 1, i == 0 || last ? i : i % 2 == 1 ? i + 1 : i - 1);
    receiver += message(i, "recv", 0, i % 2 == 0 ? i + 1 : i - 1);
  }
  EXPECT_EQ(left(recorded({sender, receiver}), kMessages / 2),
            (std::vector<std::size_t>{kMessages, kMessages}));
}

// The definition itself, over all cuts of small runs.
class AllCuts {
 public:
  explicit AllCuts(const trace::Run& run) : run_(run) {}

  // How many calls of each rank are left after the latest cut that leaves at least `last`.
  std::vector<std::size_t> latest(std::size_t last) const {
    std::array<std::size_t, 3> most{}, cut{}, best{};
    for (std::size_t r = 0; r < 3; ++r) {
      const std::size_t calls = run_.ranks[r].calls.size();
      most[r] = calls > last ? calls - last : 0;
    }
    for (cut[0] = 0; cut[0] <= most[0]; ++cut[0])
      for (cut[1] = 0; cut[1] <= most[1]; ++cut[1])
        for (cut[2] = 0; cut[2] <= most[2]; ++cut[2])
          if (is_whole(cut))
            for (std::size_t r = 0; r < 3; ++r) best[r] = std::max(best[r], cut[r]);
    EXPECT_TRUE(is_whole(best));
    std::vector<std::size_t> out;
    for (std::size_t r = 0; r < 3; ++r) out.push_back(run_.ranks[r].calls.size() - best[r]);
    return out;
  }

 private:
  bool is_whole(const std::array<std::size_t, 3>& cut) const {
    std::map<std::string, std::array<std::size_t, 3>> lost;
    for (std::size_t r = 0; r < 3; ++r) {
      const std::vector<trace::Call>& calls = run_.ranks[r].calls;
      for (std::size_t i = 0; i < cut[r]; ++i) ++lost[run_.tables.str(calls[i].group)][r];
      const bool inside = cut[r] > 0 && cut[r] < calls.size();
      if (inside && calls[cut[r]].step != trace::kNone &&
          calls[cut[r]].step == calls[cut[r] - 1].step)
        return false;
    }
    const auto& [a, b, world] = std::tie(lost["a"], lost["b"], lost["world"]);
    return a[0] == a[1] && b[1] == b[2] && world[0] == world[1] && world[1] == world[2];
  }

  const trace::Run& run_;
};

TEST(KeptCalls, AreThoseAfterTheLatestCut) {
  std::mt19937 random(5);
  const std::string a = group_line("a", {0, 1}), b = group_line("b", {1, 2}), world = world_line(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> ranks = {world + a, world + a + b, world + b};
    const bool steps = random() % 2 == 0;
    for (std::size_t r = 0; r < 3; ++r) {
      int step = 0;
      for (int i = 0; i < 7; ++i) {
        const std::uint32_t which = random() % 4;
        step += random() % 3 == 0 ? 1 : 0;
        const bool in_a = r == 0 || (r == 1 && which < 2);
        const char* const group = which == 3 ? "world" : in_a ? "a" : "b";
        ranks[r] += steps ? kept_call(i, group, {{"step", step}}) : kept_call(i, group);
      }
    }
    const auto run = recorded(ranks);
    for (const std::size_t last : {1U, 3U, 5U})
      EXPECT_EQ(left(run, last), AllCuts(run).latest(last)) << ranks[0] << ranks[1] << ranks[2];
  }
}

TEST(KeptCalls, WhatOneRecorderLostIsLeftOutForAll) {
  auto run = recorded({times(9, "world"), times(7, "world")});
  trace::RankTrace& late = run.ranks[1];
  late.dropped = 10;
  const trace::GroupId world = late.calls.front().group;
  for (trace::Call& c : late.calls.own()) c.seq += 2;  // its own numbers: 2 to 8
  late.first_seq.emplace(world, 2);
  EXPECT_EQ(left(run, 0), (std::vector<std::size_t>{7, 7}));
  late.first_seq.clear();
  const auto unnumbered = kept_calls(run, 0);
  ASSERT_FALSE(unnumbered);
  EXPECT_THAT(unnumbered.error().str(), HasSubstr("does not number the others"));
}

TEST(KeptCalls, HalfAMessageAfterLostRecordsIsRefused) {
  auto run = recorded({message(0, "send", 1), kept_call(0, "world")});
  EXPECT_TRUE(kept_calls(run, 0));
  run.ranks[1].dropped = 1;
  run.ranks[1].first_seq.emplace(run.ranks[1].calls.front().group, 0);
  const auto torn = kept_calls(run, 0);
  ASSERT_FALSE(torn);
  EXPECT_THAT(torn.error().str(), HasSubstr("which messages belong together is not known"));
}

TEST(KeptCalls, AReceiveFromAnybodyCannotBeCut) {
  const auto run = recorded({message(0, "send", 1), R"({"ev":"issue","id":0,"g":"world",)"
                                                    R"("op":"recv_any","out":[[1]],"ptag":0})"});
  EXPECT_TRUE(kept_calls(run, 0));
  const auto cut = kept_calls(run, 1);
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().str(), HasSubstr("leave out --last"));
}

}  // namespace
}  // namespace lockstep::runtime
