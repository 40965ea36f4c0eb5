// Remedy: how training handles batches without images. One file per remedy in this folder.
#pragma once

#include <memory>
#include <vector>

#include "runtime/groups/process_groups.h"
#include "runtime/job/scenario.h"
#include "runtime/models/batch.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// What a remedy works on; all of it outlives the remedy.
struct RemedyParts {
  ContrastiveModel model;
  ProcessGroups& groups;
  Recorder& recorder;
  FeatureGather* gather = nullptr;  // of the loss; null: local negatives
  NamedTensors optimised = {};      // those whose gradients after_sync sees; empty: the model's own
  Fault fault = Fault::none;        // deliberate mistake, if it concerns the remedy
  int tower_runs = 1;               // Scenario::tower_runs
};

// Called by the train loop in each step: before_step, then loss for each micro-batch, then
// after_sync. Functions that communicate are collective, and throw what c10d throws.
class Remedy {
 public:
  explicit Remedy(RemedyParts parts) : parts_(std::move(parts)) {}
  virtual ~Remedy() = default;

  // May remove images from the step's micro-batches.
  virtual void before_step(std::vector<Batch>&) {}
  // The loss from which backward starts.
  virtual at::Tensor loss(const Batch& batch) {
    return parts_.model->losses(batch, parts_.gather).total;
  }
  // Called when the gradients are the mean over the ranks.
  virtual void after_sync() {}

 protected:
  RemedyParts& parts() { return parts_; }

 private:
  RemedyParts parts_;
};

// The scenario's remedy. `alternating` only decides which batch holds what (Scenario::rule_for), so
// it is a plain Remedy here.
std::unique_ptr<Remedy> make_remedy(const Scenario::Remedy& options, RemedyParts parts);

// PresenceVote: by an all-reduce the ranks learn whether all of them have images. If one has none,
// all train on text only in this step, so that they compute gradients for the same parameters.
// Costs an all-reduce of one number per step, and the images of the steps where the vote fails.

class PresenceVote : public Remedy {
 public:
  using Remedy::Remedy;
  void before_step(std::vector<Batch>& batches) override;
};

}  // namespace lockstep::runtime
