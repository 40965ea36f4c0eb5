// Balancer: measures what the ranks' steps cost, shares the measurements, and weighs the losses of
// batches that differ in size.
//
// Each step begins with one all-gather (tag "balance.counts"). Every rank sends its images, texts
// and computing time of the step before, and the counts over which this step's losses average. All
// ranks then fit the same costs to the same numbers and compute the same split, so nothing else is
// exchanged.
//
// A loss is a mean over the words (text) or pairs (contrastive, matching) of a rank's batch.
// Multiplied by the rank's share of all words or pairs, and by the number of ranks, the mean over
// the ranks equals the mean over the whole batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "runtime/groups/process_groups.h"
#include "runtime/models/batch.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/recorder.h"
#include "runtime/train/cost_model.h"
#include "runtime/train/result.h"

namespace lockstep::runtime {

class Balancer {
 public:
  Balancer(ContrastiveModel model, ProcessGroups& groups, Recorder& recorder);

  // The costs fitted to the last measurements; nothing until there are some.
  const std::optional<ItemCosts>& costs() const { return model_of_costs_.costs(); }

  // Sets the weights of the step's micro-batches, and adds the ranks' measurements of the step
  // before. `balanced`: whether this step was split by costs. Collective: every rank, in every
  // step, with the same number of micro-batches. Throws what c10d throws.
  void before_step(std::vector<Batch>& batches, bool balanced);
  // Reports how long this rank computed in the step, not counting waits for other ranks.
  void after_step(trace::Nanos busy);

  // 1 - mean / largest over the ranks' computing times in the last step whose times were exchanged;
  // nothing during the first two steps.
  std::optional<double> last_idle_share() const { return last_idle_share_; }

  // Covers the steps whose times were exchanged, except the first, which is slower.
  BalanceReport report() const;

 private:
  struct Measured {
    double images = 0, texts = 0, ms = 0;
    bool balanced = false;
  };
  void take_in(const double* rows, std::int64_t width);

  ContrastiveModel model_;
  ProcessGroups::Ptr world_;
  Recorder& recorder_;
  CostModel model_of_costs_;
  Measured last_;
  int steps_ = 0;  // steps begun
  std::optional<double> last_idle_share_;
  BalanceReport report_;
};

}  // namespace lockstep::runtime
