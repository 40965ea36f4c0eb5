// Balancer: measures what the ranks' steps cost, agrees on it over the ranks, and weighs the losses
// of batches that differ in size.
//
// Each step begins with one all-gather (tag "balance.counts"): of the step before, every rank's
// images, texts and computing time, of this one what its losses average over. So all ranks fit the
// same costs to the same numbers and compute the same split; nothing else is exchanged.
//
// A loss is a mean over the words (text) or pairs (contrastive, matching) of a rank's batch. Times
// the rank's share of all ranks' words or pairs and the number of ranks, the mean over the ranks is
// the mean over the whole batch.
#pragma once

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

  // What the last measurements say; nothing until there are some.
  const std::optional<ItemCosts>& costs() const { return model_of_costs_.costs(); }

  // Sets the weights of the step's micro-batches, and takes in what the ranks measured in the step
  // before. `balanced`: whether this step was split by costs. Collective, in every step on all
  // ranks; they have the same number of micro-batches. Throws what c10d throws.
  void before_step(std::vector<Batch>& batches, bool balanced);
  // This rank computed so long in the step, without waiting for other ranks.
  void after_step(trace::Nanos busy);

  // 1 - mean / largest over the ranks' computing times of the step before the one that began last;
  // nothing while that is none or the first.
  std::optional<double> last_idle_share() const { return last_idle_share_; }

  // Of the steps whose times all ranks have told each other, but for the first, which is slower.
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
  int steps_ = 0;  // that began
  std::optional<double> last_idle_share_;
  BalanceReport report_;
};

}  // namespace lockstep::runtime
