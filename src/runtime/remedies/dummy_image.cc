#include "runtime/remedies/dummy_image.h"

#include <ATen/ATen.h>

namespace lockstep {

at::Tensor dummy_image_term(ContrastiveModel& model) {
  ImageEncoder& encoder = model->image_encoder();
  const bool training = encoder->is_training();
  encoder->eval();
  const at::Tensor blank = at::zeros({1, kImageChannels, kImageSide, kImageSide});
  const at::Tensor features = model->project_images(blank);
  encoder->train(training);
  return 0 * (features.sum() + model->logit_scale().sum());
}

}  // namespace lockstep
