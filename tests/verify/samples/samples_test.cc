// Do the ranks train on the right data? Samplers in order and out of order, as they occur.
#include <algorithm>
#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Samples = std::vector<std::int64_t>;

// A job whose ranks read `batch` samples a step, as a DistributedSampler deals them, unless told
// otherwise.
struct Job {
  std::uint32_t world = 4;
  std::int64_t items = 103;
  std::int64_t batch = 4;
  int epochs = 3;
  bool shuffle = true;
  bool set_epoch = true;
  bool shard = true;
  bool drop_last = false;
  std::vector<std::uint64_t> seeds;  // by rank; empty: the same
  std::int64_t steps = -1;           // fewer than all
  std::uint64_t seed = 0;
  bool across = false;  // a batch goes on with the next epoch's samples where those of one run out
};

Samples order_of(const Job& job, std::uint32_t rank, int epoch) {
  Samples order(static_cast<std::size_t>(job.items));
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t seed = job.seeds.empty() ? job.seed : job.seeds[rank];
  std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(job.set_epoch ? epoch : 0));
  if (job.shuffle) std::shuffle(order.begin(), order.end(), random);
  if (!job.shard) return order;
  const auto world = static_cast<std::size_t>(job.world);
  const std::size_t each =
      job.drop_last ? order.size() / world : (order.size() + world - 1) / world;
  for (std::size_t i = 0; order.size() < each * world; ++i) order.push_back(order[i]);
  Samples mine;
  for (std::size_t i = 0; i < each; ++i) mine.push_back(order[i * world + rank]);
  return mine;
}

using Batches = std::vector<Samples>;

Batches batches_of(const Job& job, std::uint32_t rank) {
  Batches out;
  if (job.across) {
    Samples mine;
    for (int epoch = 0; epoch < job.epochs; ++epoch) {
      const Samples more = order_of(job, rank, epoch);
      mine.insert(mine.end(), more.begin(), more.end());
    }
    for (std::ptrdiff_t i = 0; i + job.batch <= std::ssize(mine); i += job.batch)
      out.emplace_back(mine.begin() + i, mine.begin() + i + job.batch);
    return out;
  }
  for (int epoch = 0; epoch < job.epochs; ++epoch) {
    const Samples mine = order_of(job, rank, epoch);
    for (std::size_t i = 0; i < mine.size(); i += static_cast<std::size_t>(job.batch)) {
      const std::size_t end = std::min(mine.size(), i + static_cast<std::size_t>(job.batch));
      if (job.drop_last && end - i < static_cast<std::size_t>(job.batch)) break;
      out.emplace_back(mine.begin() + static_cast<std::ptrdiff_t>(i),
                       mine.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  if (job.steps >= 0 && out.size() > static_cast<std::size_t>(job.steps)) {
    out.resize(static_cast<std::size_t>(job.steps));
  }
  return out;
}

std::string data_line(std::size_t n, const Samples& samples,
                      const LineKeys& more = LineKeys::object()) {
  LineKeys keys = {{"ev", "data"}, {"n", n}, {"indices", samples}};
  keys.update(more);
  return json_line(keys);
}

// `extra(n)`: lines of a step after its data.
template <class Extra>
std::string text_of(std::uint32_t rank, std::uint32_t world, const Batches& batches, Extra extra) {
  std::string out = header_line(static_cast<int>(rank), world) + world_line(world);
  for (std::size_t n = 0; n < batches.size(); ++n) out += data_line(n, batches[n]) + extra(n);
  return out + end_line("clean");
}

std::string gradients(std::size_t n) {
  const int id = static_cast<int>(n);
  return issue_line(id, "world", "all_reduce", {{"in", {{4}}}, {"redop", "sum"}, {"step", n}}) +
         event_line("complete", id);
}

// `acts_as(rank)`: whose samples the rank reads. `extra`: as text_of's.
template <class ActsAs, class Extra>
Report judged_samples(const Job& job, ActsAs acts_as, Extra extra) {
  std::vector<std::string> texts;
  for (std::uint32_t r = 0; r < job.world; ++r) {
    texts.push_back(text_of(r, job.world, batches_of(job, acts_as(r)), extra));
  }
  return verify(run_from_text(texts));
}

Report judged_samples(const Job& job) {
  return judged_samples(
      job, [](std::uint32_t r) { return r; }, gradients);
}

// Property: whatever the sizes, a sampler that is in order is none.
TEST(Samples, ADistributedSamplerIsClean) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto any = [&](int from, int to) {
      return std::uniform_int_distribution<int>(from, to)(random);
    };
    Job job;
    job.world = static_cast<std::uint32_t>(any(2, 6));
    job.items = any(1, 90);
    job.batch = any(1, 8);
    job.epochs = any(1, 4);
    job.drop_last = any(0, 1) == 1;
    job.seed = seed;
    if (any(0, 2) == 0) job.steps = any(1, 10);
    EXPECT_EQ(summary(judged_samples(job)), "verdict clean")
        << "seed " << seed << ": world " << job.world << ", items " << job.items << ", batch "
        << job.batch << ", epochs " << job.epochs << ", drop_last " << job.drop_last;
  }
}

// Batches that are larger than a rank's part of an epoch, or end in the next one.
TEST(Samples, ABatchMayEndInTheNextEpoch) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    const auto any = [&](int from, int to) {
      return std::uniform_int_distribution<int>(from, to)(random);
    };
    Job job;
    job.world = static_cast<std::uint32_t>(any(2, 6));
    job.items = any(12, 90);
    job.batch = any(1, 24);
    job.epochs = any(1, 8);
    job.across = true;
    job.seed = seed;
    EXPECT_EQ(summary(judged_samples(job)), "verdict clean")
        << "seed " << seed << ": world " << job.world << ", items " << job.items << ", batch "
        << job.batch << ", epochs " << job.epochs;
  }
}

