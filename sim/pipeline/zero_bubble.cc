// The schedules that split the backward pass: what only the weights' gradients need can wait, and
// fills the gaps in which a stage has nothing else to do.
#include <algorithm>

#include "sim/pipeline/schedule_orders.h"

namespace lockstep::sim {
namespace {

// After `warm_up` forwards: backward, weight part, forward in turn; the weight parts come
// `put_off` micro-batches after their backward.
StageOrder hand_crafted(PipelineShape shape, std::int32_t warm_up, std::int32_t put_off) {
  const std::int32_t m = shape.micro_batches;
  StageOrder order;
  order.reserve(3 * static_cast<std::size_t>(m));
  std::int32_t forwards = 0;
  std::int32_t weights = 0;
  while (forwards < std::min(warm_up, m)) order.push_back({Work::forward, forwards++, 0});
  for (std::int32_t i = 0; i < m; ++i) {
    order.push_back({Work::backward, i, 0});
    if (i >= put_off) order.push_back({Work::weight, weights++, 0});
    if (forwards < m) order.push_back({Work::forward, forwards++, 0});
  }
  while (weights < m) order.push_back({Work::weight, weights++, 0});
  return order;
}

// Counts what of each kind a stage has done, for ZB-V's two chunks.
class VeeOrder {
 public:
  explicit VeeOrder(std::int32_t micro_batches) : micro_batches_(micro_batches) {
    order_.reserve(6 * static_cast<std::size_t>(micro_batches));
  }
  void forward(std::int32_t chunk) { add(Work::forward, chunk, forwards[chunk]++); }
  void backward(std::int32_t chunk) { add(Work::backward, chunk, backwards[chunk]++); }
  void weight(std::int32_t chunk) { add(Work::weight, chunk, weights[chunk]++); }
  StageOrder take() { return std::move(order_); }

  std::int32_t forwards[2] = {0, 0}, backwards[2] = {0, 0}, weights[2] = {0, 0};

 private:
  // The pattern is that of at least 2p - 1 micro-batches; of those that are not there nothing runs.
  void add(Work work, std::int32_t chunk, std::int32_t micro_batch) {
    if (micro_batch < micro_batches_) order_.push_back({work, micro_batch, chunk});
  }

  std::int32_t micro_batches_;
  StageOrder order_;
};

}  // namespace

StageOrder zb_h1_order(PipelineShape shape, std::int32_t stage) {
  return hand_crafted(shape, shape.stages - stage, stage);
}

StageOrder zb_h2_order(PipelineShape shape, std::int32_t stage) {
  return hand_crafted(shape, 2 * (shape.stages - stage) - 1, 2 * stage);
}

StageOrder zbv_order(PipelineShape shape, std::int32_t stage) {
  const std::int32_t p = shape.stages;
  const std::int32_t m = std::max(2 * p - 1, shape.micro_batches);
  VeeOrder order(shape.micro_batches);
  for (std::int32_t i = 0; i < 2 * (p - stage) - 1; ++i) order.forward(0);
  for (std::int32_t i = 0; i < stage; ++i) {
    order.forward(1);
    order.forward(0);
  }
  for (std::int32_t i = 0; i < p - stage; ++i) {
    order.forward(1);
    order.backward(1);
    order.weight(1);
  }
  while (order.forwards[1] < order.forwards[0] || order.forwards[0] < m) {
    if (order.forwards[0] < m) order.forward(0);
    order.backward(0);
    order.weight(0);
    order.forward(1);
    order.backward(1);
    order.weight(1);
  }
  for (std::int32_t i = 0; i < stage; ++i) {
    order.backward(0);
    order.backward(1);
  }
  for (std::int32_t i = 0; i < p - stage; ++i) {
    order.backward(0);
    order.weight(0);
  }
  while (order.weights[1] < order.backwards[1]) order.weight(1);
  while (order.weights[0] < order.backwards[0]) order.weight(0);
  return order.take();
}

}  // namespace lockstep::sim
