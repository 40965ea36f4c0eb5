// CountedMemory: enters what a thread allocates by LibTorch into an account, on the CPU and on the
// meta device, with the sizes that were asked for. Of meta tensors no byte exists, and every one
// counts.
//
// LibTorch asks an allocator for every storage, also for one that is resized; ours stands before
// those of the two devices and knows the account of each storage that is there, so that dropping
// one is counted whoever drops it. Backward runs on
// the thread that called it on both devices. Not counted is what kernels take from elsewhere:
// oneDNN's scratch memory, the stack, the standard library's containers (the samples' loader, which
// is the host's, keeps its samples in those).
//
// What the program says of its storages goes to the account of the thread that says it, and nowhere
// in a thread that has none: training pays a look at a thread's variable.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "runtime/device/memory_account.h"
#include "runtime/models/parameters.h"

namespace lockstep::runtime {

// Puts the counting allocators before those of the CPU and the meta device, for good. Before other
// threads allocate; again, it does nothing.
void count_allocations();

// While it lives, what this thread allocates is entered in its account; one at a time in a thread.
// Needs count_allocations().
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  MemoryAccount& account() { return *account_; }
  // Not entered between the two is what is allocated: it is nobody's. What is freed always is.
  void pause();
  void resume();

 private:
  // Storages may outlive it.
  std::shared_ptr<MemoryAccount> account_;
};

// While it lives, this thread is in such a phase.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryPhase phase);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const std::shared_ptr<MemoryAccount> account_;  // null: nobody counts
};

// What the storage of `tensor` is for. Undefined tensors, and storages in no account, are passed
// by.
void mark_memory(const at::Tensor& tensor, trace::MemoryCategory category);
void mark_memory(const NamedTensors& tensors, trace::MemoryCategory category);
// The gradients that these have now.
void mark_gradients(const NamedTensors& tensors);

}  // namespace lockstep::runtime
