// c10d::Reducer's bookkeeping, for meta tensors (meta/meta_device.h): which bucket is full when,
// which parameters a backward leaves out, and in which order buckets are arranged after the first
// one. Bucket sizes are cut by c10d's own function. After LibTorch's reducer.cpp, and held against
// the Reducer itself by the tests: both must make the same calls.
#pragma once

#include <memory>
#include <vector>

#include "runtime/strategies/bucket_reducer.h"

namespace lockstep {

// As make_real_reducer. Errors: std::invalid_argument for static_graph and
// skip_all_reduce_unused_params, whose bookkeeping is not here.
std::unique_ptr<BucketReducer> make_meta_reducer(const Scenario::Strategy& options,
                                                 const NamedTensors& trained,
                                                 std::vector<std::vector<std::size_t>> buckets,
                                                 BucketLimits limits,
                                                 const ProcessGroups::Ptr& world, BucketHook hook);

}  // namespace lockstep
