// A call of a subgroup that a rank left out, and is in the next call of a larger group: who is to
// blame, where the data tell it, and where they do not.
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Ranks in groups of equal size, g0, g1, …. Each reduces "part" in its own one, and then "whole"
// with all the others.
struct Halves {
  std::size_t groups = 2, members = 4;

  std::string declared(std::size_t rank) const {
    std::string out = "group g" + std::to_string(rank / members) + " ";
    for (std::size_t m = 0; m < members; ++m) {
      out += (m == 0 ? "" : ",") + std::to_string(rank / members * members + m);
    }
    return out + "; ";
  }
  std::string part(std::size_t rank) const {
    return "all_reduce g=g" + std::to_string(rank / members) + " n=8 what=part";
  }
  std::string whole() const { return "all_reduce n=8 what=whole"; }

  // Where `absent` left out their parts, all others as far as they come.
  std::vector<std::string> hung(const std::vector<std::size_t>& absent,
                                const std::string& before = "") const {
    std::vector<std::string> out;
    const auto missing = [&](std::size_t r) {
      return std::find(absent.begin(), absent.end(), r) != absent.end();
    };
    for (std::size_t r = 0; r < groups * members; ++r) {
      bool held_up = false;
      for (const std::size_t a : absent) held_up |= a / members == r / members;
      out.push_back(declared(r) + before +
                    (missing(r) ? whole() + " open"
                     : held_up  ? part(r) + " open"
                                : part(r) + "; " + whole() + " open") +
                    "; hung");
    }
    return out;
  }
};

TEST(Overtaking, WhoLeftOutItsSubgroupsCallIsToBlameAndNotThoseWhoWaitInIt) {
  const Report report = verify(program(Halves{}.hung({5})));
  EXPECT_EQ(summary(report),
            "missing-collective error proven culprits=5 group=g1 seq=0\nverdict findings");
  const Finding& f = report.findings[0];
  EXPECT_THAT(f.message, HasSubstr("rank 5 never issued all_reduce(part), which ranks 4, 6, 7 "
                                   "issued as call 0 of group g1"));
  EXPECT_THAT(f.why, HasSubstr("ranks 0-3 made the same call in groups of the same kind before "
                               "all_reduce(whole)"));
  ASSERT_EQ(f.consequences.size(), 1U);
  EXPECT_THAT(f.consequences[0].message, HasSubstr("ranks 0-3, 5 wait in all_reduce(whole)"));
}

// Two pipelines of two stages over NCCL, whose stages share an embedding: it is reduced before the
// norm of all gradients. The host of rank 2 makes the two the other way round, and rank 3, of the
// same stage, shows which way is right.
TEST(Overtaking, WhoMadeItsSubgroupsCallTooLateIsToBlameToo) {
  const auto judged = [&](const std::vector<int>& late) {
    std::vector<std::string> programs;
    for (int r = 0; r < 4; ++r) {
      const int pair = r % 2;
      const bool held_up =
          std::any_of(late.begin(), late.end(), [&](int l) { return l % 2 == pair; });
      const std::string message = r < 2 ? fmt::format("send peer={} n=4 g=pp; ", r + 2)
                                        : fmt::format("recv peer={} n=4 g=pp; ", r - 2);
      const std::string embedding =
          fmt::format("all_reduce g=e{} n=64 async{}; ", pair, held_up ? " open" : "");
      const std::string norm = "all_reduce n=1 async open; ";
      const bool is_late = std::find(late.begin(), late.end(), r) != late.end();
      programs.push_back(fmt::format("backend nccl; group e{0} {0},{1}; ", pair, pair + 2) +
                         message + (is_late ? norm + embedding : embedding + norm) + "hung");
    }
    return summary(verify(program(programs)));
  };
  EXPECT_THAT(judged({2}), StartsWith("cross-group-deadlock error observed culprits=2"));
  // One of each pair is late: nothing shows which order is right.
  EXPECT_THAT(judged({2, 1}), Not(HasSubstr("culprits")));
}

TEST(Overtaking, TheSameOfAProgramThatNeverRan) {
  const Halves halves;
  std::vector<std::string> programs;
  for (std::size_t r = 0; r < 8; ++r) {
    programs.push_back(halves.declared(r) + (r == 5 ? "" : halves.part(r) + "; ") + halves.whole() +
                       "; clean");
  }
  EXPECT_EQ(summary(verify(program(programs, /*timed=*/false))),
            "missing-collective error proven culprits=5 group=g1 seq=0\nverdict findings");
}

