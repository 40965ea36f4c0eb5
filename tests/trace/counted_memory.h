// Counts what the program allocates with `new`, so that a test can hold a reader to the memory that
// its header promises. Linking counted_memory.cc replaces the global operators.
#pragma once

#include <cstddef>

namespace lockstep::trace {

// The most bytes that were allocated at one time since it was made, beyond those at that time. One
// at a time; for a single thread.
class PeakMemory {
 public:
  PeakMemory();
  std::size_t bytes() const;

 private:
  std::size_t before_;
};

}  // namespace lockstep::trace
