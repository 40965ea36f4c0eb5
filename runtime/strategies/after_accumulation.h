// A hook behind the accumulation of a parameter's gradient.
#pragma once

#include <functional>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>

namespace lockstep {

class AfterAccumulation : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterAccumulation(std::function<void()> then) : then_(std::move(then)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    then_();
    return outputs;
  }

 private:
  std::function<void()> then_;
};

}  // namespace lockstep
