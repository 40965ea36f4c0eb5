// Remedy: what is done about batches without images. A file per remedy beside this one.
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
  NamedTensors optimised = {};      // whose gradients after_sync sees; empty: the model's own
  Fault fault = Fault::none;        // what goes wrong on purpose, where it is of the remedy
};

// Called by the train loop for each step: before_step, then loss for each micro-batch, then
// after_sync. What communicates is collective, and throws what c10d throws.
class Remedy {
 public:
  explicit Remedy(RemedyParts parts) : parts_(std::move(parts)) {}
  virtual ~Remedy() = default;

  // May take images away from the step's micro-batches.
  virtual void before_step(std::vector<Batch>&) {}
  // What backward starts from.
  virtual at::Tensor loss(const Batch& batch) {
    return parts_.model->losses(batch, parts_.gather).total;
  }
  // The gradients are the mean over the ranks now.
  virtual void after_sync() {}

 protected:
  RemedyParts& parts() { return parts_; }

 private:
  RemedyParts parts_;
};

// The scenario's remedy. Those that only decide which batch holds what (alternating) are none here:
// Scenario::rule_for knows them.
std::unique_ptr<Remedy> make_remedy(const Scenario::Remedy& options, RemedyParts parts);

// PresenceVote: the ranks ask each other whether all of them have images. Where one has not, all of
// them train on text alone in this step, so that they compute gradients for the same parameters. It
// costs an all-reduce of one number in each step, and the images of that step.

class PresenceVote : public Remedy {
 public:
  using Remedy::Remedy;
  void before_step(std::vector<Batch>& batches) override;
};

}  // namespace lockstep::runtime
