#include "runtime/models/bert.h"

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/models/attention.h"

namespace lockstep::runtime {
namespace {

// A module that only gives its children a name, as Hugging Face's nesting wants it.
using Folder = torch::nn::Module;

Folder& folder(Folder& in, const std::string& name) {
  return *in.register_module(name, std::make_shared<Folder>(name));
}

torch::nn::LayerNorm bert_layer_norm(const BertOptions& options) {
  return torch::nn::LayerNorm(
      torch::nn::LayerNormOptions({options.width}).eps(options.norm_epsilon));
}

void start_weights(torch::nn::Module& model) {
  constexpr double kDeviation = 0.02;
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.named_parameters()) {
    if (parameter.value().dim() > 1) {
      parameter.value().normal_(0, kDeviation);
    } else if (parameter.key().ends_with(".bias")) {
      parameter.value().zero_();
    }
  }
}

void require_tokens(const at::Tensor& ids, const at::Tensor& mask, const at::Tensor& segments,
                    std::int64_t positions) {
  std::ostringstream text;
  if (ids.dim() != 2) {
    text << "the text encoder takes token ids [n, t] and got " << ids.sizes();
  } else if (mask.sizes() != ids.sizes()) {
    text << "the text encoder got token ids " << ids.sizes() << " with a mask " << mask.sizes();
    if (mask.dim() == 2 && mask.size(0) == ids.size(1) && mask.size(1) == ids.size(0)) {
      text << ": batch and sequence are swapped in one of them; transpose it";
    }
  } else if (segments.defined() && segments.sizes() != ids.sizes()) {
    text << "the text encoder got token ids " << ids.sizes() << " with token types "
         << segments.sizes();
  } else if (ids.size(1) > positions) {
    text << "the text encoder has " << positions << " positions and got " << ids.size(1)
         << " tokens: cut the text, or choose a model with more positions";
  } else {
    return;
  }
  throw std::invalid_argument(text.str());
}

}  // namespace

BertOutputImpl::BertOutputImpl(std::int64_t in, const BertOptions& options)
    : dense_(register_module("dense", torch::nn::Linear(in, options.width))),
      norm_(register_module("LayerNorm", bert_layer_norm(options))),
      dropout_(register_module("dropout", torch::nn::Dropout(options.dropout))) {}

at::Tensor BertOutputImpl::forward(const at::Tensor& x, const at::Tensor& around) {
  return norm_(dropout_(dense_(x)) + around);
}

BertLayerImpl::BertLayerImpl(const BertOptions& options)
    : heads_(options.heads), attention_dropout_(options.attention_dropout) {
  const auto linear = [&options] { return torch::nn::Linear(options.width, options.width); };
  Folder& attention = folder(*this, "attention");
  Folder& self = folder(attention, "self");
  query_ = self.register_module("query", linear());
  key_ = self.register_module("key", linear());
  value_ = self.register_module("value", linear());
  attention_output_ = attention.register_module("output", BertOutput(options.width, options));
  intermediate_ =
      folder(*this, "intermediate")
          .register_module("dense", torch::nn::Linear(options.width, options.feed_forward));
  output_ = register_module("output", BertOutput(options.feed_forward, options));
}

at::Tensor BertLayerImpl::forward(const at::Tensor& hidden, const at::Tensor& mask) {
  const double dropout = is_training() ? attention_dropout_ : 0.0;
  const at::Tensor seen =
      attend(query_(hidden), key_(hidden), value_(hidden), heads_, mask, dropout);
  const at::Tensor attended = attention_output_(seen, hidden);
  return output_(at::gelu(intermediate_(attended)), attended);
}

BertEncoderImpl::BertEncoderImpl(const BertOptions& options) : options_(options) {
  const Status sound = check_bert_options(options);
  LOCKSTEP_CHECK(static_cast<bool>(sound), "options that passed check_bert_options");
  Folder& embeddings = folder(*this, "embeddings");
  const auto embedding = [&](const char* name, std::int64_t rows) {
    return embeddings.register_module(name, torch::nn::Embedding(rows, options.width));
  };
  words_ = embedding("word_embeddings", options.vocabulary);
  positions_ = embedding("position_embeddings", options.positions);
  types_ = embedding("token_type_embeddings", options.segments);
  norm_ = embeddings.register_module("LayerNorm", bert_layer_norm(options));
  dropout_ = embeddings.register_module("dropout", torch::nn::Dropout(options.dropout));
  Folder& layers = folder(folder(*this, "encoder"), "layer");
  for (std::int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(layers.register_module(std::to_string(i), BertLayer(options)));
  }
  // The published model has it, and its files must load; nothing here computes with it.
  folder(*this, "pooler").register_module("dense", torch::nn::Linear(options.width, options.width));
  start_weights(*this);
}

at::Tensor BertEncoderImpl::embed(const at::Tensor& ids, const at::Tensor& segments) {
  const at::Tensor token_positions = at::arange(ids.size(1), ids.options());
  const at::Tensor types = segments.defined() ? segments : at::zeros_like(ids);
  return dropout_(norm_(words_(ids) + types_(types) + positions_(token_positions)));
}

at::Tensor BertEncoderImpl::forward(const at::Tensor& ids, const at::Tensor& mask,
                                    const at::Tensor& segments) {
  require_tokens(ids, mask, segments, options_.positions);
  return run_layers(0, layers_.size(), embed(ids, segments), mask);
}

at::Tensor BertEncoderImpl::run_layers(std::size_t from, std::size_t to, at::Tensor hidden,
                                       const at::Tensor& mask) {
  for (std::size_t i = from; i < to; ++i) hidden = run_block(layers_[i], hidden, mask);
  return hidden;
}

at::Tensor BertEncoderImpl::front(const at::Tensor& ids, const at::Tensor& mask) {
  require_tokens(ids, mask, {}, options_.positions);
  return run_layers(0, layers_.size() / 2, embed(ids, {}), mask);
}

at::Tensor BertEncoderImpl::back(const at::Tensor& inner, const at::Tensor& mask) {
  return run_layers(layers_.size() / 2, layers_.size(), inner, mask);
}

bool BertEncoderImpl::in_front(std::string_view name) const {
  if (name.starts_with("embeddings.")) return true;
  for (std::size_t i = 0; i < layers_.size() / 2; ++i) {
    if (name.starts_with(c10::str("encoder.layer.", i, "."))) return true;
  }
  return false;
}

at::Tensor mean_of_tokens(const at::Tensor& hidden, const at::Tensor& mask) {
  const at::Tensor kept = mask.ne(0).unsqueeze(2).to(hidden.scalar_type());
  return (hidden * kept).sum(1) / kept.sum(1).clamp_min(1);
}

}  // namespace lockstep::runtime
