#include "tests/trace/counted_memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> g_now{0};   // allocated at this moment
std::atomic<std::size_t> g_peak{0};  // the largest that g_now was

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t now = g_now += malloc_usable_size(memory);
  std::size_t peak = g_peak.load();
  while (peak < now && !g_peak.compare_exchange_weak(peak, now)) {
  }
  return memory;
}

void release(void* memory) {
  if (memory != nullptr) g_now -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto a = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(a, (size + a - 1) / a * a));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { release(memory); }
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  release(memory);
}

namespace lockstep::trace {

PeakMemory::PeakMemory() : before_(g_now) { g_peak = before_; }

std::size_t PeakMemory::bytes() const { return g_peak - before_; }

}  // namespace lockstep::trace
