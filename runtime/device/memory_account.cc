#include "runtime/device/memory_account.h"

#include <utility>

#include "base/check.h"

namespace lockstep::runtime {
namespace {

using Category = trace::MemoryCategory;

// The lower, the more it says.
int precedence(Category category) {
  switch (category) {
    case Category::parameters:
      return 0;
    case Category::gradients:
      return 1;
    case Category::inputs:
      return 2;
    case Category::communication:
      return 3;
    case Category::optimizer_state:
      return 4;
    case Category::activations:
      return 5;
    case Category::temporary:
    case Category::other:
      return 6;
  }
  return 6;
}

}  // namespace

MemoryAccount::Block MemoryAccount::allocated(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Block block = static_cast<Block>(storages_.size());
  if (unused_.empty()) {
    storages_.emplace_back();
  } else {
    block = unused_.back();
    unused_.pop_back();
  }
  Storage& storage = storages_[block];
  storage = {bytes, Category::temporary, /*is_there=*/true, /*was_there=*/false};
  step_.push_back({block, What::allocated});
  if (!phases_.empty()) {
    phases_.back().made.push_back(block);
    if (phases_.back().kind == MemoryPhase::communication)
      storage.category = Category::communication;
  }
  return block;
}

void MemoryAccount::freed(Block block) {
  const std::lock_guard lock(mutex_);
  storages_[block].is_there = false;
  step_.push_back({block, What::freed});
}

void MemoryAccount::mark(Block block, trace::MemoryCategory category) {
  const std::lock_guard lock(mutex_);
  Category& known = storages_[block].category;
  if (precedence(category) < precedence(known)) known = category;
}

void MemoryAccount::begin(MemoryPhase phase) {
  const std::lock_guard lock(mutex_);
  phases_.push_back({phase, {}});
}

void MemoryAccount::end() {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK(!phases_.empty(), "a phase ends that began");
  const Phase phase = std::move(phases_.back());
  phases_.pop_back();
  if (phase.kind == MemoryPhase::communication) return;
  const Category left =
      phase.kind == MemoryPhase::forward ? Category::activations : Category::optimizer_state;
  for (const Block block : phase.made) {
    Storage& storage = storages_[block];
    if (storage.is_there && precedence(left) < precedence(storage.category))
      storage.category = left;
  }
}

void MemoryAccount::end_segment() {
  const std::lock_guard lock(mutex_);
  step_.push_back({0, What::segment_ended});
}

std::vector<trace::SegmentMemory> MemoryAccount::end_step() {
  const std::lock_guard lock(mutex_);
  // From here on, freed entries of storages_ are used again.
  LOCKSTEP_CHECK(phases_.empty(), "a step ends outside of its passes");
  settle();
  std::vector<trace::SegmentMemory> out = replay();
  forget();
  return out;
}

void MemoryAccount::settle() {
  for (Storage& storage : storages_) {
    if (storage.is_there && storage.category == Category::temporary)
      storage.category = Category::other;
  }
}

std::vector<trace::SegmentMemory> MemoryAccount::replay() const {
  trace::MemoryUse now;
  for (const Storage& storage : storages_) {
    if (storage.was_there) now[storage.category] += storage.bytes;
  }
  std::int64_t total = now.total(), most = total;
  std::vector<trace::SegmentMemory> out;
  trace::MemoryUse peak = now;
  for (const MemoryEvent& it : step_) {
    if (it.what == What::segment_ended) {
      out.push_back({peak, now});
      peak = now;
      most = total;
      continue;
    }
    const Storage& storage = storages_[it.block];
    const std::int64_t change = it.what == What::allocated ? storage.bytes : -storage.bytes;
    now[storage.category] += change;
    total += change;
    if (total <= most) continue;
    most = total;
    peak = now;
  }
  return out;
}

void MemoryAccount::forget() {
  step_.clear();
  unused_.clear();
  for (Block block = 0; block < storages_.size(); ++block) {
    storages_[block].was_there = storages_[block].is_there;
    if (!storages_[block].is_there) unused_.push_back(block);
  }
}

}  // namespace lockstep::runtime
