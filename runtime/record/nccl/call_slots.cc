#include "runtime/record/nccl/call_slots.h"

namespace lockstep::runtime {

struct CallSlots::State {
  std::uint64_t number = 0;
  std::uint32_t started = 0, stopped = 0, channels = 0;  // 7 bits each
  bool launched = false, done = false;

  static constexpr std::uint32_t kMaxChannels = 127;  // NCCL has 64

  explicit State(std::uint64_t word)
      : number(word & kNumberMask),
        started(word >> 40U & 0x7fU),
        stopped(word >> 47U & 0x7fU),
        channels(word >> 54U & 0x7fU),
        launched((word >> 61U & 1U) != 0),
        done((word >> 62U & 1U) != 0) {}
  std::uint64_t word() const {
    return number | std::uint64_t{started} << 40U | std::uint64_t{stopped} << 47U |
           std::uint64_t{channels} << 54U | std::uint64_t{launched} << 61U |
           std::uint64_t{done} << 62U;
  }
};

std::uint64_t CallSlots::add(RecordedRank& rank, std::uint32_t id) {
  std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed) & kNumberMask;
  if (number == 0) number = next_.fetch_add(1, std::memory_order_relaxed) & kNumberMask;
  Slot& slot = slots_[number % kSlots];
  const State forgotten(slot.state.exchange(0, std::memory_order_seq_cst));
  if (forgotten.started > 0 && !forgotten.done)
    slot.rank.load(std::memory_order_seq_cst)->on_device.fetch_sub(1, std::memory_order_relaxed);
  slot.rank.store(&rank, std::memory_order_seq_cst);
  slot.id.store(id, std::memory_order_seq_cst);
  slot.state.store(number, std::memory_order_seq_cst);
  return number;
}

template <class Change>
CallSlots::Call CallSlots::update(std::uint64_t number, Change change, State& after) {
  Slot& slot = slots_[number % kSlots];
  std::uint64_t word = slot.state.load(std::memory_order_seq_cst);
  for (;;) {
    after = State(word);
    if (number == 0 || after.number != number) return {};
    // Read before the swap: if that succeeds, they are this call's.
    const Call call{slot.rank.load(std::memory_order_seq_cst),
                    slot.id.load(std::memory_order_seq_cst)};
    if (!change(after)) return {};
    if (slot.state.compare_exchange_weak(word, after.word(), std::memory_order_seq_cst))
      return call;
  }
}

bool CallSlots::launch(std::uint64_t number, std::uint32_t channels) {
  State after(0);
  const Call call = update(
      number,
      [&](State& state) {
        if (state.launched) return false;
        state.launched = true;
        state.channels = channels > State::kMaxChannels ? 0 : channels;
        return true;
      },
      after);
  return call.rank != nullptr;
}

void CallSlots::started(std::uint64_t number) {
  State after(0);
  const Call call = update(
      number,
      [](State& state) {
        if (state.done || state.started == State::kMaxChannels) return false;
        ++state.started;
        return true;
      },
      after);
  if (call.rank == nullptr || after.started > 1) return;
  call.rank->on_device.fetch_add(1, std::memory_order_relaxed);
  call.rank->ring->start(call.id);
}

void CallSlots::stopped(std::uint64_t number) {
  State after(0);
  const Call call = update(
      number,
      [](State& state) {
        if (state.done || state.stopped == state.started) return false;
        ++state.stopped;
        state.done = state.stopped == (state.channels != 0 ? state.channels : state.started);
        return true;
      },
      after);
  if (call.rank == nullptr || !after.done) return;
  call.rank->on_device.fetch_sub(1, std::memory_order_relaxed);
  call.rank->ring->complete(call.id);
}

}  // namespace lockstep::runtime
