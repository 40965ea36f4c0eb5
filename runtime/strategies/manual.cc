#include "runtime/strategies/manual.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/groups/collectives.h"
#include "runtime/models/parameters.h"

namespace lockstep::runtime {

ManualSync::ManualSync(const Scenario::Strategy& options, StrategyParts parts)
    : parts_(std::move(parts)), world_(parts_.groups.world()) {
  ProcessGroups::Ptr image = world_;
  ProcessGroups::Ptr text = world_;
  if (options.process_groups == Scenario::Strategy::Groups::per_modality) {
    image = parts_.groups.make("image_branch", "gradients of the image path");
    text = parts_.groups.make("text_branch", "gradients of the text path");
  }
  if (options.process_groups == Scenario::Strategy::Groups::image_ranks) {
    const std::vector<std::int32_t>& ranks = parts_.image_ranks;
    LOCKSTEP_CHECK(!ranks.empty(), "a group has members");
    image_root_ = ranks.front();
    const bool member =
        std::find(ranks.begin(), ranks.end(), parts_.groups.who().rank) != ranks.end();
    // Ranks outside the group hold no handle: a gradient of theirs is an error, thrown below.
    image = member ? parts_.groups.make("image_ranks", "gradients of the image path", ranks)
                   : ProcessGroups::Ptr();
  }
  for (const auto& [name, parameter] : trained_parameters(*parts_.model)) {
    synced_.push_back({parameter, needs_images(name) ? image : text,
                       parts_.recorder.note({name}, "grad" + parts_.average), name});
  }
}

void ManualSync::start() {
  broadcast_all(*world_, parts_.recorder, named_parameters(*parts_.model), "init");
  broadcast_all(*world_, parts_.recorder, named_buffers(*parts_.model), "init");
}

void ManualSync::synchronise() {
  for (Synced& it : synced_) {
    const at::Tensor gradient = it.parameter.grad();
    // The mistake that many hand-written loops contain: a rank without this gradient skips the
    // call, and its next call matches another parameter's call on the other ranks.
    if (!gradient.defined()) continue;
    if (!it.group) {
      throw std::runtime_error("this rank has images, but is not in the group image_ranks");
    }
    if (parts_.watch != nullptr) parts_.watch->local_gradient(it.name, gradient);
    reduce(it);
  }
  divide();
}

void ManualSync::reduce(Synced& it) {
  const NoteScope scope(parts_.recorder, it.note);
  at::Tensor gradient = it.parameter.grad();
  all_reduce(*it.group, gradient);
}

void ManualSync::divide() {
  for (Synced& it : synced_) {
    at::Tensor gradient = it.parameter.grad();
    if (gradient.defined()) gradient.div_(it.group->getSize());
  }
}

void ManualSync::gather_everything() {
  if (!image_root_) return;
  NamedTensors image_path;
  for (const NamedTensors& all : {named_parameters(*parts_.model), named_buffers(*parts_.model)}) {
    for (const auto& it : all) {
      if (needs_images(it.first)) image_path.push_back(it);
    }
  }
  // Other ranks' image paths were never updated; send them those of the group's first rank.
  broadcast_all(*world_, parts_.recorder, image_path, "image_ranks.share", *image_root_);
}

}  // namespace lockstep::runtime
