// BucketReducer: what DistributedDataParallel asks of its c10d::Reducer, which gathers gradients in
// buckets and gives each to a hook as soon as it is full. Of meta tensors, which the Reducer does
// not take, its bookkeeping alone.
#pragma once

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

// Limits of the sizes of buckets, in bytes.
struct BucketLimits {
  std::int64_t first = 0;  // of the first
  std::int64_t other = 0;
};

class BucketReducer {
 public:
  virtual ~BucketReducer() = default;

  virtual void prepare_for_forward() = 0;
  // Whether buckets were arranged anew, in the order in which gradients came: rank 0's, which it
  // broadcasts. Once, after the first backward. Throws c10::Error where a backward that was to
  // reduce left a bucket without.
  virtual bool rebuild_buckets() = 0;
  // `outputs`: where to look for parameters that this backward does not use.
  virtual void prepare_for_backward(const std::vector<at::Tensor>& outputs) = 0;
  // With static_graph: at the end of the first backward, which reduces nothing before.
  virtual void delay_all_reduce() = 0;
};

// `trained`: the parameters, in the model's order; `buckets`: which of them (by place) go together
// at first.
std::unique_ptr<BucketReducer> make_real_reducer(const Scenario::Strategy& options,
                                                 const NamedTensors& trained,
                                                 std::vector<std::vector<std::size_t>> buckets,
                                                 BucketLimits limits,
                                                 const ProcessGroups::Ptr& world, BucketHook hook);

// c10d::Reducer's bookkeeping, for meta tensors (runtime/derive/torch/meta_tensors.h): which bucket
// is full when, which parameters a backward leaves out, and in which order buckets are arranged
// after the first one. Bucket sizes are cut by c10d's own function. After LibTorch's reducer.cpp,
// and held against the Reducer itself by the tests: both must make the same calls.

// As make_real_reducer. Errors: std::invalid_argument for static_graph and
// skip_all_reduce_unused_params, whose bookkeeping is not here.
std::unique_ptr<BucketReducer> make_meta_reducer(const Scenario::Strategy& options,
                                                 const NamedTensors& trained,
                                                 std::vector<std::vector<std::size_t>> buckets,
                                                 BucketLimits limits,
                                                 const ProcessGroups::Ptr& world, BucketHook hook);

}  // namespace lockstep::runtime
