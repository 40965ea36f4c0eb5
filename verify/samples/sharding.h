// Which samples each rank consumed, and what is wrong with them: shards that overlap, batches that
// come twice, epochs in the same order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

// Which samples the ranks consumed, step by step (`data` lines).
struct SampleLog {
  using Samples = std::vector<std::int64_t>;
  // By rank index, then step: the samples of all micro-batches. Where a source records each
  // modality by itself, those of the first one.
  std::vector<std::map<std::int64_t, Samples>> by_step;

  bool has(std::uint32_t rank) const { return !by_step[rank].empty(); }
  // All that the rank consumed, in order.
  Samples all(std::uint32_t rank) const;
};

// Two lists of one rank and step that should be the same samples: those of its images and its
// texts, which separate loaders read.
struct SamplePair {
  std::uint32_t rank = 0;
  std::int64_t n = 0;
  const SampleLog::Samples* first = nullptr;
  const SampleLog::Samples* second = nullptr;
};

// O(samples).
SampleLog read_samples(const trace::Run& run);

// The pairs of the run: data lines that name different modalities. Also lines without a name whose
// samples are mostly the same (micro-batches of a step, in contrast, have none in common).
// O(samples log samples).
std::vector<SamplePair> find_sample_pairs(const trace::Run& run);

// The share of samples that two lists of equal length have in common; 0 for others.
double common_share(const SampleLog::Samples& a, const SampleLog::Samples& b);

struct SharedSamples {
  bool certain = true;               // false: sampling with replacement could look like this
  bool identical = false;            // all ranks of the set consume the same samples in every step
  std::vector<std::uint32_t> ranks;  // rank indices that consume another one's samples
  std::int64_t n = 0;                // the first step that shows it
  std::uint64_t consumed = 0;        // samples over the ranks, up to where it was counted
  std::uint64_t distinct = 0;        // … different ones among them
};

// The samples that several of the replicas `ranks` (rank indices) consumed. Nothing if their shards
// are disjoint, apart from legitimate repeats: fewer samples than ranks, which pad a last batch,
// and samples of a new epoch.
//
// The size of the data set is not recorded. An epoch may be over once nearly all samples of the
// trace were seen; repeats before that count as shared, and so do several within one step. A rank
// that draws a sample twice in a step samples with replacement: then there is no result.
// O(samples).
std::optional<SharedSamples> find_shared_samples(const SampleLog& log,
                                                 const std::vector<std::uint32_t>& ranks);

// A batch that one rank reads a second time while the others go on.
struct RepeatedBatch {
  std::uint32_t rank = 0;
  std::int64_t n = 0;      // the step in which it comes again
  std::int64_t first = 0;  // … and before that
  std::uint64_t samples = 0;
};

// Nothing where the repeat has an innocent explanation:
//   - another rank also meets its own samples again in that step: a new epoch began;
//   - the rank's next batch is an old one, too: its shard is shorter, and started again;
//   - a rank draws some other sample twice: sampling with replacement;
//   - chance would give the same batch in one of a thousand runs.
// O(samples log samples).
std::optional<RepeatedBatch> find_repeated_batch(const SampleLog& log,
                                                 const std::vector<std::uint32_t>& ranks);

// Ranks that read batches twice in a row: at least half of their batches, and at least two
// different ones, equal the one before. That happens where each worker of a loader reads the whole
// stream. O(samples log samples).
std::vector<std::uint32_t> find_doubled(const SampleLog& log,
                                        const std::vector<std::uint32_t>& ranks);

// A rank's samples come in the same order in every epoch.
struct RepeatedOrder {
  std::uint64_t period = 0;    // samples of an epoch
  std::uint64_t compared = 0;  // samples of later epochs, all in the first one's order
  bool ascending = false;      // in the order of the data set: not shuffled at all
  double log_chance = 0;       // natural logarithm of the chance that shuffled epochs come out so
};

struct EpochOrder {
  bool again = false;  // the rank meets its first sample again: there is a second epoch
  std::optional<RepeatedOrder> repeated;  // all later epochs are as the first
};

// O(samples).
EpochOrder find_epoch_order(const SampleLog::Samples& samples);

}  // namespace lockstep::verify
