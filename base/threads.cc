#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace lockstep {

std::size_t processors() { return std::max(1U, std::thread::hardware_concurrency()); }

void on_threads(std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> failed(threads);  // an exception must not leave a thread
  const auto attempt = [&](std::size_t i) {
    try {
      work(i);
    } catch (...) {
      failed[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;  // joined at the end of this block
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(attempt, i);
    if (threads > 0) attempt(0);
  }
  for (const std::exception_ptr& failure : failed) {
    if (failure) std::rethrow_exception(failure);
  }
}

void for_each_index_on(std::size_t threads, std::size_t count,
                       const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  on_threads(std::min(std::max<std::size_t>(threads, 1), count), [&](std::size_t) {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  });
}

void for_each_index(std::size_t count, std::size_t elements,
                    const std::function<void(std::size_t)>& work) {
  constexpr std::size_t kElementsPerThread = 100'000;
  for_each_index_on(std::min(elements / kElementsPerThread + 1, processors()), count, work);
}

}  // namespace lockstep
