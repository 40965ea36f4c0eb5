// Looks at running processes: stalls are found, skew is not an error.
#include <filesystem>
#include <fstream>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "trace/load.h"
#include "verify/blocking/unanswered.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// One letter a call: c completed, p pending; a digit before it changes its source line. Groups of
// `size` neighbours; 0: all ranks are one group.
trace::Run snapshot_of(const std::vector<std::string>& ranks, const std::string& op = "all_reduce",
                       std::size_t size = 0) {
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::string text = header_line(static_cast<int>(r), ranks.size());
    std::string group = "world";
    if (size > 0) {
      std::vector<int> members(size);
      std::iota(members.begin(), members.end(), static_cast<int>(r / size * size));
      group = fmt::format("tensor{}", r / size);
      text += group_line(group, members);
    }
    int id = 0;
    char line = '0';
    for (const char c : ranks[r]) {
      if (c >= '0' && c <= '9') {
        line = c;
        continue;
      }
      text += issue_line(id, group, op,
                         {{"in", {{8}}},
                          {"out", {{8}}},
                          {"async", true},
                          {"at", fmt::format("train.py:{}", line)}});
      if (c == 'c') text += event_line("complete", id);
      ++id;
      line = '0';
    }
    texts.push_back(text + end_line("hung"));
  }
  trace::Run run = run_from_text(texts);
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
  return run;
}

Report judge_snapshot(const std::vector<std::string>& ranks, const std::string& op = "all_reduce",
                      std::size_t size = 0) {
  return verify(snapshot_of(ranks, op, size));
}

// Rank 3 went on alone: the others may wait for it in what a dump does not hold.
TEST(Snapshot, MostRanksThatStopMayWaitForTheOneThatDidNot) {
  const Report most = judge_snapshot({"cc", "cc", "cc", "ccp"});
  ASSERT_FALSE(most.findings.empty());
  EXPECT_THAT(most.findings[0].culprits, IsEmpty());
  EXPECT_THAT(most.findings[0].why, HasSubstr("a new communicator that rank 3 did not join"));
  EXPECT_THAT(most.findings[0].fix, HasSubstr("the stack of one of ranks 0-2"));
  const Report one = judge_snapshot({"cc", "ccp", "ccp", "ccp"});
  ASSERT_FALSE(one.findings.empty());
  EXPECT_THAT(one.findings[0].culprits, ElementsAre(trace::Rank(0)));
  EXPECT_THAT(one.findings[0].why, Not(HasSubstr("a new communicator")));
}

TEST(Snapshot, AStalledDeviceIsBehindPeersThatWait) {
  const Report report = judge_snapshot({"cccpp", "cpppp", "cccpp"});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::device_stall);
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(1)));
  EXPECT_EQ(report.findings[0].seq, 1U);
}

// Rank 0 waits in the last call of a round; the others came as far as the one before it.
TEST(Snapshot, MostRanksThatBrokeOffARoundAreNamed) {
  const std::string round = "1c2c3c";
  const std::vector<std::string> ranks = {round + round + "1c2c3p", round + round + "1c2c",
                                          round + round + "1c2c", round + round + "1c2c"};
  const Report report = judge_snapshot(ranks);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::host_stall);
  EXPECT_THAT(report.findings[0].culprits,
              ElementsAre(trace::Rank(1), trace::Rank(2), trace::Rank(3)));
  // Where rings forgot the first calls, nothing shows where a round begins.
  trace::Run rings = snapshot_of(ranks);
  for (trace::RankTrace& trace : rings.ranks) trace.dropped = 3;
  EXPECT_THAT(verify(rings).findings.at(0).culprits, IsEmpty());
}

