// Which samples the ranks consumed, and which of them several replicas did.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

// Which samples the ranks consumed, step by step (`data` lines).
struct SampleLog {
  using Samples = std::vector<std::int64_t>;
  // By rank index: the samples of each step, micro-batches joined, of what was recorded first for a
  // modality where the source keeps them apart.
  std::vector<std::map<std::int64_t, Samples>> by_step;

  bool has(std::uint32_t rank) const { return !by_step[rank].empty(); }
  // All that the rank consumed, in order.
  Samples all(std::uint32_t rank) const;
};

// Two lists of one rank and step that ought to be the same samples: those of its images and its
// texts, which separate loaders read.
struct SamplePair {
  std::uint32_t rank = 0;
  std::int64_t n = 0;
  const SampleLog::Samples* first = nullptr;
  const SampleLog::Samples* second = nullptr;
};

// O(samples).
SampleLog read_samples(const trace::Run& run);

// The pairs of the run: data lines that name different modalities; and pairs of lines without a
// name whose samples are mostly the same ones (micro-batches of a step have none in common).
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

// What the replicas `ranks` (rank indices) share; nothing where their shards are disjoint but for
// what is in order: fewer samples than ranks that pad a last batch, and those of a new epoch. The
// size of the data set is not recorded, so an epoch may be over when nearly all samples of the
// trace have been seen; repeats before that are shared ones, and so are several within one step.
// Where a rank draws a sample twice in a step it samples with replacement, and nothing is said.
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

// Nothing where another of the ranks meets samples of its own again in that step (a new epoch),
// where the rank's next batch is an old one, too (its data is shorter, and started again), where a
// rank draws a sample twice otherwise (sampling with replacement), or where chance could give the
// same batch once in a thousand runs. O(samples log samples).
std::optional<RepeatedBatch> find_repeated_batch(const SampleLog& log,
                                                 const std::vector<std::uint32_t>& ranks);

// Ranks for which at least half of the batches, and at least two different ones, repeat the batch
// that they read just before: the workers of a loader each read the whole stream. O(samples log
// samples).
std::vector<std::uint32_t> find_doubled(const SampleLog& log,
                                        const std::vector<std::uint32_t>& ranks);

// Where a rank's samples come in one and the same order epoch after epoch.
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
