// BertEncoder: the text encoder of Devlin et al., "BERT" (arXiv:1810.04805), as Hugging Face's
// BertModel computes it: post-norm layers, exact (erf) GELU, learned positions, token types.
//
// Parameters have Hugging Face's names (embeddings.word_embeddings.weight,
// encoder.layer.0.attention.self.query.weight, ..., pooler.dense.bias), so that its weights load as
// they are: weights.h.
#pragma once

#include <string_view>
#include <vector>

#include <torch/csrc/api/include/torch/nn.h>

#include "runtime/models/bert_options.h"
#include "runtime/models/block.h"

namespace lockstep::runtime {

// A linear layer, dropout, the sum with what went around, LayerNorm: ends both halves of a layer.
class BertOutputImpl : public torch::nn::Module {
 public:
  BertOutputImpl(std::int64_t in, const BertOptions& options);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& around);

 private:
  torch::nn::Linear dense_;
  torch::nn::LayerNorm norm_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(BertOutput);

class BertLayerImpl : public ModelBlock {
 public:
  explicit BertLayerImpl(const BertOptions& options);
  // [n, t, width], the same out; mask [n, t].
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask);

 private:
  std::int64_t heads_;
  double attention_dropout_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, intermediate_{nullptr};
  BertOutput attention_output_{nullptr}, output_{nullptr};
};
TORCH_MODULE(BertLayer);

class BertEncoderImpl : public torch::nn::Module {
 public:
  // Fresh weights as BERT's: normal with a deviation of 0.02, biases 0, LayerNorm 1 and 0.
  // `options` have passed check_bert_options.
  explicit BertEncoderImpl(const BertOptions& options);

  // Hidden states: int64 ids [n, t] and mask [n, t] (1: a token, 0: padding) to [n, t, width].
  // `segments` [n, t]: the token types; undefined: all 0. What stands at padded places has no
  // meaning. Throws std::invalid_argument for shapes that do not fit and for more tokens than
  // positions, c10::Error for ids outside of the vocabulary.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& mask,
                     const at::Tensor& segments = {});

  // The same without token types in two halves, back(front(ids, mask), mask). The front ends with
  // half of the layers. in_front: whose a parameter is.
  at::Tensor front(const at::Tensor& ids, const at::Tensor& mask);
  at::Tensor back(const at::Tensor& inner, const at::Tensor& mask);
  bool in_front(std::string_view name) const;

 private:
  at::Tensor run_layers(std::size_t from, std::size_t to, at::Tensor hidden,
                        const at::Tensor& mask);
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& segments);

  BertOptions options_;
  torch::nn::Embedding words_{nullptr}, positions_{nullptr}, types_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Dropout dropout_;
  std::vector<BertLayer> layers_;
};
TORCH_MODULE(BertEncoder);

// Sentences [n, width] from hidden states [n, t, width]: the average of the tokens that mask [n, t]
// keeps (an item without any gives 0).
at::Tensor mean_of_tokens(const at::Tensor& hidden, const at::Tensor& mask);

}  // namespace lockstep::runtime