// Rank 0 is a round further, or makes a call of its own: the others did nothing unusual.
TEST(Snapshot, MostRanksThatEndedARoundAreNotNamed) {
  const auto named = [](const std::string& others, const std::string& further) {
    const Report report = judge_snapshot({others + further, others, others, others});
    EXPECT_NE(report.verdict, Verdict::clean);
    return report.findings.empty() ? std::vector<trace::Rank>{} : report.findings[0].culprits;
  };
  const std::string rounds = "1c2c3c1c2c3c1c2c3c";
  for (const std::string further : {"1p", "7p"})
    EXPECT_THAT(named(rounds, further), IsEmpty()) << further;
  EXPECT_THAT(named(rounds, "3p"), ElementsAre(trace::Rank(0)));  // once more
  EXPECT_THAT(named("1c2c3c1c2c3c1c2c", "7p"), IsEmpty());
  // Every second round ends with a call more, so that two of them look like one.
  const std::string pair = "1c2c3c1c2c3c4c";
  EXPECT_THAT(named(pair + pair + pair + "1c2c3c", "1p"), IsEmpty());
}

// A ring of `ranks`. Each round is a hop and a reduction. All are in the last reduction, except for
// the last rank, which left it out and stands in the hop of the next round.
trace::Run ring_snapshot(int ranks, int rounds) {
  const auto rank = [&](int r) {
    std::string text = header_line(r, static_cast<std::size_t>(ranks), {{"backend", "nccl"}});
    int id = 0;
    const auto issue = [&](const std::string& op, nlohmann::json keys, bool completes) {
      keys["async"] = true;
      text += issue_line(id, "world", op, keys);
      if (completes) text += event_line("complete", id);
      ++id;
    };
    const auto hop = [&](bool completes) {
      issue("send", {{"in", {{8}}}, {"peer", (r + 1) % ranks}}, completes);
      issue("recv", {{"out", {{8}}}, {"peer", (r + ranks - 1) % ranks}}, completes);
    };
    for (int round = 0; round < rounds; ++round) {
      hop(true);
      const bool last = round + 1 == rounds;
      if (last && r + 1 == ranks) {
        hop(false);
        break;
      }
      issue("all_reduce", {{"in", {{4}}}, {"redop", "sum"}}, !last);
    }
    return text + end_line("hung");
  };
  std::vector<std::string> texts;
  for (int r = 0; r < ranks; ++r) texts.push_back(rank(r));
  trace::Run run = run_from_text(texts);
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
  return run;
}

TEST(Snapshot, AReductionLeftOutBeforeAMessageIsNamed) {
  for (const int ranks : {2, 4}) {
    const Report report = verify(ring_snapshot(ranks, 4));
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(report.findings[0].rule, RuleId::missing_collective);
    EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(ranks - 1)));
    EXPECT_EQ(report.findings[0].seq, 3U);
  }
}

// In a pair's first round, nothing shows that the reduction was left out rather than the message
// made once too often.
TEST(Snapshot, WithoutAPastAMessageOfAPairDoesNotShowAReductionLeftOut) {
  const Report report = verify(ring_snapshot(2, 1));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_NE(report.findings[0].rule, RuleId::missing_collective);
  EXPECT_THAT(report.findings[0].culprits, testing::Not(ElementsAre(trace::Rank(0))));
}

// An entry of a dump: an all-reduce of so many elements as call `seq` of a group.
nlohmann::json dump_entry(const std::string& group, const std::string& description, int seq,
                          int elements, bool completed) {
  return {{"record_id", seq - 1},
          {"pg_id", 0},
          {"process_group", {group, description}},
          {"collective_seq_id", seq},
          {"p2p_seq_id", 0},
          {"op_id", seq},
          {"profiling_name", "nccl:all_reduce"},
          {"time_created_ns", 1795247719749931269},
          {"input_sizes", {{elements}}},
          {"input_dtypes", {"Float"}},
          {"output_sizes", {{elements}}},
          {"output_dtypes", {"Float"}},
          {"state", completed ? "completed" : "scheduled"},
          {"retired", completed},
          {"timeout_ms", 600000},
          {"is_p2p", false}};
}

// `dumps`: by rank.
Report judge_dumps(const std::vector<nlohmann::json>& dumps) {
  const TempDir folder;
  for (std::size_t r = 0; r < dumps.size(); ++r)
    folder.write("trace_rank_" + std::to_string(r), dumps[r].dump());
  const auto run = trace::load_run({folder.path()});
  return run ? verify(*run) : Report{};
}

