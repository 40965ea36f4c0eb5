#include "sim/engine/core_pool.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace lockstep::sim {
namespace {

// Of a picosecond of work: what is left of it by rounding is none.
constexpr double kRounding = 1e-3;

}  // namespace

bool CorePool::Entry::operator>(const Entry& other) const {
  return std::tuple(until, task.rank, task.step) >
         std::tuple(other.until, other.task.rank, other.task.step);
}

double CorePool::speed() const {
  const auto cores = static_cast<double>(cores_);
  const auto tasks = static_cast<double>(tasks_.size());
  const double share = std::min(1.0, cores / tasks);
  const double others = cores_ > 1 ? (std::min(cores, tasks) - 1) / (cores - 1) : 0;
  return share / (1 + (contention_ - 1) * others);
}

void CorePool::serve(Picos now) {
  if (!tasks_.empty()) served_ += static_cast<double>((now - at_).value) * speed();
  at_ = now;
}

void CorePool::begin(Picos now, Picos work, Task task) {
  serve(now);
  tasks_.push({served_ + static_cast<double>(work.value), task});
}

Picos CorePool::next_end() const {
  if (tasks_.empty()) return Picos::forever();
  const double left = std::max(0.0, tasks_.top().until - served_);
  if (left <= kRounding) return at_;
  const double wait = std::ceil((left - kRounding) / speed());
  if (wait >= static_cast<double>((Picos::forever() - at_).value)) return Picos::forever();
  return at_ + Picos{std::max<std::int64_t>(1, static_cast<std::int64_t>(wait))};
}

std::vector<CorePool::Task> CorePool::take_ended(Picos now) {
  serve(now);
  std::vector<Task> out;
  while (!tasks_.empty() && tasks_.top().until - served_ <= kRounding) {
    out.push_back(tasks_.top().task);
    tasks_.pop();
  }
  return out;
}

}  // namespace lockstep::sim
