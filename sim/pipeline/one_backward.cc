// The schedules whose backward pass is one piece: GPipe, 1F1B, interleaved 1F1B.
#include <algorithm>

#include "sim/pipeline/schedule_orders.h"

namespace lockstep::sim {
namespace {

// One forward and one backward in turn, after `warm_up` forwards; `total` of each. `forward(i)` and
// `backward(i)` give the i-th task of its kind.
template <class Forward, class Backward>
StageOrder alternate(std::int32_t warm_up, std::int32_t total, Forward forward, Backward backward) {
  StageOrder order;
  order.reserve(2 * static_cast<std::size_t>(total));
  warm_up = std::min(warm_up, total);
  for (std::int32_t i = 0; i < warm_up; ++i) order.push_back(forward(i));
  for (std::int32_t i = warm_up; i < total; ++i) {
    order.push_back(forward(i));
    order.push_back(backward(i - warm_up));
  }
  for (std::int32_t i = total - warm_up; i < total; ++i) order.push_back(backward(i));
  return order;
}

}  // namespace

StageOrder gpipe_order(PipelineShape shape) {
  StageOrder order;
  order.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
  for (std::int32_t i = 0; i < shape.micro_batches; ++i) order.push_back({Work::forward, i, 0});
  for (std::int32_t i = 0; i < shape.micro_batches; ++i) order.push_back({Work::backward, i, 0});
  return order;
}

StageOrder one_f_one_b_order(PipelineShape shape, std::int32_t stage) {
  return alternate(
      shape.stages - 1 - stage, shape.micro_batches,
      [](std::int32_t i) {
        return PipelineTask{Work::forward, i, 0};
      },
      [](std::int32_t i) {
        return PipelineTask{Work::backward, i, 0};
      });
}

StageOrder interleaved_order(PipelineShape shape, std::int32_t stage) {
  const std::int32_t p = shape.stages;
  const std::int32_t v = shape.chunks;
  const auto task = [p, v](Work work, std::int32_t i) {
    const std::int32_t turn = i / p % v;
    const std::int32_t micro_batch = i / (p * v) * p + i % p;
    return PipelineTask{work, micro_batch, work == Work::forward ? turn : v - 1 - turn};
  };
  const std::int32_t warm_up = 2 * (p - 1 - stage) + (v - 1) * p;
  return alternate(
      warm_up, shape.micro_batches * v, [&](std::int32_t i) { return task(Work::forward, i); },
      [&](std::int32_t i) { return task(Work::backward, i); });
}

}  // namespace lockstep::sim
