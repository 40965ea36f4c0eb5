// ContrastiveModel: an image and a text encoder, projected into one space and trained so that a
// picture and its sentence get similar embeddings (symmetric InfoNCE over the local or the global
// batch, learnable temperature; Radford et al., 2021, arXiv:2103.00020). A language task on the
// projected text is added, so that a batch without images still trains something: the next word if
// the text encoder is causal, else masked words (Devlin et al., arXiv:1810.04805, section 3.1).
// With the head "fusion", cross-attention over image and text also classifies pairs as matching or
// not (image-text matching: Li et al., 2021, arXiv:2107.07651).
//
// With `image_experts` the image encoder's features pass one of two layers: pictures the one,
// frames of videos the other (modality experts: Bao et al., 2022, "VLMo", arXiv:2111.02358).
//
// Parameters: logit_scale, image.*, image_experts.{pictures, frames}.*, image_proj.weight, text.*,
// text_proj.weight, text_head.*, fusion.*
//
// An image without a sentence is a negative for the sentences; it has no positive itself, and takes
// no part in the matching.
//
// Which parameters get a gradient: with at least one image in the batch, all, except for an expert
// that no image of the batch passes. With a text-only batch, text.*, text_proj.* and text_head.*;
// the other gradients stay undefined. (With exactly one image there are no negatives: the
// contrastive loss is 0, its gradients are defined and 0.)
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <torch/csrc/api/include/torch/nn.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/job/scenario.h"
#include "runtime/models/batch.h"
#include "runtime/models/block.h"
#include "runtime/models/encoders.h"
#include "runtime/models/fusion.h"
#include "runtime/models/parameters.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// Gathers the features of all ranks' batches, for a contrastive loss over all of them.
//
// Source of the idea and of its gradient: "loss local, features global" of OpenCLIP (Cherti et al.,
// 2023, arXiv:2212.07143; gather_features with local_loss and gather_with_grad). Each rank computes
// the rows of its own pairs against all columns. The gradient of a gathered row is the sum over the
// ranks that used it, so a reduce-scatter. The mean of the ranks' gradients is then that of the
// whole batch's loss.
class FeatureGather {
 public:
  // `with_gradient` false: gradients do not flow back to other ranks' features, which is a mistake
  // (Fault::detached_negatives). `recorder` must outlive it.
  FeatureGather(c10::intrusive_ptr<c10d::ProcessGroup> group, Recorder& recorder,
                bool with_gradient)
      : group_(std::move(group)), recorder_(recorder), with_gradient_(with_gradient) {}

  struct Gathered {
    at::Tensor all;       // [sum of all ranks' rows, width]
    std::int64_t offset;  // of this rank's first row
  };
  // Gathers [rows, width] of this rank with the others'; ranks may have different numbers of rows,
  // also 0. Collective; the backward of `all` is collective, too. `name`: of the features in the
  // trace. Throws what c10d throws.
  Gathered gather(const at::Tensor& features, const std::string& name);

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Recorder& recorder_;
  bool with_gradient_;
};

class ImageExpertsImpl : public ModelBlock {
 public:
  explicit ImageExpertsImpl(std::int64_t width);
  // Features of pictures, or of frames of videos; [n, width], the same out.
  at::Tensor forward(const at::Tensor& features, bool of_frames);

 private:
  torch::nn::Linear pictures_, frames_;
};
TORCH_MODULE(ImageExperts);

struct Losses {
  at::Tensor total;        // the sum by the batch's weights: what backward() starts from
  at::Tensor contrastive;  // undefined for a text-only batch
  at::Tensor text;
  at::Tensor matching;  // undefined for a text-only batch, and without fusion
};

class ContrastiveModelImpl : public torch::nn::Module {
 public:
  // Fresh weights. `input` must be that of the batches. Throws std::invalid_argument where the
  // fusion does not fit the encoders.
  ContrastiveModelImpl(const Scenario::Model& options, const InputSpec& input);

  // `gather` null: negatives are the batch's own; else those of all ranks (collective).
  Losses losses(const Batch& batch, FeatureGather* gather = nullptr);
  // The same with the image encoder's features, [images, width], from elsewhere: `image_features`
  // is asked for them once the text has been encoded, and only where the batch has images.
  using ImageFeatures = std::function<at::Tensor()>;
  Losses losses_with(const Batch& batch, const ImageFeatures& image_features,
                     FeatureGather* gather = nullptr);

  // The same with the text encoder's output from elsewhere, too: what it saw of the batch's tokens
  // (seen_by_text) and its hidden states [n, t, width].
  struct EncodedText {
    at::Tensor seen, hidden;
  };
  Losses losses_of(const Batch& batch, const EncodedText& text, const ImageFeatures& image_features,
                   FeatureGather* gather = nullptr);
  // The tokens with some words hidden, drawn again by each call. For text encoders that see both
  // ways: they would read the answer otherwise. And which of them are not padding.
  at::Tensor seen_by_text(const at::Tensor& tokens) const;
  at::Tensor text_mask(const at::Tensor& tokens) const { return tokens != input_.pad; }

  // Words of these texts that the language task predicts, or may hide to predict.
  std::int64_t words_to_predict(const at::Tensor& tokens) const;

  // The most likely next token of each text, [n, tokens] to [n, 1]. Texts longer than the text
  // encoder's positions are read from their last ones. Needs a causal text encoder.
  at::Tensor next_tokens(const at::Tensor& tokens);

  // Unit vectors in the shared space: [n, 3, side, side] and [n, tokens] to [n, embed_dim].
  at::Tensor embed_images(const at::Tensor& images);
  at::Tensor embed_sentences(const at::Tensor& tokens);

  // For remedies: a scalar that depends on every parameter that a batch without images leaves
  // without a gradient.
  at::Tensor image_path(const at::Tensor& images);

  const InputSpec& input() const { return input_; }

  ImageTower& image_tower() { return image_; }
  TextTower& text_tower() { return text_; }

 private:
  at::Tensor encode_pictures(const Batch& batch);
  at::Tensor encode_images(const at::Tensor& images, bool of_videos);
  at::Tensor sentence_of(const at::Tensor& projected, const at::Tensor& tokens) const;
  at::Tensor text_loss(const at::Tensor& projected, const at::Tensor& seen,
                       const at::Tensor& tokens);
  at::Tensor matching_loss(const at::Tensor& features, const at::Tensor& hidden,
                           const at::Tensor& mask);

  InputSpec input_;
  at::Tensor logit_scale_;  // logarithm of 1 / temperature
  ImageTower image_;
  ImageExperts image_experts_{nullptr};  // with `image_experts`
  torch::nn::Linear image_proj_;
  TextTower text_;
  torch::nn::Linear text_proj_;
  torch::nn::Linear text_head_;
  CrossAttentionFusion fusion_{nullptr};  // with the head "fusion"
};
TORCH_MODULE(ContrastiveModel);

}  // namespace lockstep::runtime