TEST(NoSharding, EveryRankReadsTheSame) {
  Job job;
  job.shard = false;
  const Report report = judged_samples(job);
  EXPECT_EQ(summary(report), "no-sharding error observed step=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("75 % of the work is repeated"));
  EXPECT_THAT(report.findings[0].ranks.size(), 4U);
}

// What the ranks read does not stop them: what does is said first, in whichever step it is.
TEST(NoSharding, ComesAfterWhatMakesTheCallsDiffer) {
  Job job;
  job.world = 3;
  job.shard = false;
  std::vector<std::string> texts;
  for (std::uint32_t r = 0; r < job.world; ++r) {
    texts.push_back(text_of(r, job.world, batches_of(job, 0), [&](std::size_t n) {
      const int id = static_cast<int>(n);
      return issue_line(id, "world", "all_reduce",
                        {{"in", {{r == 1 && n == 5 ? 6 : 4}}}, {"redop", "sum"}, {"step", n}}) +
             event_line("complete", id);
    }));
  }
  EXPECT_EQ(summary(verify(run_from_text(texts))),
            "size-mismatch error observed culprits=1 group=world seq=5 step=5\n"
            "no-sharding error observed step=0\nverdict findings");
}

TEST(NoSharding, PartsOfOneModelReadOneBatch) {
  Job job;
  job.shard = false;
  job.world = 2;
  const auto message = [](const std::string& op, int peer) {
    return [=](std::size_t n) {
      const int id = static_cast<int>(n);
      return issue_line(id, "world", op, {{"peer", peer}, {"in", {{4}}}, {"out", {{4}}}}) +
             event_line("complete", id);
    };
  };
  EXPECT_EQ(summary(verify(run_from_text({text_of(0, 2, batches_of(job, 0), message("send", 1)),
                                          text_of(1, 2, batches_of(job, 1), message("recv", 0))}))),
            "verdict clean");
}

TEST(NoSharding, SeveralGroupsThatReduceNamelesslyTellNothing) {
  const auto rank = [](int r) {
    return fmt::format(R"({{"header":1,"rank":{},"world_size":2}}
{{"group":"tp","ranks":[0,1]}}
{{"group":"dp","ranks":[0,1]}}
{{"ev":"data","n":0,"indices":[1,2,3]}}
{{"ev":"issue","id":0,"g":"tp","op":"all_reduce","in":[[4]]}}
{{"ev":"complete","id":0}}
{{"ev":"issue","id":1,"g":"dp","op":"all_reduce","in":[[4]]}}
{{"ev":"complete","id":1}}
{{"end":"clean"}})",
                       r);
  };
  const Report report = verify(run_from_text({rank(0), rank(1)}));
  EXPECT_EQ(summary(report), "verdict clean");
  EXPECT_THAT(report.unknown, testing::Contains(HasSubstr("which ranks are replicas")));
}

