#include "runtime/models/checkpointing.h"

#include <mutex>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "runtime/device/counted_memory.h"

namespace lockstep::runtime {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

// The random numbers that the two runs draw: of the host, and of the module's device.
class RandomState {
 public:
  static RandomState now(c10::DeviceType device) {
    RandomState out;
    out.add(c10::DeviceType::CPU);
    if (device == c10::DeviceType::CUDA) out.add(device);
    return out;
  }
  void restore() const {
    for (auto [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  void add(c10::DeviceType device) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

c10::DeviceType device_type(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? c10::DeviceType::CPU : parameters.front().device().type();
}

// A part of the model that runs once in forward, and again in backward.
class CheckpointedRegion : public std::enable_shared_from_this<CheckpointedRegion> {
 public:
  CheckpointedRegion(std::shared_ptr<torch::nn::Module> module, std::function<at::Tensor()> run)
      : module_(std::move(module)),
        run_(std::move(run)),
        training_(module_->is_training()),
        random_(RandomState::now(device_type(*module_))) {}

  at::Tensor first_run() { return run(); }

  // Autograd saves the next tensor: returns its number.
  std::size_t save(const at::Tensor& tensor) {
    if (!again_) return saved_++;
    // Detached: it would hold the second run's graph, which holds this region.
    kept_.push_back(tensor.detach());
    return kept_.size() - 1;
  }

  at::Tensor saved(std::size_t number) {
    if (number >= kept_.size() || !kept_[number].defined()) run_again();
    // Each is needed once, and its memory then no longer.
    return std::exchange(kept_[number], {});
  }

  // The region that this thread runs; null outside of regions.
  static thread_local CheckpointedRegion* running;

 private:
  at::Tensor run() {
    CheckpointedRegion* const around = std::exchange(running, this);
    try {
      at::Tensor out = run_();
      running = around;
      return out;
    } catch (...) {
      running = around;
      throw;
    }
  }

  void run_again() {
    const RandomState random_now = RandomState::now(device_type(*module_));
    const bool training_now = module_->is_training();
    std::vector<std::pair<at::Tensor, at::Tensor>> buffers;  // and their values
    for (const at::Tensor& buffer : module_->buffers()) {
      buffers.emplace_back(buffer, buffer.detach().clone());
    }
    kept_.clear();
    again_ = true;
    random_.restore();
    if (training_now != training_) module_->train(training_);
    {
      const at::ThreadLocalStateGuard as_in_forward(thread_);
      const MemoryScope forward(MemoryPhase::forward);
      run();
    }
    // Autocast keeps its casts until it ends. It ended with the forward.
    at::autocast::clear_cache();
    if (training_now != training_) module_->train(training_now);
    random_now.restore();
    // The batch counts once. Not through the tensor itself: autograd would take that for a change
    // of what the first run saved.
    for (const auto& [buffer, value] : buffers) buffer.variable_data().copy_(value);
    if (kept_.size() != saved_) {
      std::ostringstream text;
      text << "activation checkpointing: " << module_->name() << " saved " << saved_
           << " tensors in forward and " << kept_.size()
           << " when it ran again in backward: both must do the same";
      throw std::runtime_error(text.str());
    }
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::function<at::Tensor()> run_;
  bool training_;
  RandomState random_;
  at::ThreadLocalState thread_;   // gradients on, autocast
  std::size_t saved_ = 0;         // tensors of the first run
  std::vector<at::Tensor> kept_;  // of the second
  bool again_ = false;
};

thread_local CheckpointedRegion* CheckpointedRegion::running = nullptr;

class SavedInRegion final : public SavedVariableHooks {
 public:
  explicit SavedInRegion(std::shared_ptr<CheckpointedRegion> region) : region_(std::move(region)) {}
  void call_pack_hook(const at::Tensor& tensor) override { number_ = region_->save(tensor); }
  at::Tensor call_unpack_hook() override { return region_->saved(number_); }

 private:
  std::shared_ptr<CheckpointedRegion> region_;
  std::size_t number_ = 0;
};

// Autograd asks its engine for hooks of what it saves. PyTorch's Python has an engine of its own
// for that, too.
class CheckpointingEngine final : public Engine {
 public:
  ~CheckpointingEngine() override { stop(); }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    CheckpointedRegion* const region = CheckpointedRegion::running;
    if (region == nullptr) return nullptr;
    return std::make_unique<SavedInRegion>(region->shared_from_this());
  }
  static Engine& get() {
    // Never destroyed, as LibTorch's own: threads may still wait in it.
    static auto* const engine = new CheckpointingEngine;
    return *engine;
  }
};

thread_local bool checkpointing_off = false;

}  // namespace

at::Tensor checkpointed(std::shared_ptr<torch::nn::Module> module,
                        std::function<at::Tensor()> run) {
  if (checkpointing_off || !at::GradMode::is_enabled()) return run();
  static const bool installed = [] {
    torch::autograd::set_default_engine_stub(&CheckpointingEngine::get);
    return true;
  }();
  static_cast<void>(installed);
  return std::make_shared<CheckpointedRegion>(std::move(module), std::move(run))->first_run();
}

NoCheckpointing::NoCheckpointing() : before_(std::exchange(checkpointing_off, true)) {}
NoCheckpointing::~NoCheckpointing() { checkpointing_off = before_; }

}  // namespace lockstep::runtime
