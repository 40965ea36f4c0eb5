// MemoryAccount: what one rank allocates and frees, by purpose (trace/memory_use.h).
//
// The purpose of a storage often shows only later: a forward pass leaves it behind, or a parameter
// takes it as its gradient. So the events of a step are kept in a list, and evaluated at the end of
// the step with the categories that are known then. A storage counts as its final category from its
// first byte. Storages that a step leaves behind without a category are `other`.
//
// Knows nothing of LibTorch: a storage is anything that has a size, is allocated and freed.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "trace/memory_use.h"

namespace lockstep::runtime {

// The part of the program that runs, as far as it decides the purpose of its storages.
enum class MemoryPhase : std::uint8_t {
  forward,        // storages left behind are `activations`
  optimizer,      // storages left behind are `optimizer_state`
  communication,  // everything allocated is `communication`
};

class MemoryAccount {
 public:
  // A storage's id, valid until the end of the step in which it is freed.
  using Block = std::uint32_t;

  // Any thread. `bytes` > 0.
  Block allocated(std::int64_t bytes);
  void freed(Block block);
  // The storage must exist. If it is marked several times, the category that comes first in
  // memory_use.h's list wins.
  void mark(Block block, trace::MemoryCategory category);

  // For the thread that trains. Phases can be nested; the innermost counts.
  void begin(MemoryPhase phase);
  void end();
  void end_segment();
  // The memory of each segment that ended in this step, in order. No phase may be open. O(live
  // storages + events of the step).
  std::vector<trace::SegmentMemory> end_step();

 private:
  struct Storage {
    std::int64_t bytes = 0;
    trace::MemoryCategory category = trace::MemoryCategory::temporary;
    bool is_there = false;
    bool was_there = false;  // before the step
  };
  struct Phase {
    MemoryPhase kind;
    std::vector<Block> made;
  };
  enum class What : std::uint8_t { allocated, freed, segment_ended };
  struct MemoryEvent {
    Block block;
    What what;
  };

  void settle();
  std::vector<trace::SegmentMemory> replay() const;
  void forget();

  std::mutex mutex_;  // guards all below: any thread may drop the last reference to a storage
  std::vector<Storage> storages_;
  std::vector<Block> unused_;  // free indices in storages_
  std::vector<Phase> phases_;  // outermost first
  std::vector<MemoryEvent> step_;
};

// Counters of a device's caching allocator.

struct DeviceMemory {
  std::int64_t allocated = 0;  // bytes in tensors now
  std::int64_t peak = 0;       // largest `allocated` so far
  std::int64_t reserved = 0;   // bytes taken from the device, at most
};

}  // namespace lockstep::runtime