// Files of their own, whose samples have the same indices; "": which data set it is is not
// recorded.
TEST(NoSharding, RanksThatReadDataSetsOfTheirOwn) {
  const auto rank = [](int r, std::size_t ranks, const std::string& data_set) {
    std::string out = header_line(r, ranks) + world_line(ranks);
    if (!data_set.empty()) {
      out += json_line({{"ev", "state"},
                        {"n", 0},
                        {"name", "data_set"},
                        {"kind", "optim"},
                        {"norm", std::stod(data_set)},
                        {"sharded", true}});
    }
    for (int n = 0; n < 4; ++n)
      out += data_line(static_cast<std::size_t>(n + 1), {2 * n, 2 * n + 1});
    return out + end_line("clean");
  };
  const auto judged = [&](const std::vector<std::string>& data_sets) {
    std::vector<std::string> traces;
    for (const std::string& data_set : data_sets)
      traces.push_back(rank(static_cast<int>(traces.size()), data_sets.size(), data_set));
    return verify(run_from_text(traces));
  };
  const Report own = judged({"7", "8"});
  EXPECT_EQ(summary(own), "verdict clean");
  EXPECT_THAT(own.unknown, testing::Contains(HasSubstr("they read different data sets")));
  EXPECT_THAT(summary(judged({"7", "7"})), HasSubstr("no-sharding"));
  EXPECT_THAT(summary(judged({"", ""})), HasSubstr("no-sharding"));

  // A rank that does not say what it reads.
  const Report one_says = judged({"7", ""});
  EXPECT_THAT(summary(one_says), HasSubstr("no-sharding"));
  EXPECT_THAT(one_says.unknown, testing::Not(testing::Contains(HasSubstr("data sets"))));
  const Report two_sets = judged({"7", "8", "7", ""});
  ASSERT_THAT(summary(two_sets), HasSubstr("no-sharding"));
  EXPECT_THAT(two_sets.findings[0].ranks, ElementsAre(trace::Rank(0), trace::Rank(2)));
}

