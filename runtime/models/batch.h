// Batch: items as tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::runtime {

// What the losses of a batch count beside those of the other ranks' batches; 1 where all ranks'
// batches are alike.
struct LossWeights {
  double text = 1;   // of the language task
  double pairs = 1;  // of the losses over images and their sentences
};

struct Batch {
  std::vector<std::int64_t> indices;  // of the items: those with a text in order, then the others
  at::Tensor tokens;                  // int64 [texts, tokens], padded
  at::Tensor images;                  // float [images, 3, side, side]; undefined when there is none
  // int64 [pairs]: which row of `tokens` each of the first images belongs to. Those behind them
  // have no text.
  at::Tensor image_rows;

  LossWeights weights;

  bool has_image() const { return images.defined(); }
  void drop_images() {
    images.reset();
    image_rows.reset();
  }
  // The union over the items, as the trace names them.
  std::vector<std::string> modalities() const;
};

// What goes into a model: the size of its pictures, and its sentences' tokens.

struct InputSpec {
  std::int64_t side = 0;        // pixels of a (square) picture
  std::int64_t vocabulary = 0;  // token ids are below it
  std::int64_t max_tokens = 0;  // of a sentence, with its first and last special token
  std::int64_t pad = 0;         // behind the end
  std::int64_t end = 0;         // the last token of each sentence
  std::int64_t mask = 0;        // stands for a word that is to be guessed
};

}  // namespace lockstep::runtime
