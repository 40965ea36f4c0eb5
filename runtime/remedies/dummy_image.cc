#include "runtime/remedies/dummy_image.h"

#include <ATen/ATen.h>

#include "runtime/data/shapes.h"

namespace lockstep {

at::Tensor dummy_image_term(ContrastiveModel& model, DummyBatchNorm batch_norm) {
  const auto encoder = model->image_tower().module;
  const bool training = encoder->is_training();
  const bool learns = batch_norm == DummyBatchNorm::learns;
  if (!learns) encoder->eval();
  const std::int64_t side = learns ? model->input().side : 1;
  const auto where = model->parameters().front().device();
  const at::Tensor path = model->image_path(at::zeros({1, kImageChannels, side, side}, where));
  encoder->train(training);
  // 0 times infinity is not 0: what is not finite is replaced before the product.
  return 0 * at::nan_to_num(path, 0.0, 0.0, 0.0);
}

}  // namespace lockstep
