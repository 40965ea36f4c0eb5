// CallSlots: state of calls on their way through NCCL, so that the last channel's kernel completes
// them. Bounded, lock-free, and safe for any order of events.
//
// NCCL gives back an opaque handle and nothing else. A handle here is a number, not an address, so
// a stale one is detected instead of dereferenced. When all slots are in use, the oldest is reused:
// start and completion of its call are then not recorded, and nothing else happens.
//
// Each slot's state is one word: the call's number, and how many channels started and stopped.
// Every change is a compare-and-swap of that word, so a slot that was reused in between is noticed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/record/nccl/communicator.h"

namespace lockstep::runtime {

class CallSlots {
 public:
  static constexpr std::uint64_t kSlots = 1U << 14U;  // calls under way in a process
  static constexpr std::uint64_t kNumberBits = 40;
  static constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;

  // Stores call `id` of a rank that has a ring; returns its number, which is never 0.
  std::uint64_t add(RecordedRank& rank, std::uint32_t id);

  // The call runs on `channels` channels. (0, or more than 127: unknown; it is then complete when
  // all that started have stopped.) False: it was launched before, or its slot was reused.
  bool launch(std::uint64_t number, std::uint32_t channels);
  // A channel's kernel began or ended. The first start and the last stop are recorded; in between
  // the call counts as on the device (RecordedRank::on_device).
  void started(std::uint64_t number);
  void stopped(std::uint64_t number);

 private:
  struct Slot {
    std::atomic<std::uint64_t> state{0};  // 0: being filled
    std::atomic<RecordedRank*> rank{nullptr};
    std::atomic<std::uint32_t> id{0};
  };
  struct State;
  struct Call {
    RecordedRank* rank = nullptr;
    std::uint32_t id = 0;
  };
  // Changes the state of that call by `change`, which returns false to leave it; `after` is what
  // stands there then. A null rank: forgotten, or left.
  template <class Change>
  Call update(std::uint64_t number, Change change, State& after);

  std::array<Slot, kSlots> slots_;
  std::atomic<std::uint64_t> next_{1};
};

}  // namespace lockstep::runtime
