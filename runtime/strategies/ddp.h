// Ddp: LibTorch's c10d::Reducer, set up and driven as torch.nn.parallel.DistributedDataParallel
// does it. Parameters are verified and broadcast at the start. The first iteration uses one bucket
// (two size limits with find_unused_parameters); buckets are rebuilt after it. Buffers are
// broadcast from rank 0 before every forward (unless broadcast_buffers is off). While gradients
// accumulate, only the last backward reduces (unless no_sync is off).
//
// static_graph: the first iteration reduces nothing until its backward is over, and learns which
// parameters are used. From then on, what a rank did not use is reduced as zeros without a search.
// Where gradients accumulate under no_sync, the first backward raises an exception, as PyTorch's
// does (the Reducer's "expect_autograd_hooks_ INTERNAL ASSERT FAILED").
// skip_all_reduce_unused_params: a rank leaves out the buckets that it did not use.
//
// A communication hook does what the Reducer does without one (scale, all-reduce SUM), and records
// which parameters the bucket holds. Calls and numbers are the same as without the hook. With
// compression it does what fp16_compress_hook and bf16_compress_hook do: the scaled bucket is sent
// and summed in that type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/strategies/bucket_reducer.h"
#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {

class Ddp : public Strategy {
 public:
  Ddp(const Scenario::Strategy& options, StrategyParts parts);

  void start() override;
  // Throws c10::Error if the last backward did not reduce every bucket.
  void before_forward(Pass pass) override;
  void backward(const at::Tensor& loss, Pass pass) override;
  void synchronise() override {}

  // The hook: all-reduces one bucket; called by the Reducer during backward.
  c10::intrusive_ptr<c10::ivalue::Future> reduce(c10d::GradBucket& bucket);

 private:
  // The tensors of one broadcast_coalesced, and notes for the calls that it makes.
  struct Broadcast {
    std::vector<at::Tensor> values;
    std::vector<CallNote> notes;
  };
  Broadcast prepare_broadcast(const NamedTensors& tensors, const char* tag);
  void broadcast(const Broadcast& what);
  void make_reducer();
  bool reduces(Pass pass) const { return pass == Pass::last || !options_.no_sync; }
  const CallNote& bucket_note(const c10d::GradBucket& bucket);
  void wait_for_buckets();

  Scenario::Strategy options_;
  StrategyParts parts_;
  ProcessGroups::Ptr world_;
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
  std::unique_ptr<BucketReducer> reducer_;
  Broadcast buffers_;
  bool graph_is_known_ = false;  // static_graph: a backward has run
  bool buffers_are_due_ = true;  // false after a forward whose backward did not reduce
  CallNote rebuild_note_, used_parameters_note_;

  std::map<std::size_t, CallNote> bucket_notes_;  // by bucket; valid until buckets are rebuilt
  struct Launched {
    std::uint32_t call;
    c10::intrusive_ptr<c10d::Work> work;
    c10::intrusive_ptr<c10::ivalue::Future> future;
  };
  std::vector<Launched> launched_;  // buckets of this step, in order
};

}  // namespace lockstep::runtime
