// CountedMemory: records a thread's LibTorch allocations in an account, on the CPU and on the meta
// device, with the requested sizes. Meta tensors take no memory, and count in full.
//
// LibTorch asks an allocator for every storage, also when one is resized. Ours wraps those of the
// two devices and knows the account of each live storage, so freeing is counted, whichever thread
// frees it. On both devices backward runs on the thread that called it. Not counted is memory that
// kernels get elsewhere: oneDNN's scratch memory, the stack, and standard containers (in which the
// loader keeps its samples).
//
// Marks of storages go to the account of the calling thread; without an account they cost a look at
// a thread-local variable.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "runtime/device/memory_account.h"
#include "runtime/models/parameters.h"

namespace lockstep::runtime {

// Installs the counting allocators for the CPU and the meta device, permanently. Call it before
// other threads allocate; later calls do nothing.
void count_allocations();

// While it lives, allocations of this thread are recorded in its account; one at a time per thread.
// Needs count_allocations().
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  MemoryAccount& account() { return *account_; }
  // Allocations between the two are not recorded; frees always are.
  void pause();
  void resume();

 private:
  // Shared, because storages may outlive this object.
  std::shared_ptr<MemoryAccount> account_;
};

// While it lives, this thread is in the given phase.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryPhase phase);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const std::shared_ptr<MemoryAccount> account_;  // null: not counting
};

// Marks the purpose of the tensor's storage. Ignores undefined tensors, and storages in no account.
void mark_memory(const at::Tensor& tensor, trace::MemoryCategory category);
void mark_memory(const NamedTensors& tensors, trace::MemoryCategory category);
// Marks their current gradients.
void mark_gradients(const NamedTensors& tensors);

}  // namespace lockstep::runtime
