#include "runtime/train/evaluation.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <ATen/ATen.h>

#include "runtime/record/c10d/value_watch.h"

namespace lockstep::runtime {
namespace {

// Items embedded at once: enough to use the device, little memory.
constexpr std::int64_t kBatch = 32;

struct Embedded {
  std::vector<at::Tensor> images;
  std::vector<std::vector<std::int64_t>> sentences;  // token ids of each image's caption
};

c10::Device tensor_device(ContrastiveModel& model) { return model->parameters().front().device(); }

Embedded embed(ContrastiveModel& model, const BatchSource& source, std::int64_t items) {
  Embedded out;
  for (std::int64_t from = 0; from < items; from += kBatch) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = from; i < std::min(from + kBatch, items); ++i) {
      // Held-out items come after those to train on.
      indices.push_back(source.items() + i);
    }
    const Batch batch = source.read(indices);
    if (!batch.has_image()) continue;
    const at::Tensor images = batch.images.slice(0, 0, batch.image_rows.size(0));
    out.images.push_back(model->embed_images(images.to(tensor_device(model))));
    const at::Tensor tokens = batch.tokens.index_select(0, batch.image_rows);
    for (std::int64_t row = 0; row < tokens.size(0); ++row) {
      const auto* first = tokens.const_data_ptr<std::int64_t>() + row * tokens.size(1);
      out.sentences.emplace_back(first, first + tokens.size(1));
    }
  }
  return out;
}

at::Tensor embed_sentences(ContrastiveModel& model, const std::vector<at::Tensor>& sentences) {
  const at::Tensor all = at::stack(sentences);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& some : all.split(kBatch)) {
    parts.push_back(model->embed_sentences(some.to(tensor_device(model))));
  }
  return at::cat(parts);
}

double share_within(const at::Tensor& ranks, std::int64_t first) {
  return (ranks < first).to(at::kDouble).mean().item<double>();
}

}  // namespace

Retrieval evaluate_retrieval(ContrastiveModel& model, const BatchSource& source, int items) {
  const at::NoGradGuard no_grad;
  model->eval();
  const Embedded embedded = embed(model, source, items);
  Retrieval result;
  result.items = static_cast<int>(embedded.sentences.size());
  if (result.items == 0) {
    model->train();
    return result;
  }
  // Equal captions count as one: an image that finds the caption of another image with the same
  // words has found its own.
  std::map<std::vector<std::int64_t>, std::int64_t> numbers;  // index of each distinct sentence
  std::vector<std::int64_t> right;
  std::vector<at::Tensor> sentences;
  for (const auto& tokens : embedded.sentences) {
    const auto [known, is_new] = numbers.emplace(tokens, static_cast<std::int64_t>(numbers.size()));
    if (is_new) sentences.push_back(at::tensor(tokens, at::kLong));
    right.push_back(known->second);
  }
  const at::Tensor similarity =
      at::matmul(at::cat(embedded.images), embed_sentences(model, sentences).t());
  model->train();
  for (const at::Tensor& images : embedded.images) {
    for (const at::Tensor& image : images.unbind()) {
      const std::vector<double> sketch = fingerprint_of(image, trace::kSketchValues).sketch;
      result.image_sketches.insert(result.image_sketches.end(), sketch.begin(), sketch.end());
    }
  }
  const at::Tensor own =
      similarity.gather(1, at::tensor(right, similarity.options().dtype(at::kLong)).unsqueeze(1));
  // How many sentences rank before the right one. Ties and NaN count against the model: one that
  // gives all sentences the same embedding has found nothing.
  const at::Tensor before = (similarity < own).logical_not().sum(1) - 1;
  result.recall_at_1 = share_within(before, 1);
  result.recall_at_5 = share_within(before, 5);
  result.recall_at_10 = share_within(before, 10);
  result.chance = 1.0 / static_cast<double>(sentences.size());
  return result;
}

}  // namespace lockstep::runtime
