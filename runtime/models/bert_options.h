// The sizes of a BERT encoder, and reading them from Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::runtime {

struct BertOptions {
  std::int64_t layers = 12;
  std::int64_t width = 768;  // of the hidden states
  std::int64_t heads = 12;
  std::int64_t feed_forward = 3072;
  std::int64_t vocabulary = 30522;
  std::int64_t positions = 512;    // the most tokens in an item
  std::int64_t segments = 2;       // token types
  double norm_epsilon = 1e-12;     // LayerNorm's
  double dropout = 0.1;            // of hidden states, in training
  double attention_dropout = 0.1;  // of attention weights, in training

  // As published: Devlin et al., arXiv:1810.04805; 109.5 million parameters.
  static BertOptions bert_base();
  // 2.1 million parameters, nearly all of them word embeddings: 2 layers, 64 wide, 128 positions.
  static BertOptions bert_tiny();
  // all-MiniLM-L6-v2: 6 layers, 384 wide, 22.7 million parameters.
  static BertOptions minilm();
};

// The number of parameters of an encoder, without its biases, LayerNorms and pooler, which are few.
double weights_in(const BertOptions& options);

// Errors: sizes that make no encoder, more than a thousand layers, more than 100 billion
// parameters.
Status check_bert_options(const BertOptions& options);

// Reads the text of a config.json. Keys that it lacks are BERT-base's, which is Hugging Face's
// rule too. Errors, without a location: not a JSON object, a value of the wrong kind, an
// architecture that is not BERT's (model_type, hidden_act other than "gelu", relative positions, a
// decoder).
Result<BertOptions> parse_bert_config(std::string_view json);
// The same from a file. Errors: also what cannot be read.
Result<BertOptions> load_bert_config(const std::string& path);

}  // namespace lockstep::runtime
