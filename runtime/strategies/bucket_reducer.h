// BucketReducer: the part of c10d::Reducer that DistributedDataParallel uses. It collects gradients
// in buckets and passes each full bucket to a hook. For meta tensors, which the Reducer does not
// take, there is an implementation of its bookkeeping only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/comm.hpp>

#include "runtime/groups/process_groups.h"
#include "runtime/job/scenario.h"
#include "runtime/models/parameters.h"

namespace lockstep::runtime {

// All-reduces a bucket.
using BucketHook = std::function<c10::intrusive_ptr<c10::ivalue::Future>(c10d::GradBucket& bucket)>;

// Size limits of buckets, in bytes.
struct BucketLimits {
  std::int64_t first = 0;  // of the first bucket
  std::int64_t other = 0;
};

class BucketReducer {
 public:
  virtual ~BucketReducer() = default;

  virtual void prepare_for_forward() = 0;
  // Rebuilds the buckets in the order in which gradients arrived on rank 0, which broadcasts it.
  // Happens once, after the first backward; returns whether it happened now. Throws c10::Error if a
  // backward that should have reduced left a bucket unreduced.
  virtual bool rebuild_buckets() = 0;
  // `outputs`: the roots of the search for parameters that this backward does not use.
  virtual void prepare_for_backward(const std::vector<at::Tensor>& outputs) = 0;
  // With static_graph: called at the end of the first backward, which reduces nothing before that.
  virtual void delay_all_reduce() = 0;
};

// `trained`: the parameters in the model's order. `buckets`: the first assignment, as indices in
// `trained`.
std::unique_ptr<BucketReducer> make_real_reducer(const Scenario::Strategy& options,
                                                 const NamedTensors& trained,
                                                 std::vector<std::vector<std::size_t>> buckets,
                                                 BucketLimits limits,
                                                 const ProcessGroups::Ptr& world, BucketHook hook);

// The bookkeeping of c10d::Reducer for meta tensors (runtime/derive/torch/meta_tensors.h): when a
// bucket is full, which parameters a backward leaves out, and the order of the buckets after the
// first backward. c10d's own function assigns parameters to buckets. The rest follows LibTorch's
// reducer.cpp; the tests check that both make the same calls.

// Like make_real_reducer. Throws std::invalid_argument for static_graph and
// skip_all_reduce_unused_params, which are not implemented here.
std::unique_ptr<BucketReducer> make_meta_reducer(const Scenario::Strategy& options,
                                                 const NamedTensors& trained,
                                                 std::vector<std::vector<std::size_t>> buckets,
                                                 BucketLimits limits,
                                                 const ProcessGroups::Ptr& world, BucketHook hook);

}  // namespace lockstep::runtime
