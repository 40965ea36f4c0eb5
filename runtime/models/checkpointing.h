// Activation checkpointing: autograd keeps nothing of what a part of the model computes. When its
// backward first needs any of it, the part runs again (Chen et al., 2016, arXiv:1604.06174).
//
// Works as torch.utils.checkpoint(use_reentrant=False, set_checkpoint_early_stop(False)), which is
// Python: each tensor that autograd saves becomes a number, and the second run, under the same
// numbers, provides the tensors. So the graph of the first run stays, with its parameters and
// hooks, and gradients are those without checkpointing, bit by bit. The second run draws the same
// random numbers, under the same autocast, in the module's mode of the first run (Python's takes
// the mode of the moment). It makes the first run's calls again, such as all-gathers of
// parameters. It leaves buffers as they were: BatchNorm counts a batch once (Python's: twice).
#pragma once

#include <functional>
#include <memory>

#include <torch/csrc/api/include/torch/nn/module.h>

namespace lockstep::runtime {

// What `run` returns. `run` computes with `module`, may run again in a backward, and must then save
// as many tensors for autograd as the first time; otherwise that backward throws
// std::runtime_error. Keeps `module` and what `run` holds for as long as the graph lives. A plain
// call where no gradients are computed.
at::Tensor checkpointed(std::shared_ptr<torch::nn::Module> module, std::function<at::Tensor()> run);

// While it lives, checkpointed() is a plain call on this thread.
class NoCheckpointing {
 public:
  NoCheckpointing();
  ~NoCheckpointing();
  NoCheckpointing(const NoCheckpointing&) = delete;
  NoCheckpointing& operator=(const NoCheckpointing&) = delete;

 private:
  bool before_;
};

}  // namespace lockstep::runtime
