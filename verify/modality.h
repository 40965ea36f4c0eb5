// Modalities: what each rank's batch held in each step, and the parameters whose calls a rank left
// out in a step.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

// A rank's batch: that of a step, or one of the step's micro-batches. A step that has several
// modality lines has a micro-batch for each: the calls after a line, up to the next one. In such a
// run every step counts as consisting of micro-batches.
struct BatchNumber {
  std::int32_t step = trace::kNone;
  std::int32_t micro = trace::kNone;  // from 0; kNone: the step as a whole
  auto operator<=>(const BatchNumber&) const = default;
};

class Modalities {
 public:
  // Indexes the modality events of all ranks, and the spans of remedies; O(events). Keeps a
  // reference to `run`.
  explicit Modalities(const trace::Run& run);

  // The batch in which the rank issued that call (an index into its calls).
  BatchNumber batch_of(std::uint32_t rank, std::uint32_t call) const;

  // The rank's batches before this one, ascending; micro-batches where this one is one.
  std::vector<BatchNumber> before(std::uint32_t rank, BatchNumber batch) const;

  // The modalities of the rank's batch, sorted by name ({"image", "text"}); of a step, those of all
  // its micro-batches. Nothing where they were not recorded.
  std::optional<std::vector<std::string>> held(std::uint32_t rank, BatchNumber batch) const;

  // Whether a remedy computed something in place of a missing modality (a span named "remedy.…") in
  // that batch.
  bool stood_in(std::uint32_t rank, BatchNumber batch) const;

  // The modalities that `other`'s batch held and `rank`'s did not; empty where either is unknown.
  std::vector<std::string> lacking(std::uint32_t rank, std::uint32_t other,
                                   BatchNumber batch) const;

 private:
  struct Marked {
    trace::NameListId has;
    bool stood_in = false;
  };
  struct OfRank {
    std::unordered_map<std::int64_t, std::vector<Marked>> by_step;  // in the order of the trace
    // By call: its micro-batch. Empty in a run in which no step has several lines.
    std::vector<std::int32_t> micro;
  };
  static void number_calls(const trace::RankTrace& trace, OfRank& rank);
  // The lines of the batch: one for a micro-batch. Empty where there are none.
  std::vector<Marked> marked(std::uint32_t rank, BatchNumber batch) const;

  const trace::Run& run_;
  std::vector<OfRank> ranks_;
};

// The parameters carried by calls that `other` issues in the batch and `rank` does not, in
// `other`'s order. If `other` hangs in it, its latest earlier batch with the same modalities shows
// what it would have issued. If `rank` is still in the batch, only calls before its current one
// count: the later ones may follow. O(calls).
std::vector<std::string> left_out(const trace::Run& run, const Modalities& modalities,
                                  std::uint32_t rank, std::uint32_t other, BatchNumber batch);

}  // namespace lockstep::verify
