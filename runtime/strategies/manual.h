// ManualSync: gradient averaging as people write it by hand. After the backwards, for each
// parameter in order: if its gradient exists, all-reduce it (SUM, blocking) and divide by the
// number of ranks.
//
// Correct as long as every rank has gradients for the same parameters. A rank whose batch lacks a
// modality makes fewer calls, and its calls then match others' calls for different parameters.
// Finding that is the verifier's task.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {

class ManualSync : public Strategy {
 public:
  // With Groups::per_modality: image.*, image_proj.* and logit_scale are reduced in the process
  // group "image_branch", everything else in "text_branch". With Groups::image_ranks: the former
  // are reduced in "image_ranks", whose members are parts.image_ranks, and averaged over these; the
  // image paths of other ranks stay unchanged.
  ManualSync(const Scenario::Strategy& options, StrategyParts parts);

  void start() override;
  void before_forward(Pass) override {}
  void backward(const at::Tensor& loss, Pass) override { loss.backward(); }
  void synchronise() override;
  // Groups::image_ranks: sends the image path to the other ranks.
  void gather_everything() override;

 protected:
  struct Synced {
    at::Tensor parameter;
    ProcessGroups::Ptr group;
    CallNote note;
    std::string name;
  };
  // Sums a gradient over its group. Called only if the gradient exists.
  virtual void reduce(Synced& it);
  // Divides the sums by the sizes of their groups.
  virtual void divide();

 private:
  StrategyParts parts_;
  ProcessGroups::Ptr world_;
  std::vector<Synced> synced_;
  std::optional<int> image_root_;  // Groups::image_ranks: the lowest of them
};

}  // namespace lockstep::runtime
