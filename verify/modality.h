// Modalities: what each rank's batch held in each step, and the parameters whose calls a rank left
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

  // The modalities of the rank's batch in that step, sorted by name ({"image", "text"}); nothing
  // where they were not recorded.
  std::optional<std::vector<std::string>> held(std::uint32_t rank, std::int32_t step) const;

  // Whether a remedy computed something in place of a missing modality (a span named "remedy.…") in
  // that step.
  bool stood_in(std::uint32_t rank, std::int32_t step) const;

  // The modalities that `other`'s batch held and `rank`'s did not, in that step; empty where either
  // is unknown.
  std::vector<std::string> lacking(std::uint32_t rank, std::uint32_t other,
                                   std::int32_t step) const;

 private:
  const trace::Run& run_;
  std::vector<std::unordered_map<std::int64_t, trace::NameListId>> by_step_;  // by rank index
  std::vector<std::unordered_set<std::int64_t>> stand_ins_;  // steps, by rank index
};

// The parameters carried by calls that `other` issues in `step` and `rank` does not, in `other`'s
// order. If `other` hangs in the step, its latest earlier step with the same modalities shows what
// it would have issued. If `rank` is still in the step, only calls before its current one count:
// the later ones may follow. O(calls).
std::vector<std::string> left_out(const trace::Run& run, const Modalities& modalities,
                                  std::uint32_t rank, std::uint32_t other, std::int32_t step);

}  // namespace lockstep::verify
