#include "runtime/strategies/manual.h"

#include <ATen/ATen.h>

namespace lockstep {
namespace {

bool of_image_branch(const std::string& name) {
  return name.starts_with("image.") || name.starts_with("image_proj.") || name == "logit_scale";
}

// Blocks until every rank has given its tensor.
void all_reduce(c10d::ProcessGroup& group, at::Tensor tensor) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  group.allreduce(tensors, options)->wait();
}

void broadcast_from_rank_0(c10d::ProcessGroup& group, at::Tensor tensor) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::BroadcastOptions options;
  options.asyncOp = false;
  group.broadcast(tensors, options)->wait();
}

}  // namespace

ManualSync::ManualSync(const Scenario::Strategy& options, StrategyParts parts)
    : parts_(std::move(parts)), world_(parts_.groups.make("world", "all ranks")) {
  ProcessGroups::Ptr image = world_;
  ProcessGroups::Ptr text = world_;
  if (options.process_groups == Scenario::Strategy::Groups::per_modality) {
    image = parts_.groups.make("image_branch", "gradients of the image path");
    text = parts_.groups.make("text_branch", "gradients of the text path");
  }
  for (const auto& [name, parameter] : trained_parameters(*parts_.model)) {
    synced_.push_back(
        {parameter, of_image_branch(name) ? image : text, parts_.recorder.note({name}, "grad")});
  }
}

void ManualSync::start() {
  const at::NoGradGuard no_grad;
  NamedTensors state = named_parameters(*parts_.model);
  for (auto& buffer : named_buffers(*parts_.model)) state.push_back(std::move(buffer));
  for (auto& [name, tensor] : state) {
    const NoteScope scope(parts_.recorder, parts_.recorder.note({name}, "init"));
    broadcast_from_rank_0(*world_, tensor);
  }
}

void ManualSync::after_backward() {
  for (Synced& it : synced_) {
    at::Tensor gradient = it.parameter.grad();
    if (!gradient.defined()) continue;
    const NoteScope scope(parts_.recorder, it.note);
    all_reduce(*it.group, gradient);
    gradient.div_(parts_.groups.who().world_size);
  }
}

}  // namespace lockstep
