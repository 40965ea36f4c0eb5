// What is drawn, packed and dealt out.
#include "sim/multimodal/training_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr std::size_t kImage = 0;

TrainingData texts_of(std::int64_t tokens) {
  TrainingData data;
  data.text = {Distribution::Kind::constant, static_cast<double>(tokens), 0, {}};
  return data;
}

TEST(TrainingDraws, AreTheSameForTheSameSeedAndStep) {
  TrainingData data = texts_of(0);
  data.text = {Distribution::Kind::lognormal, 600, 1, {}};
  data.filling = SequenceFilling::ragged;
  const SequenceShape shape{8192, {4, 0, 0}};
  const auto lengths = [&](std::uint64_t seed, std::uint64_t step) {
    data.seed = seed;
    std::vector<std::int64_t> out;
    const auto drawn = draw_sequences(data, shape, 20, step);
    for (const TrainingSequence& sequence : *drawn) out.push_back(sequence.tokens);
    return out;
  };
  EXPECT_EQ(lengths(1, 0), lengths(1, 0));
  EXPECT_NE(lengths(1, 0), lengths(1, 1));
  EXPECT_NE(lengths(1, 0), lengths(2, 0));
}

// Over 20,000 draws each mean is within five standard errors of what the distribution says.
TEST(TrainingDraws, FollowTheirDistributions) {
  struct Case {
    Distribution of;
    double mean, sigma;
  };
  const std::vector<Case> cases = {
      {{Distribution::Kind::constant, 7, 0, {}}, 7, 0},
      {{Distribution::Kind::uniform, 2, 8, {}}, 5, 2},
      {{Distribution::Kind::poisson, 3, 0, {}}, 3, std::sqrt(3.0)},
      {{Distribution::Kind::poisson, 100, 0, {}}, 100, 10},
      {{Distribution::Kind::lognormal, 1000, 0.5, {}},
       1000 * std::exp(0.125),
       1000 * std::exp(0.125) * std::sqrt(std::expm1(0.25))},
      {{Distribution::Kind::choice, 0, 0, {{0, 3}, {4, 1}}}, 1, std::sqrt(3.0)}};
  for (const Case& one : cases) {
    RandomStream random(5, 0);
    constexpr int kDraws = 20'000;
    double sum = 0;
    for (int i = 0; i < kDraws; ++i) sum += static_cast<double>(one.of.draw(random));
    EXPECT_NEAR(sum / kDraws, one.mean, 5 * one.sigma / std::sqrt(double{kDraws}) + 1e-9);
  }
}

TEST(TrainingDraws, NoneIsLargerThanTheMost) {
  Distribution of{Distribution::Kind::lognormal, 1000, 3, {}};
  of.most = 2000;
  RandomStream random(1, 0);
  for (int i = 0; i < 1000; ++i) EXPECT_LE(of.draw(random), 2000);
}

TEST(Filling, PacksWholeSamplesAndCutsWhatIsTooLong) {
  const SequenceShape shape{1000, {4, 0, 0}};
  TrainingData data = texts_of(300);
  const auto packed = draw_sequences(data, shape, 2, 0);
  ASSERT_TRUE(packed) << packed.error().str();
  EXPECT_EQ((*packed)[0].samples, 3);
  EXPECT_EQ((*packed)[0].tokens, 900);
  data.filling = SequenceFilling::padded;
  EXPECT_EQ((*draw_sequences(data, shape, 2, 0))[0].samples, 1);
  data = texts_of(2500);
  const auto cut = draw_sequences(data, shape, 1, 0);
  EXPECT_EQ((*cut)[0].tokens, 1000);
  EXPECT_EQ((*cut)[0].cut, 1500);
}

