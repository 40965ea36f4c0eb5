#include "sim/engine/core_pool.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace lockstep::sim {
namespace {

// Of a picosecond: what is left by rounding is nothing.
constexpr double kRounding = 1e-3;

bool comes_before(const CorePool::Task& a, const CorePool::Task& b) {
  return std::tuple(a.rank, a.step) < std::tuple(b.rank, b.step);
}

bool same_thread(const CorePool::Task& a, const CorePool::Task& b) {
  return a.rank == b.rank && a.thread == b.thread;
}

}  // namespace

bool CorePool::Sleeping::operator>(const Sleeping& other) const {
  return std::tuple(until, task.rank, task.step) >
         std::tuple(other.until, other.task.rank, other.task.step);
}

double CorePool::speed() const {
  if (speeds_.cores < 2 || running_.empty()) return 1;
  const auto others = static_cast<double>(running_.size() - 1);
  return 1 / (1 + (speeds_.contention - 1) * others / static_cast<double>(speeds_.cores - 1));
}

void CorePool::serve(Picos now) {
  const auto passed = static_cast<double>((now - at_).value);
  const double worked = passed * speed();
  const auto slice = static_cast<double>(speeds_.slice.value);
  for (Running& one : running_) {
    one.left -= worked;
    one.slice -= passed;
    // Nobody waited for its core: it began another slice.
    if (waiting_.empty() && one.slice <= 0) one.slice = slice - std::fmod(-one.slice, slice);
  }
  at_ = now;
}

void CorePool::begin(Picos now, Picos amount, const Task& task) {
  serve(now);
  turns_ = 0;
  if (task.sleeps) return sleeping_.push({now + amount, task});
  const auto left = static_cast<double>(amount.value);
  const auto own = std::find_if(vacated_.begin(), vacated_.end(),
                                [&](const Running& core) { return same_thread(core.task, task); });
  if (own == vacated_.end()) {
    waiting_.push_back({task, left});
  } else {
    running_.push_back({task, left, own->slice});
    vacated_.erase(own);
  }
}

void CorePool::dispatch() {
  vacated_.clear();
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < speeds_.cores) {
    running_.push_back(
        {waiting_.front().task, waiting_.front().left, static_cast<double>(speeds_.slice.value)});
    waiting_.pop_front();
  }
}

Picos CorePool::next_event() const {
  Picos out = sleeping_.empty() ? Picos::forever() : sleeping_.top().until;
  for (const Running& one : running_) {
    double wait = std::max(0.0, one.left - kRounding) / speed();
    if (!waiting_.empty()) wait = std::min(wait, std::max(0.0, one.slice - kRounding));
    if (wait < static_cast<double>((Picos::forever() - at_).value))
      out = std::min(out, at_ + Picos{static_cast<std::int64_t>(std::ceil(wait))});
  }
  return out;
}

std::vector<CorePool::Task> CorePool::take_ended(Picos now) {
  serve(now);
  std::vector<Task> out;
  std::vector<Waiting> turned_out;
  std::vector<Running> still;
  for (const Running& one : running_) {
    if (one.left <= kRounding) {
      out.push_back(one.task);
      vacated_.push_back(one);
    } else if (!waiting_.empty() && one.slice <= kRounding) {
      turned_out.push_back({one.task, one.left});
      if (++turns_ % kTurnsInARow == 0) speeds_.slice += speeds_.slice;
    } else {
      still.push_back(one);
    }
  }
  running_ = std::move(still);
  if (!out.empty()) turns_ = 0;
  std::sort(out.begin(), out.end(), comes_before);
  std::sort(turned_out.begin(), turned_out.end(),
            [](const Waiting& a, const Waiting& b) { return comes_before(a.task, b.task); });
  waiting_.insert(waiting_.end(), turned_out.begin(), turned_out.end());
  while (!sleeping_.empty() && sleeping_.top().until <= now) {
    out.push_back(sleeping_.top().task);
    sleeping_.pop();
  }
  return out;
}

}  // namespace lockstep::sim