TEST(Overtaking, TheSameWhileTheJobRuns) {
  std::vector<std::string> programs = Halves{}.hung({5});
  for (std::string& p : programs) p.replace(p.size() - 4, 4, "cut");
  EXPECT_THAT(summary(verify(program(programs), {.live = true})),
              HasSubstr("missing-collective error proven culprits=5 group=g1"));
}

TEST(Overtaking, SeveralRanksOfSeveralGroupsAreOneFinding) {
  const Report report = verify(program(Halves{3, 4}.hung({1, 5})));
  EXPECT_EQ(summary(report),
            "missing-collective error proven culprits=1,5 group=g0 seq=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("; nor did rank 5 in group g1"));
}

TEST(Overtaking, OtherGroupsTellWhichOfTwoMembers) {
  EXPECT_EQ(judge(Halves{3, 2}.hung({5})),
            "missing-collective error proven culprits=5 group=g2 seq=0\nverdict findings");
}

// No other group to go by: ranks 0 and 1 have none. Rank 4 itself made the call before.
TEST(Overtaking, TheRanksOwnPastTells) {
  const std::string in = "group image 2,3,4; ";
  const std::string part = "all_reduce g=image n=8";
  const std::string whole = "all_reduce n=9";
  const std::string round = part + "; " + whole + "; ";
  const std::string apart = whole + "; " + whole + "; " + whole + " open; hung";
  const std::string waits = in + round + round + part + " open; hung";
  const std::vector<std::string> programs = {apart, apart, waits, waits,
                                             in + round + round + whole + " open; hung"};
  const Report report = verify(program(programs));
  EXPECT_EQ(summary(report),
            "missing-collective error proven culprits=4 group=image seq=2\nverdict findings");
  EXPECT_THAT(report.findings[0].why, HasSubstr("rank 4 made it before"));
}

// Look-alikes.

TEST(Overtaking, WhoComesToItLaterSwappedTheTwo) {
  const Halves halves;
  std::vector<std::string> programs;
  for (std::size_t r = 0; r < 8; ++r) {
    const std::string part = halves.part(r);
    const std::string whole = halves.whole();
    programs.push_back(fmt::format("{}{}; {}; clean", halves.declared(r), r == 5 ? whole : part,
                                   r == 5 ? part : whole));
  }
  EXPECT_THAT(summary(verify(program(programs, /*timed=*/false))),
              HasSubstr("cross-group-deadlock error proven culprits=5 "));
}

TEST(Overtaking, OneCallTooManyIsNoneTooFew) {
  const Halves halves;
  std::vector<std::string> programs;
  for (std::size_t r = 0; r < 8; ++r) {
    programs.push_back(halves.declared(r) + halves.part(r) + "; " +
                       (r == 4 ? halves.part(r) : halves.whole()) + " open; hung");
  }
  EXPECT_THAT(judge(programs), HasSubstr("cross-group-deadlock error proven culprits=4 "));
}

TEST(Overtaking, TwoGroupsOfTheSameRanksAreOppositeOrdersWhateverWasUsual) {
  const std::string groups = "group a 0,1,2; group b 0,1,2; ";
  const std::string round = "all_reduce g=a n=4; all_reduce g=b n=4; ";
  const std::string waits = groups + round + "all_reduce g=a n=4 open; hung";
  EXPECT_THAT(judge({waits, waits, groups + round + "all_reduce g=b n=4 open; hung"}),
              HasSubstr("cross-group-deadlock error proven culprits=2 "));
}

// What cannot be told.

TEST(Overtaking, WithoutOtherGroupsAndWithoutAPastOnlyTheFewAreNamed) {
  const std::string in = "group image 2,3,4; ";
  const std::string waits = in + "all_reduce g=image n=8 open; hung";
  const std::string there = "all_reduce n=9 open; hung";
  EXPECT_THAT(judge({there, there, waits, waits, in + there}),
              HasSubstr("cross-group-deadlock error proven culprits=4 "));
  const std::string of_two = "group image 2,3; ";
  EXPECT_THAT(judge({there, there, of_two + "all_reduce g=image n=8 open; hung", of_two + there}),
              HasSubstr("cross-group-deadlock error proven group="));
}

// Replicas generate texts of several lengths, so that the numbers of their calls say nothing: rank
// 1 left out the broadcast in which most wait, and rank 4 did in another group.
TEST(Overtaking, WholeProgramsTellWhereTheNumbersOfCallsMislead) {
  const auto text = [](int rank, int tokens) {
    std::string out = "broadcast n=9; ";
    for (int t = 0; t < tokens; ++t) out += "all_reduce g=tp" + std::to_string(rank / 3) + " n=8; ";
    return out + "all_gather n=2; ";
  };
  const auto programs = [&](const std::vector<int>& skips) {
    std::vector<std::string> out;
    for (int r = 0; r < 9; ++r) {
      const std::string tp = std::to_string(r / 3 * 3);
      const std::string group = "group tp" + std::to_string(r / 3) + " " + tp + "," +
                                std::to_string(r / 3 * 3 + 1) + "," +
                                std::to_string(r / 3 * 3 + 2) + "; ";
      const bool skip = std::find(skips.begin(), skips.end(), r) != skips.end();
      out.push_back("backend nccl; " + group +
                    text(r, r < 3   ? 3
                            : r < 6 ? 6
                                    : 4) +
                    (skip ? "all_reduce g=tp" + std::to_string(r / 3) + " n=8 open; hung"
                          : "broadcast n=11 open; hung"));
    }
    return out;
  };
  EXPECT_THAT(judge(programs({1})), HasSubstr("error observed culprits=1 group=world seq=2"));
  EXPECT_THAT(judge(programs({1, 4})), HasSubstr("error observed culprits=1,4 group=world seq=2"));
  EXPECT_EQ(judge(programs({})), "device-stall error observed group=world seq=2\nverdict findings");
}

// The first object of a second text comes where the past shows only tokens. Ranks of the other
// groups, whose texts had other lengths, came to it after the same calls.
TEST(Overtaking, ThoseWhoCameFromElsewhereShowWhatIsUsual) {
  const auto programs = [](const std::vector<int>& skips) {
    std::vector<std::string> out;
    for (int r = 0; r < 8; ++r) {
      const std::string tp = "tp" + std::to_string(r / 4);
      std::string text =
          "backend nccl; group " + tp + (r < 4 ? " 0,1,2,3; " : " 4,5,6,7; ") + "broadcast n=9; ";
      for (int token = 0; token < (r < 4 ? 12 : 9); ++token)
        text += "all_reduce g=" + tp + " n=8; ";
      text += "all_gather g=" + tp + " n=3; all_gather n=2; ";
      const bool skip = std::find(skips.begin(), skips.end(), r) != skips.end();
      out.push_back(text +
                    (skip ? "all_reduce g=" + tp + " n=8 open; hung" : "broadcast n=9 open; hung"));
    }
    return out;
  };
  EXPECT_THAT(judge(programs({2})), HasSubstr("error observed culprits=2 group=world"));
  EXPECT_THAT(judge(programs({1, 3})), HasSubstr("error observed culprits=1,3 group=world"));
}

// The descriptions of sister groups differ in their number. The first and the last stage of a
// pipeline reduce the embedding that they share, before the norm.
TEST(Overtaking, NumberedGroupsOfOneRoleAreSisters) {
  const auto judgement = [](const std::string& role, const std::string& other) {
    const auto rank = [&](int r, const std::string& calls) {
      const std::string group =
          r % 2 == 0 ? "group e0 0,2 " + role + "_0; " : "group e1 1,3 " + other + "_1; ";
      const std::string message = r < 2 ? "send n=4 async peer=" : "recv n=4 async peer=";
      return "backend nccl; " + group + "broadcast n=9 async; " + message +
             std::to_string((r + 2) % 4) + "; " + calls + "hung";
    };
    const std::string norm = "all_reduce n=1 async open; ";
    return judge({rank(0, "all_reduce g=e0 n=8 async; " + norm),
                  rank(1, "all_reduce g=e1 n=8 async open; "),
                  rank(2, "all_reduce g=e0 n=8 async; " + norm), rank(3, norm)});
  };
  EXPECT_THAT(judgement("embedding", "embedding"), HasSubstr("error observed culprits=3 "));
  // The look-alike: groups of two roles show nothing of each other.
  EXPECT_THAT(judgement("embedding", "tensor"), Not(HasSubstr("culprits=3 ")));
}

TEST(Overtaking, OtherGroupsThatDoNotAgreeTellNothing) {
  // The last of six groups hangs; the ranks of two groups made no part before.
  const Halves pairs{6, 2};
  std::vector<std::string> programs = pairs.hung({11});
  for (std::size_t r = 0; r < 6; ++r) {
    programs[r] = pairs.declared(r) + pairs.whole() + " open; hung";
  }
  EXPECT_THAT(judge(programs), HasSubstr("cross-group-deadlock error proven "));
}

TEST(Overtaking, WhoseTraceLostRecordsIsNotAccused) {
  auto damaged = program(Halves{}.hung({5}));
  damaged.ranks[5].damaged_count = 1;
  EXPECT_THAT(summary(verify(damaged)), Not(HasSubstr("missing-collective")));
  auto late = program(Halves{}.hung({5}));
  late.ranks[5].dropped = 3;  // its round may have begun before
  EXPECT_THAT(summary(verify(late)), Not(HasSubstr("missing-collective")));
}

// Every call of small programs left out, or exchanged with the next one: whoever is named did it.

using Letters = std::string;  // of one rank: p for its part, w for the whole

std::string halves_as_program(const Halves& halves, std::size_t rank, const Letters& letters,
                              std::size_t issued, bool ran) {
  std::string out = halves.declared(rank);
  for (std::size_t i = 0; i < issued; ++i) {
    out += letters[i] == 'p' ? halves.part(rank) : halves.whole();
    out += ran && i + 1 == issued ? " open; " : "; ";
  }
  return out + (ran ? "hung" : "clean");
}

// How many calls each rank issues until nobody can move: the last one holds it, or it is through.
std::vector<std::size_t> play(const Halves& halves, const std::vector<Letters>& all) {
  std::vector<std::size_t> issued(all.size(), 0);
  const auto count = [&](std::size_t r, std::size_t calls, char letter) {
    return std::count(all[r].begin(), all[r].begin() + static_cast<std::ptrdiff_t>(calls), letter);
  };
  const auto through = [&](std::size_t r) {
    if (issued[r] == 0) return true;
    const char letter = all[r][issued[r] - 1];
    const auto issued_by_it = count(r, issued[r], letter);
    for (std::size_t q = 0; q < all.size(); ++q) {
      const bool member = letter == 'w' || q / halves.members == r / halves.members;
      if (member && count(q, issued[q], letter) < issued_by_it) return false;
    }
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (issued[r] == all[r].size() || !through(r)) continue;
      ++issued[r];
      moved = true;
    }
  }
  return issued;
}

