#include "runtime/strategies/bucket_reducer.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "runtime/groups/collectives.h"
#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {
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
  // The Reducer logs to it unconditionally, and crashes without it.
  std::shared_ptr<c10d::Logger> logger_;
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

namespace {

using Buckets = std::vector<std::vector<std::size_t>>;

class MetaReducer final : public BucketReducer {
 public:
  MetaReducer(const Scenario::Strategy& options, const NamedTensors& trained, Buckets buckets,
              BucketLimits limits, ProcessGroups::Ptr world, BucketHook hook)
      : finds_unused_(options.find_unused_parameters),
        gradients_are_views_(options.gradient_as_bucket_view),
        limits_(limits),
        world_(std::move(world)),
        hook_(std::move(hook)) {
    for (const auto& [name, parameter] : trained) {
      const std::size_t index = trained_.size();
      trained_.push_back(parameter);
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameter));
      accumulators_.back()->add_post_hook(
          std::make_unique<AfterAccumulation>([this, index] { got_gradient(index); }));
    }
    use_buckets(std::move(buckets));
    if (finds_unused_) {
      const auto count = static_cast<std::int64_t>(trained_.size());
      used_ = at::zeros({count}, at::kInt);
      used_on_device_ = on_device(used_);
    }
  }

  void prepare_for_forward() override {}

  bool rebuild_buckets() override {
    // The Reducer's message, in its words, for a parameter that got no gradient and was not looked
    // for.
    TORCH_CHECK(!unfinished_,
                "Expected to have finished reduction in the prior iteration before starting a new "
                "one. This error indicates that your module has parameters that were not used in "
                "producing loss.");
    // Gradients arrive in about the reverse order of the forward pass; buckets in that order are
    // full earlier, so communication overlaps with more of the backward.
    if (!rebuilds_buckets() || order_.empty()) return false;
    std::vector<at::Tensor> arrived;
    for (const std::int64_t index : order_) arrived.push_back(trained_[to_index(index)]);
    const std::vector<std::size_t> limits = {static_cast<std::size_t>(limits_.first),
                                             static_cast<std::size_t>(limits_.other)};
    Buckets buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
        arrived, limits, std::vector<bool>(trained_.size(), false), order_));
    buckets = buckets_of_rank_0(buckets);
    rebuilt_ = true;
    use_buckets(std::move(buckets));
    return true;
  }

  void prepare_for_backward(const std::vector<at::Tensor>& outputs) override {
    reduces_ = true;
    next_ = 0;
    order_.clear();
    for (Bucket& bucket : buckets_) bucket.pending = bucket.members.size();
    unused_.clear();
    if (finds_unused_) find_unused(outputs);
    unused_are_marked_ = false;
  }

  void delay_all_reduce() override {}

 private:
  // A bucket keeps its memory until buckets are rebuilt, as in the Reducer.
  struct Bucket {
    std::vector<std::size_t> members;
    at::Tensor whole;
    std::size_t pending = 0;
  };

  static std::size_t to_index(std::int64_t index) { return static_cast<std::size_t>(index); }
  bool rebuilds_buckets() const { return !finds_unused_ && !rebuilt_; }

  // The device copy that the Reducer makes of a host tensor before it sends it. It counts as
  // memory.
  static at::Tensor on_device(const at::Tensor& numbers) {
    return at::empty(numbers.sizes(), numbers.options().device(at::kMeta));
  }

  void use_buckets(Buckets buckets) {
    buckets_.clear();
    bucket_of_.assign(trained_.size(), 0);
    for (std::vector<std::size_t>& members : buckets) {
      std::int64_t total = 0;
      for (const std::size_t index : members) {
        bucket_of_[index] = buckets_.size();
        total += trained_[index].numel();
      }
      const auto options = trained_[members.front()].options().requires_grad(false);
      buckets_.push_back({std::move(members), at::empty({total}, options), 0});
    }
  }

  // gradient_as_bucket_view: the gradient becomes a view into the bucket, and its own memory is
  // freed.
  void put_into_bucket(std::size_t index) {
    const Bucket& bucket = buckets_[bucket_of_[index]];
    std::int64_t offset = 0;
    for (const std::size_t member : bucket.members) {
      if (member == index) break;
      offset += trained_[member].numel();
    }
    at::Tensor& parameter = trained_[index];
    parameter.mutable_grad() =
        bucket.whole.narrow(0, offset, parameter.numel()).view(parameter.sizes());
  }

  // Two broadcasts, as the Reducer makes them: the parameter indices bucket by bucket, followed by
  // the number of buckets; then the sizes of the buckets. For [[2, 3], [0, 1]]: 2 3 0 1 2, then 2
  // 2.
  Buckets buckets_of_rank_0(const Buckets& own) {
    const auto numbers = [](const std::vector<int>& values) {
      return at::tensor(values, at::kInt);
    };
    const auto values = [](const at::Tensor& tensor) {
      const int* first = tensor.const_data_ptr<int>();
      return std::vector<int>(first, first + tensor.numel());
    };
    std::vector<int> indices, sizes;
    for (const std::vector<std::size_t>& bucket : own) {
      for (const std::size_t index : bucket) indices.push_back(static_cast<int>(index));
      sizes.push_back(static_cast<int>(bucket.size()));
    }
    indices.push_back(static_cast<int>(own.size()));
    // The Reducer keeps these tensors alive until both are sent, which shows in the memory count.
    std::vector<at::Tensor> kept;
    const auto send = [&](at::Tensor tensor) {
      kept.push_back(tensor);
      kept.push_back(on_device(tensor));
      std::vector<at::Tensor> tensors = {std::move(tensor)};
      world_->broadcast(tensors)->wait();
      return tensors.front();
    };
    indices = values(send(numbers(indices)));
    sizes.resize(static_cast<std::size_t>(indices.back()), sizes.back());
    sizes = values(send(numbers(sizes)));
    Buckets out;
    auto next = indices.begin();
    for (const int size : sizes) {
      out.emplace_back(next, next + size);
      next += size;
    }
    return out;
  }

  void find_unused(const std::vector<at::Tensor>& outputs) {
    // Walk the autograd graph from the loss. A parameter whose accumulator is not reached gets no
    // gradient in this backward.
    std::unordered_set<const torch::autograd::Node*> seen;
    std::vector<const torch::autograd::Node*> open;
    for (const at::Tensor& output : outputs) {
      if (output.grad_fn()) open.push_back(output.grad_fn().get());
    }
    while (!open.empty()) {
      const torch::autograd::Node* const node = open.back();
      open.pop_back();
      for (const torch::autograd::Edge& edge : node->next_edges()) {
        const torch::autograd::Node* const next = edge.function.get();
        if (next != nullptr && seen.insert(next).second) open.push_back(next);
      }
    }
    for (std::size_t i = 0; i < accumulators_.size(); ++i) {
      if (!seen.contains(accumulators_[i].get())) unused_.push_back(i);
    }
  }

  void got_gradient(std::size_t index) {
    if (!reduces_) return;
    // At the first gradient, mark the unused parameters as ready. So their buckets can be reduced
    // without waiting for a gradient that never comes.
    if (!std::exchange(unused_are_marked_, true)) {
      for (const std::size_t unused : unused_) is_ready(unused);
    }
    if (rebuilds_buckets()) order_.push_back(static_cast<std::int64_t>(index));
    if (gradients_are_views_) put_into_bucket(index);
    is_ready(index);
  }

  void is_ready(std::size_t index) {
    unfinished_ = true;
    --buckets_[bucket_of_[index]].pending;
    const std::size_t before = next_;
    // Buckets are reduced in their order, on every rank: bucket 1 waits for bucket 0, even if it is
    // full earlier. Otherwise ranks would match different buckets.
    for (; next_ < buckets_.size() && buckets_[next_].pending == 0; ++next_) reduce(next_);
    if (next_ != buckets_.size() || next_ == before) return;
    // After the last bucket: the map of used parameters is all-reduced, so that a rank keeps its
    // old gradient only where no rank used the parameter.
    if (finds_unused_) {
      std::vector<at::Tensor> used = {used_};
      used_map_ = world_->allreduce(used);
    }
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      reduces_ = false;
      unfinished_ = false;
      if (used_map_) std::exchange(used_map_, {})->wait();
    });
  }

  void reduce(std::size_t number) {
    const Bucket& bucket = buckets_[number];
    std::vector<at::Tensor> parameters;
    std::vector<std::size_t> offsets, lengths;
    std::vector<c10::IntArrayRef> sizes;
    std::size_t total = 0;
    for (const std::size_t index : bucket.members) {
      const at::Tensor& parameter = trained_[index];
      parameters.push_back(parameter);
      offsets.push_back(total);
      lengths.push_back(static_cast<std::size_t>(parameter.numel()));
      sizes.push_back(parameter.sizes());
      total += lengths.back();
    }
    c10d::GradBucket given(number, buckets_.size(), bucket.whole, std::move(offsets),
                           std::move(lengths), std::move(sizes), std::move(parameters),
                           std::nullopt);
    hook_(given);
  }

  const bool finds_unused_, gradients_are_views_;
  const BucketLimits limits_;
  const ProcessGroups::Ptr world_;
  const BucketHook hook_;
  std::vector<at::Tensor> trained_;
  using Accumulator =
      decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<Accumulator> accumulators_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // by parameter
  std::vector<std::int64_t> order_;     // parameters, in the order in which their gradients arrived
  std::vector<std::size_t> unused_;     // in this backward
  bool unused_are_marked_ = false;
  bool reduces_ = false;     // a backward that reduces is running
  bool unfinished_ = false;  // some bucket is not reduced yet
  bool rebuilt_ = false;
  std::size_t next_ = 0;  // the bucket to reduce next
  // Which parameters were used, in two copies as in the Reducer: the host's, which is filled, and
  // the device's, which is reduced.
  at::Tensor used_, used_on_device_;
  c10::intrusive_ptr<c10d::Work> used_map_;
};

}  // namespace

std::unique_ptr<BucketReducer> make_meta_reducer(const Scenario::Strategy& options,
                                                 const NamedTensors& trained, Buckets buckets,
                                                 BucketLimits limits,
                                                 const ProcessGroups::Ptr& world, BucketHook hook) {
  if (options.static_graph || options.skip_all_reduce_unused_params) {
    throw std::invalid_argument(
        "static_graph and skip_all_reduce_unused_params are not derived with meta tensors");
  }
  return std::make_unique<MetaReducer>(options, trained, std::move(buckets), limits, world,
                                       std::move(hook));
}

}  // namespace lockstep::runtime
