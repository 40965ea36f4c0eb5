// MemoryAccount: what one rank allocates and gives back, told apart by what it is for
// (trace/memory_use.h).
//
// What a storage is for often shows only later: whether a forward pass leaves it behind, or a
// parameter takes it as its gradient. So what happens in a step is kept in a list, and told when
// the step is over, by the categories that are known then; from its first byte a storage counts as
// what it turned out to be. What a step leaves behind without a category is `other`.
//
// Knows nothing of LibTorch. Storages are any things that have a size, are born and die.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "trace/memory_use.h"

namespace lockstep::runtime {

// What a part of the program does, as far as it says what its storages are for.
enum class MemoryPhase : std::uint8_t {
  forward,        // what it leaves behind is `activations`
  optimizer,      // … `optimizer_state`
  communication,  // all that it makes is `communication`
};

class MemoryAccount {
 public:
  using Block = std::uint32_t;  // a storage: until the end of the step in which it is freed

  // Any thread. `bytes` > 0.
  Block allocated(std::int64_t bytes);
  void freed(Block block);
  // The storage is there. Of several categories the one that comes first in memory_use.h's list
  // holds.
  void mark(Block block, trace::MemoryCategory category);

  // For the thread that trains. Phases nest; the innermost counts.
  void begin(MemoryPhase phase);
  void end();
  void end_stretch();
  // Of each stretch that ended since the last step did, in order. No phase may be open.
  // O(storages that are there + what happened in the step).
  std::vector<trace::StretchMemory> end_step();

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
  enum class What : std::uint8_t { allocated, freed, stretch_ended };
  struct Happening {
    Block block;
    What what;
  };

  void settle();
  std::vector<trace::StretchMemory> replay() const;
  void forget();

  std::mutex mutex_;  // of all below: storages are freed by whoever drops them last
  std::vector<Storage> storages_;
  std::vector<Block> unused_;  // places in storages_
  std::vector<Phase> phases_;  // outermost first
  std::vector<Happening> step_;
};

// What a device's caching allocator counts.

struct DeviceMemory {
  std::int64_t allocated = 0;  // bytes in tensors now
  std::int64_t peak = 0;       // the most there ever were
  std::int64_t reserved = 0;   // bytes taken from the device, at most
};

}  // namespace lockstep::runtime
