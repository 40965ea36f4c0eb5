#include "runtime/models/feature_gather.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep {
namespace {

// What the backward needs; a holder, so that autograd keeps it beside the graph.
struct Context : torch::CustomClassHolder {
  Context(c10::intrusive_ptr<c10d::ProcessGroup> g, Recorder& r, std::string n)
      : group(std::move(g)), recorder(r), name(std::move(n)) {}
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  Recorder& recorder;
  std::string name;
};

class GatherWithGradient : public torch::autograd::Function<GatherWithGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& part,
                            const c10::intrusive_ptr<Context>& context) {
    ctx->saved_data["context"] = c10::IValue::make_capsule(context);
    return all_gather(*context->group, part.contiguous());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto capsule = ctx->saved_data["context"].toCapsule();
    const Context& context = static_cast<const Context&>(*capsule);
    const NoteScope scope(context.recorder,
                          context.recorder.note({context.name}, "contrastive.gather_backward"));
    return {reduce_scatter(*context.group, gradients.front().contiguous()), at::Tensor()};
  }
};

}  // namespace

FeatureGather::Gathered FeatureGather::gather(const at::Tensor& features, const std::string& name) {
  at::Tensor rows = at::full({1}, features.size(0), at::kLong);
  {
    const NoteScope scope(recorder_, recorder_.note({name}, "contrastive.rows"));
    rows = all_gather(*group_, rows);
  }
  {
    const HostRead reading(recorder_, rows);
    rows = rows.cpu();
  }
  const auto most = rows.max().item<std::int64_t>();
  const at::Tensor padded = at::constant_pad_nd(features, {0, 0, 0, most - features.size(0)});
  const NoteScope scope(recorder_, recorder_.note({name}, "contrastive.gather"));
  at::Tensor all;
  if (with_gradient_) {
    all = GatherWithGradient::apply(padded, c10::make_intrusive<Context>(group_, recorder_, name));
  } else {
    all = all_gather(*group_, padded.detach().contiguous());
    all.slice(0, group_->getRank() * most, (group_->getRank() + 1) * most).copy_(padded);
  }
  std::vector<at::Tensor> parts;
  Gathered out{{}, 0};
  for (std::int64_t rank = 0; rank < rows.size(0); ++rank) {
    const auto own = rows[rank].item<std::int64_t>();
    if (rank < group_->getRank()) out.offset += own;
    parts.push_back(all.slice(0, rank * most, rank * most + own));
  }
  out.all = at::cat(parts);
  return out;
}

}  // namespace lockstep
