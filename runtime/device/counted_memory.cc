#include "runtime/device/counted_memory.h"

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include "base/check.h"

namespace lockstep::runtime {
namespace {

using AccountPtr = std::shared_ptr<MemoryAccount>;

// The accounts of this thread. `marks` stays while counting pauses.
struct Current {
  AccountPtr counts, marks;
};
thread_local Current current;

// Where a storage is counted.
struct Entry {
  AccountPtr account;
  MemoryAccount::Block block;
};

Entry entry_of(std::size_t bytes) {
  return {current.counts, current.counts->allocated(static_cast<std::int64_t>(bytes))};
}

// The live storages on the CPU, by address, which is all that raw_deallocate() knows of a storage.
class Entries {
 public:
  void put(const void* address, Entry entry) {
    const std::lock_guard lock(mutex_);
    of_.insert_or_assign(address, std::move(entry));
  }
  std::optional<Entry> find(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = of_.find(address);
    return found == of_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<Entry> take(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto taken = of_.extract(address);
    return taken.empty() ? std::nullopt : std::optional(std::move(taken.mapped()));
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Entry> of_;
};

// Never destroyed, as LibTorch expects of allocators: storages may live as long as the process.
Entries& entries() {
  static Entries* const all = new Entries;
  return *all;
}
// LibTorch's own allocators, which do the work.
c10::Allocator* previous_cpu = nullptr;
c10::Allocator* previous_meta = nullptr;

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = previous_cpu->raw_allocate(bytes);
    if (data != nullptr && current.counts) entries().put(data, entry_of(bytes));
    return {data, data, &free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void free(void* data) {
    // Removed before the memory is freed, because the address may be reused at once.
    if (const std::optional<Entry> entry = entries().take(data))
      entry->account->freed(entry->block);
    previous_cpu->raw_deallocate(data);
  }
};

// Meta storages have no address. Their context holds the entry.
class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0 || !current.counts) return previous_meta->allocate(bytes);
    return {nullptr, std::make_unique<Entry>(entry_of(bytes)).release(), &drop,
            c10::Device(c10::kMeta)};
  }
  void copy_data(void*, const void*, std::size_t) const override {}

  static void drop(void* context) {
    const std::unique_ptr<Entry> entry(static_cast<Entry*>(context));
    entry->account->freed(entry->block);
  }
};

std::optional<Entry> entry_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return std::nullopt;
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  if (const auto* entry = memory.cast_context<Entry>(&MetaAllocator::drop)) return *entry;
  return memory.get() == nullptr ? std::nullopt : entries().find(memory.get());
}

}  // namespace

void count_allocations() {
  if (previous_cpu != nullptr) return;
  // The highest priority, so that LibTorch's own allocators, which may register later, do not
  // replace these.
  constexpr std::uint8_t kBeforeAll = 255;
  previous_cpu = c10::GetAllocator(c10::kCPU);
  previous_meta = c10::GetAllocator(c10::kMeta);
  c10::SetAllocator(c10::kCPU, new CpuAllocator, kBeforeAll);
  c10::SetAllocator(c10::kMeta, new MetaAllocator, kBeforeAll);
}

CountedMemory::CountedMemory() : account_(std::make_shared<MemoryAccount>()) {
  LOCKSTEP_CHECK(!current.marks, "one account at a time in a thread");
  current = {account_, account_};
}

CountedMemory::~CountedMemory() { current = {}; }

void CountedMemory::pause() { current.counts.reset(); }

void CountedMemory::resume() { current.counts = account_; }

MemoryScope::MemoryScope(MemoryPhase phase) : account_(current.marks) {
  if (account_) account_->begin(phase);
}

MemoryScope::~MemoryScope() {
  if (account_) account_->end();
}

void mark_memory(const at::Tensor& tensor, trace::MemoryCategory category) {
  if (!current.marks) return;
  const std::optional<Entry> entry = entry_of(tensor);
  if (entry && entry->account == current.marks) entry->account->mark(entry->block, category);
}

void mark_memory(const NamedTensors& tensors, trace::MemoryCategory category) {
  if (!current.marks) return;
  for (const auto& [name, tensor] : tensors) mark_memory(tensor, category);
}

void mark_gradients(const NamedTensors& tensors) {
  if (!current.marks) return;
  for (const auto& [name, tensor] : tensors)
    mark_memory(tensor.grad(), trace::MemoryCategory::gradients);
}

}  // namespace lockstep::runtime
