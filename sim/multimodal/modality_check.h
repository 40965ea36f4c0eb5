// Whether the ranks of a plan can issue different collectives because of their data: the defect
// that the verifier calls modality-divergence.
//
// Where an encoder's parameters are gathered as it runs (ZeRO-3), or its gradients are summed as
// each comes, a rank without items makes no such call, and the others wait in theirs. Where the
// LLM's ranks meet in every micro-batch, too, or two encoders gather, it is enough that a rank has
// its items in another micro-batch than the others. Whether that happens in a step follows from the
// drawn counts alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/multimodal/dealt_step.h"

namespace lockstep::sim {

struct ModalityRemedy {
  std::string what;
  double probability = 0;  // that a step still hangs
};

struct ModalityDivergence {
  std::size_t encoder = 0;  // the first that can
  double probability = 0;   // of a step, by the drawn ones
  std::int64_t steps = 0;   // that were drawn
  std::uint64_t first = 0;  // the first step that hangs
  std::vector<ModalityRemedy> remedies;
  // The lower end of the 95 % interval of the probability where no step of `steps` escaped, and in
  // general (Wilson's interval).
  double low = 0, high = 0;
};

// Whether ranks of the encoder that make equally many calls can hang: what they gather comes
// between calls of the LLM, or of another encoder, in which they wait for each other.
bool order_matters(const MultimodalPlan& plan, std::size_t encoder);

// The items of steps that were dealt once: drawing and dealing them takes longer than all else.
class DealtBefore {
 public:
  using Steps = std::vector<std::optional<DealtItems>>;
  // The steps of a plan that deals as this one does; null: none is kept. They stay where they are.
  const Steps* find(const MultimodalPlan& plan) const;
  Steps& add(const MultimodalPlan& plan);  // or those that there are

 private:
  struct OfPlan {
    MultimodalPlan by;
    Steps steps;
  };
  std::deque<OfPlan> plans_;
};

// Draws `steps` steps; with `remedies` as many again for each, and what was dealt is added to
// `dealt`. Empty: no step diverges. Errors: draw_sequences()'s.
Result<std::optional<ModalityDivergence>> check_modalities(const MultimodalPlan& plan,
                                                           std::int64_t steps, bool remedies = true,
                                                           DealtBefore* dealt = nullptr);
// The same of several plans, without remedies. What they draw or deal alike is drawn and dealt
// once, and what was dealt before is not again.
std::vector<Result<std::optional<ModalityDivergence>>> check_each(
    const std::vector<MultimodalPlan>& plans, std::int64_t steps, const DealtBefore& before = {});

// The same of one plan after another, as a sweep has them: what plans deal alike is dealt once, as
// long as it is among what was used last, of all together some 100 MB.
class ModalityChecks {
 public:
  Result<std::optional<ModalityDivergence>> check(const MultimodalPlan& plan, std::int64_t steps);

 private:
  struct Dealt {
    MultimodalPlan by;
    std::vector<DealtItems> steps;
    std::size_t size() const;  // in numbers that are kept
  };
  Result<const Dealt*> dealt(const MultimodalPlan& plan, std::int64_t steps);
  std::vector<Dealt> kept_;  // the one that was used last is at the end
};

}  // namespace lockstep::sim
