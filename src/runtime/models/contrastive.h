// ContrastiveModel: an image and a text encoder, projected into one space and trained so that a
// picture and its sentence meet there (symmetric InfoNCE over the local or the
// global batch, learnable temperature), plus next-word prediction from the projected text, so that
// a batch without any image still trains something.
//
// Parameters: logit_scale, image.*, image_proj.weight, text.*, text_proj.weight, text_head.*
//
// Who gets a gradient: a batch with at least one image: all of them. A text-only batch: text.*,
// text_proj.* and text_head.*; the others' gradients stay undefined. (With exactly one image there
// is nothing to tell apart: the contrastive loss is 0, its gradients are defined and 0.)
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/api/include/torch/nn.h>

#include "job/scenario.h"
#include "runtime/data/batch.h"
#include "runtime/feature_gather.h"
#include "runtime/models/image_encoder.h"
#include "runtime/models/text_encoder.h"

namespace lockstep {

struct Losses {
  at::Tensor total;        // what backward() starts from
  at::Tensor contrastive;  // undefined for a text-only batch
  at::Tensor text;
};

class ContrastiveModelImpl : public torch::nn::Module {
 public:
  explicit ContrastiveModelImpl(int embed_dim);

  // `gather` null: negatives are the batch's own; else those of all ranks (collective).
  Losses losses(const Batch& batch, FeatureGather* gather = nullptr);

  // Unit vectors in the shared space: [n, 3, side, side] and [n, tokens] to [n, embed_dim].
  at::Tensor embed_images(const at::Tensor& images);
  at::Tensor embed_sentences(const at::Tensor& tokens);

  // All parameters of the image path, for remedies: its projected features, not normalised.
  at::Tensor project_images(const at::Tensor& images);
  const at::Tensor& logit_scale() const { return logit_scale_; }
  ImageEncoder& image_encoder() { return image_; }

 private:
  at::Tensor sentence_of(const at::Tensor& projected, const at::Tensor& tokens) const;

  at::Tensor logit_scale_;  // logarithm of 1 / temperature
  ImageEncoder image_;
  torch::nn::Linear image_proj_;
  TextEncoder text_;
  torch::nn::Linear text_proj_;
  torch::nn::Linear text_head_;
};
TORCH_MODULE(ContrastiveModel);

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// In registration order, which is the same on every rank.
NamedTensors named_parameters(const torch::nn::Module& model);
NamedTensors named_buffers(const torch::nn::Module& model);
// Those that are trained: gradients are computed for them.
NamedTensors trained_parameters(const torch::nn::Module& model);

// Stops the training of every parameter whose name starts with one of the prefixes.
void freeze(torch::nn::Module& model, const std::vector<std::string>& prefixes);

}  // namespace lockstep