// Layers split by hand: columns that differ, of one batch. Gradients that are reduced show
// replicas, which began with other parameters by mistake.
TEST(NoSharding, RanksThatBeganWithPartsOfAModelMayReadTheSame) {
  const auto rank = [](int r, const std::string& column, const std::string& gradient) {
    const auto state = [](int n, const std::string& name, const std::string& kind,
                          const std::string& hash) {
      return json_line({{"ev", "state"},
                        {"n", n},
                        {"name", name},
                        {"kind", kind},
                        {"hash", hash},
                        {"norm", 1.5},
                        {"sharded", true}});
    };
    std::string out = header_line(r, 2) + world_line(2) + state(0, "norm", "param", "1") +
                      state(0, "up", "param", column) + state(0, "down", "param", column);
    for (int n = 0; n < 3; ++n) {
      out += data_line(static_cast<std::size_t>(n + 1), {2 * n, 2 * n + 1});
      out += issue_line(n, "world", "all_reduce", {{"in", {{4}}}}) + event_line("complete", n);
      for (const std::string name : {"norm", "up", "down"}) {
        std::string line = state(n + 1, name, "grad", name == "norm" ? "1" : gradient);
        line.insert(line.rfind('}'), R"(,"when":"synced")");
        out += line;
      }
    }
    return out + end_line("clean");
  };
  const Report parts = verify(run_from_text({rank(0, "2", "4"), rank(1, "3", "5")}));
  EXPECT_EQ(summary(parts), "verdict clean");
  EXPECT_THAT(parts.unknown, testing::Contains(HasSubstr("as parts of one model have")));
  EXPECT_THAT(summary(verify(run_from_text({rank(0, "2", "4"), rank(1, "2", "4")}))),
              HasSubstr("no-sharding"));
  EXPECT_THAT(summary(verify(run_from_text({rank(0, "2", "4"), rank(1, "3", "4")}))),
              HasSubstr("no-sharding"));
}

// As lockstep_watch declares them for hybrid sharding: ranks 0 and 2, and 1 and 3.
TEST(NoSharding, DeclaredReplicasWhereSeveralGroupsReduce) {
  const auto rank = [](int r, int samples_of) {
    std::string out = header_line(r, 4) +
                      R"({"group":"shard","ranks":[0,1,2,3]})"
                      "\n" +
                      R"({"group":"replicate","ranks":[0,1,2,3]})"
                      "\n" +
                      json_line({{"ev", "state"},
                                 {"n", 1},
                                 {"name", r % 2 == 0 ? "data_replicas@0,2" : "data_replicas@1,3"},
                                 {"kind", "optim"},
                                 {"hash", "2"},
                                 {"sharded", true}});
    for (int n = 0; n < 3; ++n) {
      out +=
          data_line(static_cast<std::size_t>(n + 1), {8 * n + samples_of, 8 * n + samples_of + 4});
      for (const std::string group : {"shard", "replicate"}) {
        const int id = 2 * n + (group == "shard" ? 0 : 1);
        out += issue_line(id, group, "all_reduce", {{"in", {{4}}}}) + event_line("complete", id);
      }
    }
    return out + end_line("clean");
  };
  EXPECT_EQ(summary(verify(run_from_text({rank(0, 0), rank(1, 1), rank(2, 2), rank(3, 3)}))),
            "verdict clean");
  const Report report = verify(run_from_text({rank(0, 0), rank(1, 1), rank(2, 0), rank(3, 3)}));
  EXPECT_EQ(summary(report), "no-sharding error observed step=1\nverdict findings");
  EXPECT_THAT(report.findings[0].ranks, ElementsAre(trace::Rank(0), trace::Rank(2)));
}

TEST(BroadcastAsSync, OneRanksBatchForAll) {
  Job job;
  job.shard = false;
  const auto broadcast = [](std::size_t n) {
    const int id = static_cast<int>(2 * n);
    return issue_line(id, "world", "broadcast",
                      {{"in", {{64}}}, {"root", 0}, {"what", {"batch.tokens"}}}) +
           event_line("complete", id) +
           issue_line(id + 1, "world", "all_reduce", {{"in", {{4}}}, {"redop", "sum"}}) +
           event_line("complete", id + 1);
  };
  EXPECT_EQ(summary(judged_samples(
                job, [](std::uint32_t r) { return r; }, broadcast)),
            "broadcast-as-sync warning observed step=0\nverdict findings");
}

TEST(Overlap, SeedsThatDiffer) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Job job;
    job.seeds = {seed, seed + 100, seed + 200, seed + 300};
    const Report report = judged_samples(job);
    EXPECT_THAT(summary(report), HasSubstr("overlap error observed")) << "seed " << seed;
    EXPECT_THAT(report.findings[0].message, HasSubstr("of each other's shards"));
  }
}

