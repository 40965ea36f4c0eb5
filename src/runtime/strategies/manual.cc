#include "runtime/strategies/manual.h"

#include <ATen/ATen.h>

#include "runtime/collectives.h"
#include "runtime/models/branches.h"

namespace lockstep {

ManualSync::ManualSync(const Scenario::Strategy& options, StrategyParts parts)
    : parts_(std::move(parts)), world_(parts_.groups.world()) {
  ProcessGroups::Ptr image = world_;
  ProcessGroups::Ptr text = world_;
  if (options.process_groups == Scenario::Strategy::Groups::per_modality) {
    image = parts_.groups.make("image_branch", "gradients of the image path");
    text = parts_.groups.make("text_branch", "gradients of the text path");
  }
  for (const auto& [name, parameter] : trained_parameters(*parts_.model)) {
    synced_.push_back(
        {parameter, needs_images(name) ? image : text, parts_.recorder.note({name}, "grad")});
  }
}

void ManualSync::start() {
  const at::NoGradGuard no_grad;
  NamedTensors state = named_parameters(*parts_.model);
  for (auto& buffer : named_buffers(*parts_.model)) state.push_back(std::move(buffer));
  for (auto& [name, tensor] : state) {
    const NoteScope scope(parts_.recorder, parts_.recorder.note({name}, "init"));
    broadcast(*world_, tensor);
  }
}

void ManualSync::synchronise() {
  for (Synced& it : synced_) {
    at::Tensor gradient = it.parameter.grad();
    if (!gradient.defined()) continue;
    const NoteScope scope(parts_.recorder, it.note);
    all_reduce(*it.group, gradient);
    gradient.div_(parts_.groups.who().world_size);
  }
}

}  // namespace lockstep
