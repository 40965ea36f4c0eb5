#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "runtime/strategies/bucket_reducer.h"

namespace lockstep {
namespace {

class Hook : public c10d::CppCommHookInterface<BucketHook> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return state_(bucket);
  }
};

class RealReducer final : public BucketReducer {
 public:
  RealReducer(const Scenario::Strategy& options, const NamedTensors& named,
              std::vector<std::vector<std::size_t>> buckets, BucketLimits limits,
              const ProcessGroups::Ptr& world, BucketHook hook) {
    std::vector<at::Tensor> trained;
    std::unordered_map<std::size_t, std::string> names;
    for (const auto& [name, parameter] : named) {
      names.emplace(trained.size(), name);
      trained.push_back(parameter);
    }
    const std::vector<bool> not_sparse(trained.size(), false);
    reducer_ = std::make_shared<c10d::Reducer>(
        trained, std::move(buckets), world, not_sparse, limits.other,
        options.find_unused_parameters, options.gradient_as_bucket_view, std::move(names),
        limits.first, options.skip_all_reduce_unused_params, /*use_python_reducer=*/false,
        std::vector<std::int64_t>{});
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    if (options.static_graph) {
      reducer_->set_static_graph();
      logger_->set_static_graph();
    }
    reducer_->register_comm_hook(std::make_unique<Hook>(std::move(hook)));
  }

  void prepare_for_forward() override { reducer_->prepare_for_forward(); }
  bool rebuild_buckets() override { return reducer_->rebuild_buckets(); }
  void prepare_for_backward(const std::vector<at::Tensor>& outputs) override {
    reducer_->prepare_for_backward(outputs);
  }
  void delay_all_reduce() override { reducer_->delay_all_reduce(); }

 private:
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // the Reducer reports to it, and crashes without
};

}  // namespace

std::unique_ptr<BucketReducer> make_real_reducer(const Scenario::Strategy& options,
                                                 const NamedTensors& trained,
                                                 std::vector<std::vector<std::size_t>> buckets,
                                                 BucketLimits limits,
                                                 const ProcessGroups::Ptr& world, BucketHook hook) {
  return std::make_unique<RealReducer>(options, trained, std::move(buckets), limits, world,
                                       std::move(hook));
}

}  // namespace lockstep
