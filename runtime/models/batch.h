// Batch: items as tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::runtime {

// The weights of a batch's losses relative to other ranks' batches; 1 if all batches have as many
// texts and as many pairs.
struct LossWeights {
  double text = 1;   // of the language task
  double pairs = 1;  // of the losses over images and their sentences
};

struct Batch {
  std::vector<std::int64_t> indices;  // of the items: those with a text in order, then the others
  at::Tensor tokens;                  // int64 [texts, tokens], padded
  at::Tensor images;                  // float [images, 3, side, side]; undefined when there is none
  std::int64_t videos = 0;            // the last of `images` are frames of videos
  // int64 [pairs]: the row of `tokens` that belongs to each of the first images. Later images have
  // no text.
  at::Tensor image_rows;

  LossWeights weights;

  bool has_image() const { return images.defined(); }
  // How often the image encoder runs: apart for pictures and for frames.
  int tower_runs() const;
  void drop_images() {
    images.reset();
    image_rows.reset();
    videos = 0;
  }
  // The union over the items, as the trace names them.
  std::vector<std::string> modalities() const;
};

// The sizes of a model's input.

struct InputSpec {
  std::int64_t side = 0;        // pixels of a (square) picture
  std::int64_t vocabulary = 0;  // token ids are below it
  std::int64_t max_tokens = 0;  // of a sentence, including its first and last special token
  std::int64_t pad = 0;         // fills rows after the end token
  std::int64_t end = 0;         // the last token of each sentence
  std::int64_t mask = 0;        // replaces a word that is to be predicted
};

}  // namespace lockstep::runtime
