// The data of a multimodal training step: what its samples hold, and which rank and micro-batch
// each of them goes to.
//
// A sample is a text with items of other modalities (images, audio clips, videos), each of a size
// in the input tokens of its encoder (patches, frames). Samples are drawn from distributions, or
// from the lines of a manifest. Draws depend on the seed and the step alone, so the same plan gives
// the same figures on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::sim {

// The modalities besides text, in the order of the arrays below.
inline constexpr std::array<std::string_view, 3> kItemKinds = {"image", "video", "audio"};
inline constexpr std::size_t kItemKindCount = kItemKinds.size();

// Random numbers that are the same everywhere (base/splitmix.h).
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint64_t step);
  std::uint64_t bits();
  double unit();    // above 0, at most 1
  double normal();  // Box and Muller

 private:
  std::uint64_t state_;
};

// Whole numbers of at least 0.
struct Distribution {
  enum class Kind : std::uint8_t { constant, uniform, poisson, lognormal, choice };
  Kind kind = Kind::constant;
  // constant: value. uniform: from, to. poisson: mean. lognormal: median, sigma of the logarithm.
  double first = 0, second = 0;
  struct Choice {
    std::int64_t value = 0;
    double weight = 0;
    bool operator==(const Choice&) const = default;
  };
  std::vector<Choice> choices;
  std::int64_t most = kMaxDrawn;  // larger draws become this

  static constexpr std::int64_t kMaxDrawn = std::int64_t{1} << 20U;
  std::int64_t draw(RandomStream& random) const;
  bool operator==(const Distribution&) const = default;
};

struct ItemData {
  Distribution per_sample;  // how many items a sample has
  Distribution size;        // input tokens of an item: patches of an image
  bool operator==(const ItemData&) const = default;
};

using ItemSizes = std::array<std::vector<std::int32_t>, kItemKindCount>;

struct DataSample {
  std::int64_t text = 0;  // tokens
  ItemSizes items;
  bool operator==(const DataSample&) const = default;
};

// How samples become the sequences that the LLM computes.
enum class SequenceFilling : std::uint8_t {
  packed,  // as many whole samples as fit, in the order they are drawn; the rest is padding
  padded,  // one sample each, filled up
  ragged,  // one sample each, as long as it is: no padding is computed
};

// Which rank and micro-batch a sequence goes to.
enum class Arrangement : std::uint8_t {
  drawn,      // sequence i goes to rank i modulo ranks, in this order
  reordered,  // each rank keeps its sequences, and spreads the large ones over its micro-batches
  balanced,   // over all ranks and micro-batches: the largest first, to the least loaded; packed
              // sequences are packed so, too
};

struct TrainingData {
  Distribution text;
  std::array<ItemData, kItemKindCount> items;
  std::vector<DataSample> manifest;  // not empty: samples are these, drawn with replacement
  std::string manifest_file;         // as the plan names it
  SequenceFilling filling = SequenceFilling::packed;
  Arrangement arrangement = Arrangement::drawn;
  std::uint64_t seed = 1;
};

// A sample in a sequence: its text, and how many of the sequence's items of each kind are its own.
struct SamplePart {
  std::int64_t text = 0;
  std::array<std::uint32_t, kItemKindCount> items = {};
};

// A sequence of the LLM with the items of its samples, in the order of the samples.
struct TrainingSequence {
  std::int64_t tokens = 0;  // text and items, at most the sequence's length
  std::int64_t cut = 0;     // tokens that did not fit
  std::int64_t samples = 0;
  ItemSizes items;
  std::vector<SamplePart> parts = {};  // its samples, where they may be packed again (balanced)
};

// A JSONL manifest: {"text": 312, "image": [1024, 256], "audio": [750]} a line; keys may be absent.
// Errors, with the line: what is not such an object, sizes out of range, no line at all.
Result<std::vector<DataSample>> parse_manifest(std::string_view text, const std::string& file);

struct SequenceShape {
  std::int64_t length = 0;                              // tokens of a full sequence
  std::array<std::int64_t, kItemKindCount> merge = {};  // input tokens of a token of the LLM; 0:
                                                        // the LLM does not see this kind
  bool operator==(const SequenceShape&) const = default;
};

// The items and samples of a step, at most: what is drawn is kept in memory.
inline constexpr std::int64_t kMaxItems = std::int64_t{1} << 22U;

// The `count` sequences of `step`. Errors: more items or samples than kMaxItems, or none that has
// a token.
Result<std::vector<TrainingSequence>> draw_sequences(const TrainingData& data,
                                                     const SequenceShape& shape, std::int64_t count,
                                                     std::uint64_t step);

// A sample whose items are in a sequence.
struct SampleView {
  std::int64_t text = 0;
  std::array<std::span<const std::int32_t>, kItemKindCount> items;
};
// The samples of a sequence with parts; valid as long as the sequence is.
std::vector<SampleView> samples_of(const TrainingSequence& sequence);

// The work of a sample, for balancing, in any unit.
using SampleLoad = std::function<double(const SampleView&)>;

// Packs the samples of packed sequences again, into as many: the longest first, each into the
// sequence with the least load that has room. The sequences as they were, if one finds no room.
// O(n log n) of the samples.
std::vector<TrainingSequence> repack(const std::vector<TrainingSequence>& sequences,
                                     const SequenceShape& shape, const SampleLoad& load);

// Indices of sequences: by rank and micro-batch. `loads`: of each sequence, in any unit; the
// number of sequences is a multiple of ranks x micro_batches, and every micro-batch gets equally
// many of them. O(n log n).
std::vector<std::vector<std::vector<std::size_t>>> arrange(Arrangement arrangement,
                                                           const std::vector<double>& loads,
                                                           std::size_t ranks,
                                                           std::size_t micro_batches);

// The bin that each of `loads` goes to: in turn, or the largest first to the least loaded (Graham's
// LPT, at most 4/3 of the optimum).
std::vector<std::size_t> spread_items(const std::vector<double>& loads, std::size_t bins,
                                      bool largest_first);

}  // namespace lockstep::sim