// A rank's calls of the default group by their numbers in the dump, `first` to `last`: those up to
// `completed` are over, as its counters say, too.
struct Ring {
  int first, last, completed;
};

Report judge_rings(const std::vector<Ring>& ranks) {
  std::vector<nlohmann::json> dumps;
  for (const Ring& ring : ranks) {
    nlohmann::json dump = {
        {"version", "2.10"},
        {"pg_config", {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1, 2, 3]"}}}}},
        {"pg_status",
         {{"0",
           {{"last_enqueued_collective", ring.last},
            {"last_started_collective", -1},
            {"last_completed_collective", ring.completed}}}}}};
    for (int seq = ring.first; seq <= ring.last; ++seq)
      dump["entries"].push_back(dump_entry("0", "default_pg", seq, 8, seq <= ring.completed));
    dumps.push_back(std::move(dump));
  }
  return judge_dumps(dumps);
}

// The rings keep 12 calls. Those of ranks 0 and 1, which stopped earlier, begin earlier.
TEST(Snapshot, OtherGroupsTellByTheNumbersOfCalls) {
  // Every fourth call has one element. Rank 1 leaves call 12 out.
  const auto pair = [](const std::string& group, const std::string& ranks, int first, int last,
                       int left_out, int completed) {
    nlohmann::json dump = {
        {"version", "2.10"},
        {"pg_config", {{group, {{"name", group}, {"desc", "tensor"}, {"ranks", ranks}}}}},
        {"entries", nlohmann::json::array()}};
    for (int seq = first; seq <= last; ++seq) {
      const int in_program = seq >= left_out ? seq + 1 : seq;
      dump["entries"].push_back(
          dump_entry(group, "tensor", seq, in_program % 4 == 0 ? 1 : 100, seq <= completed));
    }
    return dump;
  };
  const Report report =
      judge_dumps({pair("1", "[0, 1]", 1, 12, 99, 11), pair("1", "[0, 1]", 4, 15, 12, 11),
                   pair("2", "[2, 3]", 5, 16, 99, 16), pair("2", "[2, 3]", 5, 16, 99, 16),
                   pair("3", "[4, 5]", 5, 16, 99, 16), pair("3", "[4, 5]", 5, 16, 99, 16)});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::missing_collective);
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(1)));
}

// The ring has overwritten the open call, and what it holds is complete.
TEST(Snapshot, CountersOfOpenCallsThatTheRingLostAreNotClean) {
  const auto dump = [](int enqueued) {
    nlohmann::json out = {
        {"version", "2.10"},
        {"pg_config", {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1]"}}}}},
        {"pg_status",
         {{"0", {{"last_enqueued_collective", enqueued}, {"last_completed_collective", 5}}}}}};
    for (int seq = 2; seq <= 5; ++seq)
      out["entries"].push_back(dump_entry("0", "default_pg", seq, 8, true));
    return out;
  };
  EXPECT_EQ(judge_dumps({dump(5), dump(5)}).verdict, Verdict::clean);
  const Report report = judge_dumps({dump(5), dump(6)});
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  ASSERT_FALSE(report.unknown.empty());
  EXPECT_THAT(report.unknown[0], testing::HasSubstr("rank 1 had enqueued 6 calls in default_pg"));
}

// Hosts that ran far ahead have overwritten the call in which their devices stand.
TEST(Snapshot, AnOldestOpenCallThatTheRingLostIsNotThatOfTheNewestEntries) {
  const Report report = judge_rings({{3, 6, 1}, {3, 6, 1}, {1, 1, 1}, {2, 5, 1}});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::host_stall);
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(2)));
  // The look-alike: the ring lost calls that are over.
  const Report stall = judge_rings({{3, 6, 4}, {3, 6, 4}, {3, 6, 4}, {2, 5, 2}});
  ASSERT_FALSE(stall.findings.empty());
  EXPECT_EQ(stall.findings[0].rule, RuleId::device_stall);
  EXPECT_THAT(stall.findings[0].culprits, ElementsAre(trace::Rank(3)));
  // All lost it: nothing tells whether it is a device or the network.
  EXPECT_EQ(judge_rings({{3, 6, 1}, {3, 6, 1}, {3, 6, 1}, {4, 6, 1}}).verdict,
            Verdict::inconclusive);
}