// The same samples in as many sequences, none over its length, the images spread evenly.
TEST(Filling, RepackingSpreadsTheLoad) {
  const SequenceShape shape{4096, {4, 0, 0}};
  TrainingData data;
  data.arrangement = Arrangement::balanced;
  data.text = {Distribution::Kind::lognormal, 300, 0.8, {}};
  data.items[kImage] = {{Distribution::Kind::poisson, 1.5, 0, {}},
                        {Distribution::Kind::lognormal, 600, 0.8, {}}};
  const auto drawn = draw_sequences(data, shape, 32, 0);
  ASSERT_TRUE(drawn);
  const auto patches = [](std::span<const std::int32_t> sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), 0.0);
  };
  const auto packed = repack(
      *drawn, shape, [&](const SampleView& sample) { return patches(sample.items[kImage]); });
  ASSERT_EQ(packed.size(), drawn->size());
  double most_drawn = 0, most_packed = 0, sum_drawn = 0, sum_packed = 0;
  std::int64_t samples = 0;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    EXPECT_LE(packed[i].tokens, 4096);
    samples += packed[i].samples - (*drawn)[i].samples;
    most_drawn = std::max(most_drawn, patches((*drawn)[i].items[kImage]));
    most_packed = std::max(most_packed, patches(packed[i].items[kImage]));
    sum_drawn += patches((*drawn)[i].items[kImage]);
    sum_packed += patches(packed[i].items[kImage]);
  }
  EXPECT_EQ(samples, 0);
  EXPECT_EQ(sum_drawn, sum_packed);
  EXPECT_LT(most_packed, 0.75 * most_drawn);
}

// The rule as it is written: the longest sample first, to the least loaded sequence with room, of
// equally loaded ones the first.
std::vector<double> loads_by_the_rule(const std::vector<TrainingSequence>& sequences,
                                      const SampleLoad& load, std::int64_t length) {
  std::vector<SampleView> samples;
  for (const TrainingSequence& sequence : sequences)
    for (const SampleView& sample : samples_of(sequence)) samples.push_back(sample);
  const auto tokens = [&](const SampleView& s) { return std::min(s.text, length); };
  std::stable_sort(samples.begin(), samples.end(),
                   [&](const SampleView& a, const SampleView& b) { return tokens(a) > tokens(b); });
  std::vector<double> loads(sequences.size(), 0);
  std::vector<std::int64_t> filled(sequences.size(), 0);
  for (const SampleView& sample : samples) {
    std::size_t best = loads.size();
    for (std::size_t i = 0; i < loads.size(); ++i)
      if (filled[i] + tokens(sample) <= length && (best == loads.size() || loads[i] < loads[best]))
        best = i;
    if (best == loads.size()) return {};
    loads[best] += load(sample);
    filled[best] += tokens(sample);
  }
  return loads;
}

TEST(Filling, RepackingFollowsItsRule) {
  const SequenceShape shape{1000, {}};
  const SampleLoad load = [](const SampleView& s) { return static_cast<double>(s.text % 7); };
  int packed_anew = 0;
  for (std::uint64_t step = 0; step < 200; ++step) {
    TrainingData data;
    data.arrangement = Arrangement::balanced;
    data.text = {Distribution::Kind::lognormal, 120, 1.2, {}};
    data.seed = step + 1;
    const auto drawn = *draw_sequences(data, shape, 12, 0);
    const std::vector<double> expected = loads_by_the_rule(drawn, load, shape.length);
    const std::vector<TrainingSequence> packed = repack(drawn, shape, load);
    if (expected.empty()) continue;  // some sample found no room: nothing changes
    ++packed_anew;
    for (std::size_t i = 0; i < packed.size(); ++i) {
      double sum = 0;
      for (const SampleView& sample : samples_of(packed[i])) sum += load(sample);
      EXPECT_EQ(sum, expected[i]) << step;
    }
  }
  EXPECT_GT(packed_anew, 20);
}

TEST(Filling, CountsItemsInTokensOfTheLlm) {
  TrainingData data;
  data.manifest = {{10, {{{4, 5}, {}, {7}}}}};
  data.filling = SequenceFilling::ragged;
  // 10 of text, 1 + 2 of images by 4 patches; audio is not seen.
  EXPECT_EQ((*draw_sequences(data, {1000, {4, 0, 0}}, 1, 0))[0].tokens, 13);
}

TEST(Filling, RefusesDataWithoutTokens) {
  const auto none = draw_sequences(texts_of(0), {1000, {}}, 1, 0);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("without a token"));
}