TEST(Overlap, TwoRanksWithOneRankNumber) {
  Job job;
  const Report report = judged_samples(
      job, [](std::uint32_t r) { return r == 3 ? 2 : r; }, gradients);
  EXPECT_THAT(summary(report), HasSubstr("overlap error observed"));
  EXPECT_THAT(report.findings[0].ranks, ElementsAre(trace::Rank(2), trace::Rank(3)));
}

TEST(Overlap, TwoRanksThatAreOneInAFewSteps) {
  Job job;
  job.world = 5;
  job.steps = 2;
  const Report report = judged_samples(
      job, [](std::uint32_t r) { return r == 4 ? 1 : r; }, gradients);
  EXPECT_THAT(summary(report), HasSubstr("overlap error observed"));
  EXPECT_THAT(report.findings[0].ranks, ElementsAre(trace::Rank(1), trace::Rank(4)));
}

Report judged_batches(const std::vector<Batches>& ranks) {
  std::vector<std::string> texts;
  const auto world = static_cast<std::uint32_t>(ranks.size());
  for (std::uint32_t r = 0; r < world; ++r) texts.push_back(text_of(r, world, ranks[r], gradients));
  return verify(run_from_text(texts));
}

TEST(Overlap, ABatchThatOneRankReadsTwice) {
  Job job;
  job.world = 2;
  std::vector<Batches> ranks = {batches_of(job, 0), batches_of(job, 1)};
  ASSERT_GT(ranks[1].size(), 4);
  EXPECT_EQ(summary(judged_batches(ranks)), "verdict clean");
  ranks[1][3] = ranks[1][1];
  const Report report = judged_batches(ranks);
  EXPECT_EQ(summary(report), "overlap error observed culprits=1 step=3\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("of step 1 again in step 3"));
}

// Rank 1 has half of the data and begins its second epoch when rank 0 is not through with its
// first.
TEST(Overlap, AShorterEpochIsNoRepeatedBatch) {
  Job job;
  job.world = 2;
  job.epochs = 1;
  job.items = 104;
  job.shuffle = false;
  std::vector<Batches> ranks = {batches_of(job, 0), batches_of(job, 1)};
  const std::size_t half = ranks[1].size() / 2;
  for (std::size_t i = half; i < ranks[1].size(); ++i) ranks[1][i] = ranks[1][i - half];
  EXPECT_EQ(summary(judged_batches(ranks)), "verdict clean");
}

TEST(Overlap, WorkersThatEachReadTheWholeStream) {
  Job job;
  job.world = 2;
  job.epochs = 1;
  std::vector<Batches> ranks;
  for (std::uint32_t r = 0; r < 2; ++r) {
    Batches twice;
    for (const Samples& batch : batches_of(job, r)) twice.insert(twice.end(), 2, batch);
    ranks.push_back(std::move(twice));
  }
  EXPECT_THAT(summary(judged_batches(ranks)), HasSubstr("overlap warning observed"));
}

TEST(Overlap, SamplingWithReplacementTellsNothing) {
  std::mt19937_64 random(5);
  std::uniform_int_distribution<std::int64_t> any(0, 40);
  std::vector<std::string> texts;
  for (std::uint32_t r = 0; r < 3; ++r) {
    Batches batches(12, Samples(8));
    for (Samples& batch : batches)
      std::generate(batch.begin(), batch.end(), [&] { return any(random); });
    texts.push_back(text_of(r, 3, batches, gradients));
  }
  EXPECT_EQ(summary(verify(run_from_text(texts))), "verdict clean");
}

// With a large data set it may be that no rank draws a sample twice in the steps recorded, though
// two ranks draw the same one.
TEST(Overlap, SamplingWithReplacementIsNoError) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<std::int64_t> any(0, 5000);
    std::vector<std::string> texts;
    for (std::uint32_t r = 0; r < 4; ++r) {
      Batches batches(10, Samples(4));
      for (Samples& batch : batches)
        std::generate(batch.begin(), batch.end(), [&] { return any(random); });
      texts.push_back(text_of(r, 4, batches, gradients));
    }
    EXPECT_THAT(summary(verify(run_from_text(texts))), Not(HasSubstr("error"))) << "seed " << seed;
  }
}

