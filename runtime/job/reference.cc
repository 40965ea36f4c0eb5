#include "runtime/job/reference.h"

#include <string>

namespace lockstep {

Result<Scenario> reference_of(const Scenario& scenario) {
  const auto refuse = [&](std::string why, std::string fix) {
    return Error{
        "there is no reference for this job: " + std::move(why), {scenario.file}, std::move(fix)};
  };
  if (scenario.replays()) {
    return refuse("a replay only makes the calls of a recorded run, and trains nothing",
                  "compare the job that was recorded");
  }
  // Of the encoders, only "bert-small" is without dropout, and each rank draws its own.
  if (scenario.model.head == "fusion" || scenario.model.text != "bert-small") {
    return refuse(
        "its dropout leaves out other values in one process than in each rank",
        "compare with the text encoder bert-small and the head contrastive, which have none");
  }
  if (scenario.model.negatives != Scenario::Model::Negatives::local) {
    return refuse(
        "its losses need the features of all ranks at once, and a rank's BatchNorm sees "
        "its own batch alone",
        "compare with \"negatives: local\"");
  }
  if (scenario.data.balance != Scenario::Data::Balance::none) {
    return refuse("the ranks share out their batches by what they measure",
                  "compare with \"balance: none\"");
  }
  if (scenario.strategy.process_groups == Scenario::Strategy::Groups::image_ranks) {
    return refuse("the ranks with images average the image path among themselves, not over all",
                  "compare with \"process_groups: one\" and a remedy");
  }
  Scenario out = scenario;
  out.ranks = 1;
  out.strategy = {};
  out.strategy.kind = Scenario::Strategy::Kind::manual;
  if (scenario.strategy.kind == Scenario::Strategy::Kind::pipeline) {
    out.train.accumulation.steps = scenario.strategy.micro_batches;
  }
  out.train.accumulation.by_rank.clear();
  out.train.clip.before_sync = out.train.clip.local_norm = false;
  out.train.loss_scale.agreed = true;
  out.train.zero_grad = true;
  out.train.checkpoint = {};
  using Kind = Scenario::Remedy::Kind;
  Kind& kind = out.remedy.kind;
  if (kind == Kind::dummy_image_outside_graph || kind == Kind::dummy_image_in_batchnorm) {
    kind = Kind::dummy_image;
  }
  if (kind == Kind::gradient_mask_decayed) kind = Kind::gradient_mask;
  using Average = Scenario::Remedy::Average;
  if (out.remedy.average == Average::contributors_diluted) {
    out.remedy.average = Average::contributors;
  }
  return out;
}

}  // namespace lockstep
