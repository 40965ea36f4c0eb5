// ModelBlock: a part of a model that runs as a whole and can be observed, so that a strategy can
// gather its parameters just before it runs and release them afterwards.
//
// A model derives its building blocks (a residual block, a transformer layer) from ModelBlock and
// runs them through run_block(). Without an observer and without checkpointing that is a plain
// call.
#pragma once

#include <torch/csrc/api/include/torch/nn/module.h>

#include "runtime/models/checkpointing.h"

namespace lockstep::runtime {

class ModelBlock;

// Called on the thread that runs the model, for every run of a block that is observed.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  // The block is about to run: its parameters are needed now.
  virtual void before_block(ModelBlock& block) = 0;
  // It has run, with this output.
  virtual void after_block(ModelBlock& block, const at::Tensor& output) = 0;
};

class ModelBlock : public torch::nn::Module {
 public:
  // `observer` must live until it is replaced; null: none. A block has at most one observer.
  void observe(BlockObserver* observer) { observer_ = observer; }
  BlockObserver* observer() const { return observer_; }

  // Keeps no activations: the block runs again in backward (checkpointing.h), unobserved.
  void checkpoint() { checkpointed_ = true; }
  bool is_checkpointed() const { return checkpointed_; }

 private:
  BlockObserver* observer_ = nullptr;
  bool checkpointed_ = false;
};

// `block` is a module holder (TORCH_MODULE) whose implementation derives from ModelBlock.
template <class Holder, class... Inputs>
at::Tensor run_block(Holder& block, const Inputs&... inputs) {
  const auto run = [&] {
    if (!block->is_checkpointed()) return block(inputs...);
    return checkpointed(block.ptr(), [block, inputs...]() mutable { return block(inputs...); });
  };
  BlockObserver* observer = block->observer();
  if (observer == nullptr) return run();
  observer->before_block(*block);
  const at::Tensor output = run();
  observer->after_block(*block, output);
  return output;
}

}  // namespace lockstep::runtime