TEST(Snapshot, AStalledDeviceHoldsUpItsPeerInAnotherGroup) {
  // Rank 0 completed the call of the pair, and waits for rank 1 in one of all.
  const auto rank = [](int r) {
    std::string text = header_line(r, 2, {{"backend", "nccl"}}) + group_line("pair", {0, 1});
    const auto issue = [&](int id, const std::string& group, bool completes) {
      text += issue_line(id, group, "all_reduce", {{"in", {{8}}}, {"async", true}});
      if (completes) text += event_line("complete", id);
    };
    issue(0, "world", true);
    issue(1, "pair", r == 0);
    if (r == 0) issue(2, "world", false);
    return text + end_line("hung");
  };
  trace::Run run = run_from_text({rank(0), rank(1)});
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
  const Report report = verify(run);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::device_stall);
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(1)));
  EXPECT_EQ(report.findings[0].group, "pair");
}

TEST(Snapshot, SkewIsNoError) {
  // Peers wait for nothing; all are in flight. Nothing tells whether the open calls hang.
  EXPECT_EQ(judge_snapshot({"ccc", "cpp", "ccc"}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_snapshot({"cpp", "cpp", "cpp"}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_snapshot({"ccc", "ccc", "ccc"}).verdict, Verdict::clean);
}

TEST(Snapshot, MostOfALargeGroupBehindIsNoProof) {
  const Report report = judge_snapshot({"cpp", "cpp", "cpp", "cpp", "ccp"});
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  ASSERT_FALSE(report.unknown.empty());
  EXPECT_THAT(report.unknown[0], testing::HasSubstr("ranks 0-3 had not completed"));
  // Half of it, and no times that tell; most of a small one.
  const std::vector<std::string> half = {"cpp", "cpp", "cpp", "cpp", "ccp", "ccp", "ccp", "ccp"};
  EXPECT_EQ(judge_snapshot(half).verdict, Verdict::findings);
  EXPECT_EQ(judge_snapshot({"cpp", "cpp", "ccp"}).verdict, Verdict::findings);
}

TEST(Snapshot, ACallThatOneMemberSawCompletedStallsNobody) {
  EXPECT_EQ(judge_snapshot({"cccc", "cppp", "ccpp"}).verdict, Verdict::inconclusive);
  // Here nobody did: those ahead wait.
  EXPECT_EQ(judge_snapshot({"cccp", "cppp", "cccp"}).verdict, Verdict::findings);
}

// Calls of the groups "a" and "b", of both ranks, or messages to and from the other rank ("s",
// "r"). Upper case: completed.
Report judge_lanes(const std::vector<std::string>& ranks) {
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    std::string text = header_line(rank, 2) + group_line("a", {0, 1}) + group_line("b", {0, 1});
    int id = 0;
    for (const char c : ranks[r]) {
      const char kind = static_cast<char>(c | 0x20);
      if (kind == 's') {
        text +=
            issue_line(id, "world", "send", {{"in", {{8}}}, {"peer", 1 - rank}, {"async", true}});
      } else if (kind == 'r') {
        text +=
            issue_line(id, "world", "recv", {{"out", {{8}}}, {"peer", 1 - rank}, {"async", true}});
      } else {
        text +=
            issue_line(id, std::string(1, kind), "all_reduce", {{"in", {{8}}}, {"async", true}});
      }
      if (kind != c) text += event_line("complete", id);
      ++id;
    }
    texts.push_back(text + end_line("hung"));
  }
  trace::Run run = run_from_text(texts);
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
  return verify(run);
}

TEST(Snapshot, DevicesThatTookTwoCallsInOppositeOrdersWaitForEachOther) {
  const Report groups = judge_lanes({"ABab", "ABba"});
  ASSERT_FALSE(groups.findings.empty());
  EXPECT_EQ(groups.findings[0].rule, RuleId::cross_group_deadlock);
  EXPECT_EQ(groups.findings[0].seq, 1U);
  const Report messages = judge_lanes({"sr", "sr"});
  ASSERT_FALSE(messages.findings.empty());
  EXPECT_EQ(messages.findings[0].rule, RuleId::p2p_cycle);
}

TEST(Snapshot, OneOrderOrACompletedCallIsNoCycle) {
  // Under way, and never clean: nothing tells whether it hangs.
  EXPECT_EQ(judge_lanes({"ABab", "ABab"}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_lanes({"ABaB", "ABBa"}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_lanes({"sr", "rs"}).verdict, Verdict::inconclusive);  // posted, under way
}

TEST(Snapshot, AMessageWhoseOtherSideWasPostedAccusesNobody) {
  EXPECT_EQ(judge_lanes({"SRs", "RSR"}).verdict, Verdict::inconclusive);  // the other saw it done
  const Report missing = judge_lanes({"SRs", "RS"});
  ASSERT_FALSE(missing.findings.empty());
  EXPECT_EQ(missing.findings[0].rule, RuleId::host_stall);
}

TEST(Snapshot, AHostThatNeverIssuedIsTheCulprit) {
  const Report report = judge_snapshot({"ccp", "cc", "ccp"});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::host_stall);
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(1)));
}

