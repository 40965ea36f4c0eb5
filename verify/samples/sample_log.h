// Which samples the ranks consumed, step by step (`data` lines).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

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

}  // namespace lockstep::verify