struct Tally {
  int named = 0, left_out = 0, wrong = 0;
};

void hold(const Halves& halves, const Letters& usual, std::size_t rank, const Letters& changed,
          bool skipped, Tally& tally) {
  std::vector<Letters> all(halves.groups * halves.members, usual);
  all[rank] = changed;
  const std::vector<std::size_t> issued = play(halves, all);
  for (const bool ran : {false, true}) {
    std::vector<std::string> texts;
    bool ended = true;
    for (std::size_t r = 0; r < all.size(); ++r) {
      texts.push_back(halves_as_program(halves, r, all[r], ran ? issued[r] : all[r].size(), ran));
      ended = ended && issued[r] == all[r].size();
    }
    if (ran && ended) continue;  // all were called: it cannot be seen whether the last one hangs
    const Report report = verify(program(texts, /*timed=*/ran));
    ASSERT_FALSE(report.findings.empty()) << usual << " but rank " << rank << " " << changed;
    const Finding& f = report.findings[0];
    const std::vector<trace::Rank> it = {trace::Rank(static_cast<std::int32_t>(rank))};
    tally.named += f.culprits == it;
    tally.left_out += f.rule == RuleId::missing_collective;
    EXPECT_TRUE(f.culprits.empty() || f.culprits == it)
        << usual << " but rank " << rank << " " << changed << ", ran " << ran << "\n"
        << summary(report);
    // A program is known whole; of a hang, no more is known than that the call is missing.
    if (skipped || ran) continue;
    EXPECT_NE(f.rule, RuleId::missing_collective) << summary(report);
  }
}

TEST(Overtaking, WhoeverIsNamedDidIt) {
  Tally tally;
  int cases = 0;
  for (const Halves& halves : {Halves{2, 3}, Halves{3, 2}, Halves{3, 3}}) {
    for (const Letters usual : {"pw", "pwpw", "ppw", "pwpwpw", "ppwppw"}) {
      for (std::size_t i = 0; i + 1 < usual.size(); ++i) {
        Letters skips = usual;
        skips.erase(i, 1);
        Letters swaps = usual;
        std::swap(swaps[i], swaps[i + 1]);
        for (const std::size_t rank : {std::size_t{0}, halves.groups * halves.members - 1}) {
          ++cases;
          hold(halves, usual, rank, skips, true, tally);
          if (swaps != usual) hold(halves, usual, rank, swaps, false, tally);
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(tally.left_out, cases) << "of " << cases;
  EXPECT_GT(tally.named, 2 * cases) << "of " << cases;
}

}  // namespace
}  // namespace lockstep::verify