TEST(Snapshot, HalfOfTheGroupAheadInANewCallTellsNothing) {
  EXPECT_EQ(judge_snapshot({"cc9p", "cc9p", "cc", "cc"}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_snapshot({"ccp", "ccp", "cc", "cc"}).verdict, Verdict::findings);  // known calls
}

TEST(Snapshot, SourceLocationsShowTheExtraCallOfAFew) {
  const Report report = judge_snapshot({"c5c1c2p", "c1c2c", "c1c2c", "c1c2c"});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::extra_collective);
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(0)));
  EXPECT_EQ(report.findings[0].seq, 1U);
}

// Equal calls pair one off, and the job trains on, until the rank's program ends a call early.
TEST(Snapshot, SourceLocationsShowTheCallThatAFewLeftOut) {
  const std::string usual = "1c1c2c2c1c1c2c2p", less = "1c1c2c2c1c2c2c";
  const Report report = judge_snapshot({usual, usual, less, usual});
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].rule, RuleId::missing_collective);
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(2)));
  EXPECT_EQ(report.findings[0].seq, 5U);
  // The look-alike: it made the same calls and stopped before the last one.
  const Report stall = judge_snapshot({usual, usual, usual.substr(0, 14), usual});
  ASSERT_EQ(stall.findings.size(), 1U);
  EXPECT_EQ(stall.findings[0].rule, RuleId::host_stall);
}

// One of two ranks made a call from a line of its own, which paired with the other's call from the
// next line. So it waits in the next call, for which the other one seems to have stopped.
TEST(Snapshot, ThePartnerOfARankThatMadeACallTooManyIsNotNamed) {
  const auto first = [](const Report& report) -> const Finding& { return report.findings.at(0); };
  const Report report = judge_snapshot({"1c2c1c9c2p", "1c2c1c2c"});
  EXPECT_EQ(first(report).rule, RuleId::extra_collective);
  EXPECT_THAT(first(report).culprits, ElementsAre(trace::Rank(0)));
  EXPECT_EQ(first(report).seq, 3U);
  // Without a past it may as well be a call that the other one left out.
  const Report tie = judge_snapshot({"1c9c2p", "1c2c"});
  EXPECT_THAT(first(tie).culprits, IsEmpty());
  EXPECT_THAT(first(tie).message, testing::HasSubstr("either"));
  // A host that just stopped.
  const Report stopped = judge_snapshot({"1c2c1c2p", "1c2c1c"});
  EXPECT_EQ(first(stopped).rule, RuleId::host_stall);
  EXPECT_THAT(first(stopped).culprits, ElementsAre(trace::Rank(1)));
}

