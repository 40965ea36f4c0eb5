#include "base/large_pages.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace lockstep {

void expect_allocations([[maybe_unused]] std::size_t bytes) {
#ifdef __GLIBC__
  constexpr std::size_t kWorthIt = std::size_t{8} << 20U;  // less is read in a few milliseconds
  constexpr std::size_t kMost = std::size_t{1} << 30U;     // mallopt() takes no more than an int
  constexpr std::size_t kMostInAnArena = std::size_t{60} << 20U;
  if (bytes < kWorthIt) return;
  const bool first_thread = getpid() == gettid();
  bytes = std::min(bytes, first_thread ? kMost : kMostInAnArena);
  // One block of that size, from the heap and not mapped by itself, which stays part of the heap
  // when it is freed.
  (void)mallopt(M_MMAP_THRESHOLD, static_cast<int>(kMost));
  (void)mallopt(M_TRIM_THRESHOLD, static_cast<int>(kMost));
  void* const block = std::malloc(bytes);
  if (block == nullptr) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(block) + page - 1) / page * page;
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(block) + bytes) / page * page;
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  std::free(block);
#endif
}

}  // namespace lockstep
