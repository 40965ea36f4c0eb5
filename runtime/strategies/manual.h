// ManualSync: gradient averaging as people write it by hand. After the backwards, for each
// parameter in order: if its gradient exists, all-reduce it (SUM, blocking) and divide by the
// number of ranks.
//
// Right as long as every rank has gradients for the same parameters. Where one rank's batch lacks a
// modality, its sequence of calls is shorter, and what then meets what is the verifier's subject.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {

class ManualSync : public Strategy {
 public:
  // With Groups::per_modality: image.*, image_proj.* and logit_scale go through a process group of
  // their own, "image_branch", everything else through "text_branch". With Groups::image_ranks, the
  // former through "image_ranks", whose members are parts.image_ranks and which averages over them;
  // other ranks' image paths then stay as they were.
  ManualSync(const Scenario::Strategy& options, StrategyParts parts);

  void start() override;
  void before_forward(Pass) override {}
  void backward(const at::Tensor& loss, Pass) override { loss.backward(); }
  void synchronise() override;
  // Groups::image_ranks: gives the other ranks the image path.
  void gather_everything() override;

 protected:
  struct Synced {
    at::Tensor parameter;
    ProcessGroups::Ptr group;
    CallNote note;
    std::string name;
  };
  // Sums a gradient that exists over its group.
  virtual void reduce(Synced& it);
  // Divides the sums by the number of their ranks.
  virtual void divide();

 private:
  StrategyParts parts_;
  ProcessGroups::Ptr world_;
  std::vector<Synced> synced_;
  std::optional<int> image_root_;  // Groups::image_ranks: the first of them
};

}  // namespace lockstep::runtime