TEST(NoReshuffle, TheSameOrderEveryEpoch) {
  Job job;
  job.set_epoch = false;
  const Report report = judged_samples(job);
  EXPECT_EQ(summary(report), "no-reshuffle warning observed step=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("26 samples an epoch and rank"));
}

TEST(NoReshuffle, ShortEpochsTellTogether) {
  Job job;
  job.set_epoch = false;
  job.items = 20;  // five a rank and epoch
  EXPECT_EQ(summary(judged_samples(job)), "no-reshuffle warning observed step=0\nverdict findings");
}

// As with next(iter(loader)) in each step.
TEST(NoReshuffle, OneBatchInEveryStep) {
  Job job;
  job.set_epoch = false;
  job.items = 16;
  job.epochs = 8;
  const Report report = judged_samples(job);
  EXPECT_EQ(summary(report), "no-reshuffle warning observed step=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("read the same 4 samples in every step"));
  EXPECT_THAT(report.findings[0].fix, HasSubstr("next(iter(loader))"));
}

TEST(NoReshuffle, TheDataSetsOwnOrderIsANote) {
  Job job;
  job.shuffle = false;
  job.items = 104;
  const Report report = judged_samples(job);
  EXPECT_EQ(report.verdict, Verdict::clean);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].rule, RuleId::no_reshuffle);
  EXPECT_EQ(report.findings[0].severity, Severity::note);
}

TEST(NoReshuffle, TwoEpochsOfAFewSamplesMayBeAlikeByChance) {
  Job job;
  job.set_epoch = false;
  job.items = 12;
  job.batch = 3;
  job.epochs = 2;
  EXPECT_EQ(summary(judged_samples(job)), "verdict clean");
}

TEST(IndexMisaligned, LoadersThatFellOutOfStep) {
  Job job;
  job.world = 2;
  for (const bool named : {true, false}) {
    std::vector<std::string> texts;
    for (std::uint32_t r = 0; r < 2; ++r) {
      const Batches batches = batches_of(job, r);
      std::string text = header_line(static_cast<int>(r), 2);
      const auto modality = [&](const char* name) {
        return named ? LineKeys{{"modality", name}} : LineKeys::object();
      };
      for (std::size_t n = 0; n < 6; ++n) {
        Samples words = batches[n];
        if (r == 1 && n >= 4) std::rotate(words.begin(), words.begin() + 1, words.end());
        text += data_line(n, batches[n], modality("image")) + data_line(n, words, modality("text"));
      }
      texts.push_back(text + end_line("clean"));
    }
    const Report report = verify(run_from_text(texts));
    EXPECT_EQ(summary(report),
              "index-misaligned error observed culprits=1 step=4\nverdict findings");
    EXPECT_THAT(report.findings[0].message,
                AllOf(HasSubstr("4 of 4 in step 4"), HasSubstr("2 of 12 batches")));
  }
}

TEST(IndexMisaligned, MicroBatchesOfAStepAreNone) {
  Job job;
  job.world = 2;
  std::vector<std::string> texts;
  for (std::uint32_t r = 0; r < 2; ++r) {
    const Batches batches = batches_of(job, r);
    std::string text = header_line(static_cast<int>(r), 2);
    for (std::size_t n = 0; n + 1 < 6; n += 2) {
      text += data_line(n, batches[n]) + data_line(n, batches[n + 1]);
    }
    texts.push_back(text + end_line("clean"));
  }
  EXPECT_EQ(summary(verify(run_from_text(texts))), "verdict clean");
}

}  // namespace
}  // namespace lockstep::verify