TEST(Manifests, NameTheLineThatIsWrong) {
  const auto read = parse_manifest("{\"text\": 3, \"image\": [16, 0]}\n\n{\"audio\": [5]}\n", "m");
  ASSERT_TRUE(read) << read.error().str();
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].items[kImage], std::vector<std::int32_t>{16});
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"{\"text\": 3}\n[1]\n", "not a JSON object"},
           {"{\"text\": 0}\n{\"text\": -1}", "not a whole number of tokens"},
           {"{\"text\": 0}\n{\"image\": 5}", "not a list"},
           {"{\"id\": 7, \"text\": 1}\n{\"images\": [5]}",
            "unknown key \"images\"; did you mean \"image\"?"},
           // Its text would be missed, and it would count as a sample of nothing.
           {"{\"text\": 0}\n{\"tokens\": 312}", "this sample has none of text, image"},
           {"{\"text\": 0}\n{}", "this sample has none of text, image"},
           {"{\"text\": 0}\n{\"text\": 1, \"id\": {\"text\": 2}, \"text\": 3}",
            "\"text\" is given twice"},
           {"{\"text\": 0}\n{\"image\": [1e99]}", "not a list"}}) {
    const auto bad = parse_manifest(text, "m");
    ASSERT_FALSE(bad) << text;
    EXPECT_EQ(bad.error().location.line, 2);
    EXPECT_THAT(bad.error().message, HasSubstr(why));
  }
  EXPECT_THAT(parse_manifest("\n", "m").error().message, HasSubstr("no samples"));
}

// Each sequence once, equally many to each micro-batch, whatever the arrangement.
TEST(Arranging, DealsEverythingOutOnce) {
  std::vector<double> loads;
  for (int i = 0; i < 24; ++i) loads.push_back((i * 7) % 11);
  for (const Arrangement how :
       {Arrangement::drawn, Arrangement::reordered, Arrangement::balanced}) {
    const auto dealt = arrange(how, loads, 3, 4);
    std::set<std::size_t> seen;
    for (const auto& rank : dealt) {
      ASSERT_EQ(rank.size(), 4U);
      for (const auto& batch : rank) {
        EXPECT_EQ(batch.size(), 2U);
        seen.insert(batch.begin(), batch.end());
      }
    }
    EXPECT_EQ(seen.size(), 24U);
  }
  // Reordered stays on its rank.
  const auto drawn = arrange(Arrangement::drawn, loads, 3, 4);
  const auto reordered = arrange(Arrangement::reordered, loads, 3, 4);
  const auto on = [](const auto& rank) {
    std::set<std::size_t> out;
    for (const auto& batch : rank) out.insert(batch.begin(), batch.end());
    return out;
  };
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(on(drawn[rank]), on(reordered[rank]));
}

// Graham's bound: the largest bin is at most 4/3 of the optimum, here 12 of the mean.
TEST(Arranging, LargestFirstIsNearlyEven) {
  const std::vector<double> loads = {9, 8, 7, 6, 3, 2, 1};  // 36: 12 in each of three
  const std::vector<std::size_t> bins = spread_items(loads, 3, true);
  std::vector<double> sums(3, 0);
  for (std::size_t i = 0; i < loads.size(); ++i) sums[bins[i]] += loads[i];
  EXPECT_THAT(sums, Each(AllOf(Ge(8), Le(16))));
  EXPECT_THAT(spread_items(loads, 3, false), ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

// The rule as it is written: each to the bin that has the least, of several the first.
TEST(Arranging, LargestFirstGoesToTheLeastLoaded) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, 0);
    std::vector<double> loads(random.bits() % 40);
    for (double& load : loads) load = static_cast<double>(random.bits() % 8);
    const std::size_t bins = 1 + random.bits() % 9;
    std::vector<std::size_t> order(loads.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return loads[a] > loads[b]; });
    std::vector<double> sums(bins, 0);
    std::vector<std::size_t> expected(loads.size());
    for (const std::size_t i : order) {
      const auto least = std::min_element(sums.begin(), sums.end());
      expected[i] = static_cast<std::size_t>(least - sums.begin());
      *least += loads[i];
    }
    EXPECT_EQ(spread_items(loads, bins, true), expected) << seed;
  }
}

}  // namespace
}  // namespace lockstep::sim