// In a pair, one call more and one call less look the same; the other pairs tell.
// Rank 1 reduced once too often in a first round, and stands in the last of its calls with rank 0,
// which ended. Others wait for rank 1.
TEST(Snapshot, NobodyIsNamedForARankThatMadeACallTooManyAlthoughOthersWaitForIt) {
  const auto rank = [](int r, int extra, int rounds, bool waits) {
    std::string text = header_line(r, 4, {{"backend", "nccl"}}) +
                       group_line(fmt::format("tp{}", r / 2), {r / 2 * 2, r / 2 * 2 + 1}) +
                       group_line(fmt::format("dp{}", r % 2), {r % 2, r % 2 + 2});
    int id = 0;
    const auto issue = [&](const std::string& group, int size, bool completes) {
      text += issue_line(id, fmt::format("{}{}", group, group == "tp" ? r / 2 : r % 2),
                         "all_reduce", {{"in", {{size}}}, {"out", {{size}}}, {"async", true}});
      if (completes) text += event_line("complete", id);
      ++id;
    };
    for (int i = 0; i < extra; ++i) issue("tp", 4, true);
    for (int round = 0; round < rounds; ++round) {
      const bool last = waits && round + 1 == rounds;
      issue("tp", 4, !(last && extra > 0));
      issue("dp", 8, !last);
      issue("dp", 16, !last);
    }
    return text + end_line("hung");
  };
  const auto culprits = [](const std::vector<std::string>& texts) {
    trace::Run run = run_from_text(texts);
    for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
    const Report report = verify(run);
    return report.findings.empty() ? std::vector<trace::Rank>{} : report.findings[0].culprits;
  };
  EXPECT_THAT(culprits({rank(0, 0, 3, false), rank(1, 1, 3, true), rank(2, 0, 3, false),
                        rank(3, 0, 3, true)}),
              ElementsAre(trace::Rank(1)));
  // Rank 0 stopped a round before.
  EXPECT_THAT(culprits({rank(0, 0, 2, false), rank(1, 0, 3, true), rank(2, 0, 3, true),
                        rank(3, 0, 3, true)}),
              ElementsAre(trace::Rank(0)));
}

TEST(Snapshot, OtherGroupsTellWhichOfAPairLeftACallOut) {
  const std::string usual = "1c1c2c2c1c1c2c2c", more = "1c1c2c2c1c1c2c2p", less = "1c1c2c2c1c2c2c";
  const Report left_out = judge_snapshot({more, less, usual, usual, usual, usual}, "all_reduce", 2);
  ASSERT_EQ(left_out.findings.size(), 1U);
  EXPECT_EQ(left_out.findings[0].rule, RuleId::missing_collective);
  EXPECT_THAT(left_out.findings[0].culprits, ElementsAre(trace::Rank(1)));
  const Report extra = judge_snapshot({more, less, less, less, less, less}, "all_reduce", 2);
  ASSERT_EQ(extra.findings.size(), 1U);
  EXPECT_EQ(extra.findings[0].rule, RuleId::extra_collective);
  EXPECT_THAT(extra.findings[0].culprits, ElementsAre(trace::Rank(0)));
  // Two of one kind and two of the other tell nothing.
  const Report tie = judge_snapshot({more, less, usual, usual, less, less}, "all_reduce", 2);
  ASSERT_FALSE(tie.findings.empty());
  EXPECT_THAT(tie.findings[0].culprits, IsEmpty());
  EXPECT_THAT(tie.findings[0].message, testing::HasSubstr("either"));
}

TEST(Snapshot, AnExtraCallThatTheCallsThemselvesShowIsSaidOnce) {
  // Rank 0's second call is a barrier where the others have all_reduces from other lines.
  std::vector<std::string> texts;
  for (int r = 0; r < 3; ++r) {
    std::string text = header_line(r, 3);
    int id = 0;
    const auto issue = [&](const std::string& op, const std::string& at, bool completed) {
      text += issue_line(id, "world", op, {{"async", true}, {"at", at}});
      if (completed) text += event_line("complete", id);
      ++id;
    };
    issue("all_reduce", "a:1", true);
    if (r == 0) issue("barrier", "log:7", true);
    issue("all_reduce", "a:2", true);
    issue("all_gather", "a:3", r > 0);
    texts.push_back(text + end_line("hung"));
  }
  trace::Run run = run_from_text(texts);
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
  const Report report = verify(run);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(0)));
}

