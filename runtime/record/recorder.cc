#include "runtime/record/recorder.h"

#include <cstddef>
#include <iterator>

#include "base/clock.h"

namespace lockstep::runtime {
namespace {

// A rank that fails reports a few failures; a loop that retries must not fill the memory.
constexpr std::size_t kMaxFailures = 64;
// Waits recorded at each end of the calls in flight (HostWait).
constexpr std::ptrdiff_t kWaitsKept = 8;

}  // namespace

Recorder::Timed::Timed(Recorder& recorder) : recorder_(recorder), began_(monotonic_nanos()) {}
Recorder::Timed::~Timed() {
  recorder_.nanos_.fetch_add(monotonic_nanos() - began_, std::memory_order_relaxed);
}

Recorder::HostWait::HostWait(Recorder& recorder) : recorder_(recorder) {
  if (!recorder_.follows_calls_ || recorder_.host_waits_) return;
  {
    const std::lock_guard lock(recorder_.in_flight_mutex_);
    calls_ = recorder_.in_flight_;
  }
  // The oldest calls block the rest, and the newest produce the value that is read. Recording more
  // would fill the ring.
  if (std::ssize(calls_) > 2 * kWaitsKept) {
    calls_.erase(calls_.begin() + kWaitsKept, calls_.end() - kWaitsKept);
  }
  recorder_.host_waits_ = !calls_.empty();
  for (const std::uint32_t call : calls_) recorder_.ring_.wait(call);
}

Recorder::HostWait::~HostWait() {
  for (const std::uint32_t call : calls_) recorder_.ring_.waited(call);
  if (!calls_.empty()) recorder_.host_waits_ = false;
}

Recorder::Blocked::Blocked(Recorder& recorder, const char* what, Limit limit)
    : recorder_(recorder),
      what_before_(recorder.blocked_in()),
      limit_before_(recorder.blocked_until()) {
  recorder_.blocked_until_.store(limit, std::memory_order_relaxed);
  recorder_.blocked_in_.store(what, std::memory_order_relaxed);
  recorder_.blocks_.fetch_add(1, std::memory_order_relaxed);
}

Recorder::Blocked::~Blocked() {
  recorder_.blocked_in_.store(what_before_, std::memory_order_relaxed);
  recorder_.blocked_until_.store(limit_before_, std::memory_order_relaxed);
  recorder_.blocks_.fetch_add(1, std::memory_order_relaxed);
}

CallNote Recorder::note(const std::vector<std::string>& what, std::string_view tag) {
  const Timed timed(*this);
  CallNote note;
  if (!what.empty()) note.what = ring_.intern_names(what);
  note.tag = ring_.intern(tag);
  return note;
}

trace::RingWriter::StringRef Recorder::location(const std::source_location& where) {
  for (const KnownLocation& known : locations_) {
    if (known.file == where.file_name() && known.line == where.line()) return known.name;
  }
  std::string_view file = where.file_name();
  if (const auto slash = file.rfind('/'); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  const auto name = ring_.intern(std::string(file) + ":" + std::to_string(where.line()));
  locations_.push_back({where.file_name(), where.line(), name});
  return name;
}

std::uint32_t Recorder::issue(trace::RingWriter::Issue fields) {
  CallNote note = context_.note;
  if (!context_.coming.empty()) {
    note = context_.coming.front();
    context_.coming.pop_front();
  }
  fields.step = context_.step;
  fields.what = note.what;
  if (fields.tag.id == 0) fields.tag = note.tag;
  if (fields.at.id == 0) fields.at = context_.at;
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t call = ring_.issue(fields);
  if (follows_calls_) {
    const std::lock_guard lock(in_flight_mutex_);
    in_flight_.push_back(call);
  }
  notify(Moment::call, call);
  return call;
}

void Recorder::complete(std::uint32_t call, std::string_view error) {
  if (error.empty()) {
    outstanding_.fetch_sub(1, std::memory_order_relaxed);
    ring_.complete(call);
    if (follows_calls_) {
      const std::lock_guard lock(in_flight_mutex_);
      std::erase(in_flight_, call);
    }
    return;
  }
  const std::lock_guard lock(failures_mutex_);
  if (failures_.size() < kMaxFailures) failures_.push_back({call, std::string(error)});
}

void Recorder::wait(std::uint32_t call) {
  // Waits can overlap over threads; time counts from the first to the last.
  if (waiting_.fetch_add(1, std::memory_order_relaxed) == 0) wait_began_ = monotonic_nanos();
  ring_.wait(call);
  notify(Moment::wait, call);
}

void Recorder::waited(std::uint32_t call) {
  ring_.waited(call);
  end_wait();
  notify(Moment::waited);
}

void Recorder::wait_failed(std::uint32_t call, std::string_view what) {
  raised(what, call);
  end_wait();
  notify(Moment::waited);
}

void Recorder::end_wait() {
  if (waiting_.fetch_sub(1, std::memory_order_relaxed) == 1) {
    waited_nanos_ += monotonic_nanos() - wait_began_;
  }
}

bool Recorder::raised(std::string_view what, std::optional<std::uint32_t> call) {
  const std::lock_guard lock(failures_mutex_);
  if (!what.empty() && raised_ == what) return raised_by_call_;
  raised_ = what;
  std::int64_t id = call ? static_cast<std::int64_t>(*call) : -1;
  for (const Failure& failure : failures_) {
    if (id < 0 && what.find(failure.text) != std::string_view::npos) id = failure.call;
  }
  ring_.exception(what, id);
  raised_by_call_ = id >= 0;
  return raised_by_call_;
}

bool Recorder::has_raised() {
  const std::lock_guard lock(failures_mutex_);
  return !raised_.empty();
}

void Recorder::step(std::int64_t n, double loss, std::int64_t samples) {
  const Timed timed(*this);
  ring_.step(n, loss, samples);
  notify(Moment::step, n);
}

void Recorder::modality(std::int64_t n, const std::vector<std::string>& has) {
  const Timed timed(*this);
  ring_.modality(n, ring_.intern_names(has));
}

void Recorder::data(std::int64_t n, std::span<const std::int64_t> indices) {
  const Timed timed(*this);
  ring_.data(n, indices);
}

void Recorder::span(std::string_view name, trace::Nanos began) {
  const Timed timed(*this);
  ring_.span(ring_.intern(name), began, monotonic_nanos() - began);
}

}  // namespace lockstep::runtime
