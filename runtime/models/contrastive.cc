#include "runtime/models/contrastive.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/groups/collectives.h"
#include "runtime/models/bert.h"
#include "runtime/models/block.h"
#include "runtime/models/checkpointing.h"
#include "runtime/models/encoders.h"
#include "runtime/models/fusion_shapes.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep::runtime {
namespace {

namespace F = torch::nn::functional;

constexpr double kFirstTemperature = 0.1;
constexpr double kMaskedShare = 0.15;  // of the words, as BERT's

torch::nn::Linear projection(std::int64_t in, std::int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

at::Tensor unit(const at::Tensor& x) { return F::normalize(x, F::NormalizeFuncOptions().dim(-1)); }

CrossAttentionFusion make_fusion(const Scenario::Model::Fusion& options, std::int64_t image_width,
                                 std::int64_t text_width) {
  FusionOptions fusion;
  fusion.image_width = options.image_width.value_or(image_width);
  fusion.text_width = text_width;
  fusion.width = options.width;
  fusion.layers = options.layers;
  fusion.feed_forward = 4 * fusion.width;
  for (const Status& fits :
       {check_fusion_options(fusion), check_fusion_widths(fusion, image_width, text_width)}) {
    if (!fits) throw std::invalid_argument(fits.error().str());
  }
  return CrossAttentionFusion(fusion);
}

// Makes a function of an encoder run again in backward.
template <class... Inputs>
void checkpoint_function(const std::shared_ptr<torch::nn::Module>& module,
                         std::function<at::Tensor(Inputs...)>& function) {
  function = [module, run = std::move(function)](Inputs... inputs) {
    return checkpointed(module, [run, inputs...] { return run(inputs...); });
  };
}

template <class Tower>
void checkpoint_tower(Tower& tower, Scenario::Model::Checkpointing what) {
  switch (what) {
    case Scenario::Model::Checkpointing::none:
      return;
    case Scenario::Model::Checkpointing::blocks:
      for (const auto& module : tower.module->modules()) {
        if (auto* const block = dynamic_cast<ModelBlock*>(module.get())) block->checkpoint();
      }
      return;
    case Scenario::Model::Checkpointing::encoders:
      for (auto* const function : {&tower.encode, &tower.front, &tower.back}) {
        checkpoint_function(tower.module, *function);
      }
  }
}

// The fusion of images that have no text, as one number.
at::Tensor fused_without_text(CrossAttentionFusion& fusion, const at::Tensor& features,
                              std::int64_t text_width) {
  const at::Tensor no_text = at::zeros({features.size(0), 1, text_width}, features.options());
  const at::Tensor mask = at::ones({features.size(0), 1}, features.options().dtype(at::kLong));
  return fusion(features, no_text, mask).sum();
}

}  // namespace

ImageExpertsImpl::ImageExpertsImpl(std::int64_t width)
    : pictures_(register_module("pictures", torch::nn::Linear(width, width))),
      frames_(register_module("frames", torch::nn::Linear(width, width))) {}

at::Tensor ImageExpertsImpl::forward(const at::Tensor& features, bool of_frames) {
  return torch::relu(of_frames ? frames_(features) : pictures_(features));
}

ContrastiveModelImpl::ContrastiveModelImpl(const Scenario::Model& options, const InputSpec& input)
    : input_(input),
      logit_scale_(register_parameter("logit_scale",
                                      at::full({1}, std::log(1 / kFirstTemperature), at::kFloat))),
      image_(make_image_tower(options.image)),
      image_proj_(projection(image_.width, options.embed_dim)),
      text_(make_text_tower(options.text, input)),
      text_proj_(projection(text_.width, options.embed_dim)),
      text_head_(torch::nn::Linear(options.embed_dim, input.vocabulary)) {
  register_module("image", image_.module);
  if (options.image_experts)
    image_experts_ = register_module("image_experts", ImageExperts(image_.width));
  register_module("image_proj", image_proj_);
  register_module("text", text_.module);
  register_module("text_proj", text_proj_);
  register_module("text_head", text_head_);
  if (options.head == "fusion") {
    fusion_ = register_module("fusion", make_fusion(options.fusion, image_.width, text_.width));
  }
  checkpoint_tower(image_, options.activation_checkpointing);
  checkpoint_tower(text_, options.activation_checkpointing);
}

at::Tensor ContrastiveModelImpl::embed_images(const at::Tensor& images) {
  return unit(image_proj_(encode_images(images, /*of_videos=*/false)));
}

at::Tensor ContrastiveModelImpl::embed_sentences(const at::Tensor& tokens) {
  const at::Tensor hidden = text_.encode(tokens, tokens != input_.pad);
  return unit(sentence_of(text_proj_(hidden), tokens));
}

// A causal encoder's end token has seen the whole sentence; else the average over the tokens.
at::Tensor ContrastiveModelImpl::sentence_of(const at::Tensor& projected,
                                             const at::Tensor& tokens) const {
  if (!text_.causal) return mean_of_tokens(projected, tokens != input_.pad);
  const at::Tensor end = (tokens == input_.end).to(at::kLong).argmax(1);
  return projected.index({at::arange(tokens.size(0), tokens.options()), end});
}

at::Tensor ContrastiveModelImpl::image_path(const at::Tensor& images) {
  at::Tensor features = encode_images(images, /*of_videos=*/false);
  if (image_experts_) features = features + encode_images(images, /*of_videos=*/true);
  at::Tensor sum = image_proj_(features).sum() + logit_scale_.sum();
  if (fusion_) {
    sum = sum + fused_without_text(fusion_, features, text_.width);
  }
  return sum;
}

at::Tensor ContrastiveModelImpl::next_tokens(const at::Tensor& tokens) {
  LOCKSTEP_CHECK(text_.causal, "a text encoder that can continue a text");
  const std::int64_t from = std::max<std::int64_t>(0, tokens.size(1) - input_.max_tokens);
  const at::Tensor seen = tokens.slice(1, from);
  const at::Tensor hidden = text_.encode(seen, text_mask(seen));
  return text_head_(text_proj_(hidden.slice(1, -1))).argmax(-1);
}

std::int64_t ContrastiveModelImpl::words_to_predict(const at::Tensor& tokens) const {
  const at::Tensor after_start = tokens.slice(1, 1);
  at::Tensor words = after_start != input_.pad;
  if (!text_.causal) words = words & (after_start != input_.end);
  return words.sum().item<std::int64_t>();
}

at::Tensor ContrastiveModelImpl::seen_by_text(const at::Tensor& tokens) const {
  if (text_.causal || !is_training()) return tokens;
  const at::Tensor words = (tokens != input_.pad) & (tokens != input_.end);
  at::Tensor hidden = (at::rand(tokens.sizes()).to(tokens.device()) < kMaskedShare) & words;
  hidden.select(1, 0).fill_(false);  // the start token
  return at::where(hidden, input_.mask, tokens);
}

at::Tensor ContrastiveModelImpl::text_loss(const at::Tensor& projected, const at::Tensor& seen,
                                           const at::Tensor& tokens) {
  if (text_.causal) {
    // The next word: the state at token i predicts token i + 1.
    const auto length = tokens.size(1);
    const at::Tensor logits = text_head_(projected.slice(1, 0, length - 1));
    return F::cross_entropy(logits.flatten(0, 1), tokens.slice(1, 1, length).flatten(),
                            F::CrossEntropyFuncOptions().ignore_index(input_.pad));
  }
  // Masked words (BERT): only the words that were hidden are predicted.
  const at::Tensor hidden = (seen != tokens).flatten().nonzero().squeeze(1);
  const at::Tensor logits = text_head_(projected.flatten(0, 1).index_select(0, hidden));
  // Without a hidden word: a loss of 0 that still reaches every parameter of the text encoder, so
  // that all ranks reduce the same gradients.
  if (hidden.size(0) == 0) return 0 * (projected.sum() + text_head_->bias.sum());
  return F::cross_entropy(logits, tokens.flatten().index_select(0, hidden));
}

// Each image with its own sentence, and with its neighbour's.
at::Tensor ContrastiveModelImpl::matching_loss(const at::Tensor& features, const at::Tensor& hidden,
                                               const at::Tensor& mask) {
  const auto pairs = features.size(0);
  const at::Tensor logits = at::cat(
      {fusion_(features, hidden, mask), fusion_(features, hidden.roll(1, 0), mask.roll(1, 0))});
  at::Tensor right = at::zeros({2 * pairs}, logits.options().dtype(at::kLong));
  right.slice(0, 0, pairs).fill_(1);
  if (pairs == 1) return F::cross_entropy(logits.slice(0, 0, 1), right.slice(0, 0, 1));
  return F::cross_entropy(logits, right);
}

Losses ContrastiveModelImpl::losses(const Batch& batch, FeatureGather* gather) {
  return losses_with(
      batch, [&] { return encode_pictures(batch); }, gather);
}

at::Tensor ContrastiveModelImpl::encode_pictures(const Batch& batch) {
  if (batch.tower_runs() < 2) return encode_images(batch.images, batch.videos > 0);
  const std::int64_t stills = batch.images.size(0) - batch.videos;
  const at::Tensor of_stills = encode_images(batch.images.slice(0, 0, stills), false);
  return at::cat({of_stills, encode_images(batch.images.slice(0, stills), true)});
}

at::Tensor ContrastiveModelImpl::encode_images(const at::Tensor& images, bool of_videos) {
  const at::Tensor features = image_.encode(images);
  return image_experts_ ? run_block(image_experts_, features, of_videos) : features;
}

Losses ContrastiveModelImpl::losses_with(const Batch& batch, const ImageFeatures& image_features,
                                         FeatureGather* gather) {
  const at::Tensor seen = seen_by_text(batch.tokens);
  const EncodedText text{seen, text_.encode(seen, text_mask(batch.tokens))};
  return losses_of(batch, text, image_features, gather);
}

Losses ContrastiveModelImpl::losses_of(const Batch& batch, const EncodedText& text,
                                       const ImageFeatures& image_features, FeatureGather* gather) {
  Losses losses;
  const auto& [seen, hidden] = text;
  const at::Tensor mask = text_mask(batch.tokens);
  const at::Tensor projected = text_proj_(hidden);
  losses.text = text_loss(projected, seen, batch.tokens);
  losses.total = batch.weights.text * losses.text;
  if (!batch.has_image()) return losses;

  const at::Tensor features = image_features();
  const at::Tensor images = unit(image_proj_(features));
  const at::Tensor sentences =
      unit(sentence_of(projected, batch.tokens).index_select(0, batch.image_rows));
  FeatureGather::Gathered all_images{images, 0};
  FeatureGather::Gathered all_sentences{sentences, 0};
  if (gather != nullptr) {
    all_images = gather->gather(images, "image_features");
    all_sentences = gather->gather(sentences, "text_features");
  }
  const at::Tensor scale = logit_scale_.exp();
  // The images with a sentence come first. The others are only negatives: sentences are
  // compared with them, and they have no sentence to find.
  const std::int64_t pairs = sentences.size(0);
  const auto distinct = [&](const at::Tensor& from, const FeatureGather::Gathered& among) {
    const at::Tensor right = at::arange(pairs, images.options().dtype(at::kLong)) + among.offset;
    const at::Tensor logits = scale * at::matmul(from, among.all.t());
    return pairs > 0 ? F::cross_entropy(logits, right) : logits.sum();  // of nothing: 0
  };
  losses.contrastive =
      (distinct(images.slice(0, 0, pairs), all_sentences) + distinct(sentences, all_images)) / 2;
  losses.total = losses.total + batch.weights.pairs * losses.contrastive;
  if (fusion_) {
    // Without a pair the fusion still runs, with weight 0: its parameters get gradients on
    // every rank that has images.
    losses.matching = pairs > 0 ? matching_loss(features.slice(0, 0, pairs),
                                                hidden.index_select(0, batch.image_rows),
                                                mask.index_select(0, batch.image_rows))
                                : 0 * fused_without_text(fusion_, features, text_.width);
    losses.total = losses.total + batch.weights.pairs * losses.matching;
  }
  return losses;
}

namespace {

// What the backward needs; a holder, so that autograd keeps it with the graph.
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
  // Drops the padding of ranks with fewer rows. In one operation for all ranks: with thousands of
  // ranks, one operation for each would take most of a step.
  const at::Tensor is_row = at::arange(most).unsqueeze(0) < rows.unsqueeze(1);
  return {all.index_select(0, is_row.flatten().nonzero().squeeze(1).to(all.device())),
          rows.slice(0, 0, group_->getRank()).sum().item<std::int64_t>()};
}

}  // namespace lockstep::runtime