TEST(Snapshot, TotalsOfAnAllToAllMustAgree) {
  const auto text = [](int rank, int in, int out) {
    return header_line(rank, 2) +
           issue_line(0, "world", "all_to_all", {{"in", {{in}}}, {"out", {{out}}}}) +
           end_line("hung");
  };
  const Report bad = verify(run_from_text({text(0, 5, 4), text(1, 3, 3)}));
  ASSERT_FALSE(bad.findings.empty());
  EXPECT_EQ(bad.findings[0].rule, RuleId::splits_mismatch);
  const Report good = verify(run_from_text({text(0, 5, 3), text(1, 3, 5)}));
  for (const Finding& f : good.findings) EXPECT_NE(f.rule, RuleId::splits_mismatch);
}

// Every job in the shared examples, where they are there.
TEST(FlightRecorderExamples, AreJudgedAsTheyAre) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared" / "data" / "fr";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not there";
  int judged = 0;
  for (const auto& job : fs::directory_iterator(folder)) {
    std::ifstream in(job.path() / "expected.json");
    if (!in) continue;
    const nlohmann::json expected = nlohmann::json::parse(in);
    const Result<trace::Run> run = trace::load_run({job.path().string()});
    ASSERT_TRUE(run) << job.path() << (run ? "" : run.error().str());
    const Report report = verify(*run);
    std::vector<std::string> accepted = {expected["verdict"]};
    if (expected.contains("accept_verdicts")) accepted = expected["accept_verdicts"];
    EXPECT_THAT(accepted, testing::Contains(std::string(to_string(report.verdict)))) << job.path();
    ++judged;
    if (expected["verdict"] != "findings" || expected["culprit_ranks"].empty()) continue;
    if (!expected.value("culprit_derivable", true) || expected.contains("culprit_any_of")) continue;
    std::vector<int> culprits;
    for (const trace::Rank r : report.findings.at(0).culprits) culprits.push_back(r.value);
    EXPECT_EQ(culprits, expected["culprit_ranks"].get<std::vector<int>>()) << job.path();
  }
  EXPECT_GT(judged, 30);
}

// Two ranks with one call in each of very many groups; in one of them rank 1's device stands.
Report judge_many_groups(int stalled, bool by_counter) {
  constexpr int kGroups = 2000;
  std::vector<std::string> texts;
  for (int r = 0; r < 2; ++r) {
    std::string text = header_line(r, 2);
    int id = 0;
    for (int g = 0; g < kGroups; ++g) {
      const std::string name = fmt::format("g{}", g);
      text += group_line(name, {0, 1});
      for (int call = 0; call < 2; ++call, ++id) {
        text += issue_line(id, name, "all_reduce", {{"in", {{8}}}, {"async", true}});
        const bool waits = g == stalled && (call == 1 || (r == 1 && !by_counter));
        if (!waits) text += event_line("complete", id);
      }
    }
    texts.push_back(text + end_line("hung"));
  }
  trace::Run run = run_from_text(texts);
  for (trace::RankTrace& trace : run.ranks) {
    trace.snapshot = true;
    for (const auto& membership : trace.groups) {
      trace.progress.push_back({membership.group, 2, 2, 1});
    }
  }
  return verify(run);
}

TEST(Snapshot, AStalledDeviceInOneOfManyGroups) {
  const Report report = judge_many_groups(1234, false);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::device_stall);
  EXPECT_EQ(report.findings[0].group, "g1234");
  EXPECT_THAT(report.findings[0].culprits, ElementsAre(trace::Rank(1)));
  EXPECT_EQ(judge_many_groups(1234, true).verdict, Verdict::inconclusive);  // both wait in one call
  EXPECT_EQ(judge_many_groups(-1, true).verdict, Verdict::clean);
}

}  // namespace
}  // namespace lockstep::verify
