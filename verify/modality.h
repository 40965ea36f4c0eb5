// Modalities: what the ranks' batches held, step by step, and which parameters' calls a rank left
// out in a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

class Modalities {
 public:
  // Indexes the modality events of all ranks, and the spans of remedies; O(events). Keeps a
  // reference to `run`.
  explicit Modalities(const trace::Run& run);

  // What the rank's batch of that step held; nothing where it was not recorded. Sorted names.
  std::optional<std::vector<std::string>> held(std::uint32_t rank, std::int32_t step) const;

  // Whether the rank computed a stand-in (a span named "remedy.…") in that step.
  bool stood_in(std::uint32_t rank, std::int32_t step) const;

  // What `other`'s batch held and `rank`'s lacked in that step; empty where unknown or nothing.
  std::vector<std::string> lacking(std::uint32_t rank, std::uint32_t other,
                                   std::int32_t step) const;

 private:
  const trace::Run& run_;
  std::vector<std::unordered_map<std::int64_t, trace::NameListId>> by_step_;  // by rank index
  std::vector<std::unordered_set<std::int64_t>> stand_ins_;  // steps, by rank index
};

// The names carried by calls that `other` issues in `step` and `rank` does not, in `other`'s order.
// Where `other` did not finish the step (it hangs in it), its latest earlier step with the same
// modalities tells what it would have issued; where `rank` is still within the step, only what
// comes before its own current call counts. O(calls of the steps concerned).
std::vector<std::string> left_out(const trace::Run& run, const Modalities& modalities,
                                  std::uint32_t rank, std::uint32_t other, std::int32_t step);

}  // namespace lockstep::verify
