#include "runtime/evaluate.h"

#include <map>

#include <ATen/ATen.h>

#include "runtime/data/batch.h"

namespace lockstep {

Retrieval evaluate_retrieval(ContrastiveModel& model, const ShapesDataset& data, int items) {
  std::vector<std::int64_t> pictures;
  std::vector<std::int64_t> captioned;             // one item for each distinct caption
  std::map<std::string, std::int64_t> caption_of;  // caption to its place in `captioned`
  std::vector<std::int64_t> right;
  for (std::int64_t i = 0; i < items; ++i) {
    const Item item = data.item(data.size() + i);
    const auto [known, is_new] =
        caption_of.emplace(caption(item.picture), static_cast<std::int64_t>(captioned.size()));
    if (is_new) captioned.push_back(item.index);
    pictures.push_back(item.index);
    right.push_back(known->second);
  }

  const at::NoGradGuard no_grad;
  model->eval();
  const at::Tensor images = model->embed_images(make_batch(data, pictures, nullptr).images);
  const at::Tensor sentences = model->embed_sentences(make_batch(data, captioned, nullptr).tokens);
  model->train();
  const at::Tensor best = at::matmul(images, sentences.t()).argmax(1);
  const auto hits = (best == at::tensor(right, at::kLong)).sum().item<std::int64_t>();

  Retrieval result;
  result.items = items;
  result.top1 = static_cast<double>(hits) / items;
  result.chance = 1.0 / static_cast<double>(captioned.size());
  return result;
}

}  // namespace lockstep
