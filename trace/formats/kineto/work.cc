#include "trace/formats/kineto/work.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace lockstep::trace {

namespace {

// Times of old profiles are whole microseconds: of two that touch, one may seem to be first.
constexpr Nanos kRoundedTo = 1000;

Nanos clamped(Nanos time, const KinetoRuntimeCall& call) {
  return std::clamp(time, call.begin, std::max(call.begin, call.end));
}

// A copy from or to the host that is over when its call returns makes the host wait; one inside the
// device may be over by then and does not.
bool stays_on_device(const std::string& copy) {
  return copy.find("DtoD") != std::string::npos || copy.find("DeviceToDevice") != std::string::npos;
}

}  // namespace

KinetoWorkWriter::KinetoWorkWriter(KinetoEvents& events, RankTrace& trace, Tables& tables)
    : trace_(trace),
      tables_(tables),
      work_(std::move(events.work)),
      runtime_(std::move(events.runtime)),
      any_(!work_.empty()) {
  if (!any_) return;
  host_name_ = tables_.strings.intern("host");
  wait_name_ = tables_.strings.intern("wait");
  set_queue_times(events);
  collect_points(events);
  // The training steps, else everything: before the first step and after the last one the profiler
  // itself is at work.
  first_ = points_.front().time;
  last_ = points_.back().time;
  if (!events.steps.empty()) {
    first_ = events.steps.front().begin;
    for (const KinetoStep& step : events.steps) last_ = std::max(first_, step.end);
  }
  now_ = first_;
  while (next_ < points_.size() && points_[next_].time < first_) ++next_;
}

// A kernel is in its stream when it begins, or when the call that queues it returns, if that is
// earlier. A copy for which the host waits is there when its call begins. If the host was not
// profiled, the kernels' own times are used.
void KinetoWorkWriter::set_queue_times(KinetoEvents& events) {
  std::unordered_map<std::int64_t, KinetoRuntimeCall*> queued_by;
  for (KinetoRuntimeCall& call : runtime_)
    if (call.correlation != kNone) queued_by.emplace(call.correlation, &call);
  for (const KinetoWork& one : work_) {
    const auto by = queued_by.find(one.correlation);
    if (by != queued_by.end() && by->second->kind == KinetoRuntimeCall::Kind::copy &&
        one.end <= by->second->end && !stays_on_device(tables_.str(one.name)))
      by->second->kind = KinetoRuntimeCall::Kind::sync;
  }
  const auto queued = [&](Nanos begin, std::int64_t correlation) {
    const auto by = queued_by.find(correlation);
    if (by == queued_by.end()) return begin;
    const KinetoRuntimeCall& call = *by->second;
    return call.kind == KinetoRuntimeCall::Kind::sync ? call.begin : clamped(begin, call);
  };
  for (std::uint32_t w = 0; w < work_.size(); ++w)
    points_.push_back({queued(work_[w].begin, work_[w].correlation), w, Point::Kind::work});
  std::unordered_map<std::int64_t, Nanos> of_call;  // by external id
  const auto take = [&](std::vector<KinetoComm>& kernels) {
    for (KinetoComm& kernel : kernels) {
      kernel.queued = queued(kernel.begin, kernel.correlation);
      if (kernel.external_id != kNone) of_call.emplace(kernel.external_id, kernel.queued);
    }
  };
  take(events.kernels);
  for (KinetoComm& call : events.calls) {
    call.queued = call.begin;
    const auto found = of_call.find(call.external_id);
    if (found != of_call.end() && found->second >= call.begin && found->second <= call.end)
      call.queued = found->second;
  }
}

void KinetoWorkWriter::collect_points(const KinetoEvents& events) {
  for (std::uint32_t c = 0; c < runtime_.size(); ++c) {
    const KinetoRuntimeCall& call = runtime_[c];
    // A wait is where it is over, since other threads may queue work meanwhile.
    if (call.kind == KinetoRuntimeCall::Kind::sync ||
        call.kind == KinetoRuntimeCall::Kind::sync_device)
      points_.push_back({call.end, c, Point::Kind::wait});
    else if (call.kind == KinetoRuntimeCall::Kind::wait_event)
      add_mark(call.begin);
  }
  for (const KinetoComm& call : events.calls)
    if (tables_.str(call.op) == "wait") add_mark(call.begin);
  std::stable_sort(points_.begin(), points_.end(),
                   [](const Point& a, const Point& b) { return a.time < b.time; });
}

void KinetoWorkWriter::write_until(Nanos time) {
  if (!any_) return;
  for (; next_ < points_.size() && points_[next_].time <= std::min(time, last_); ++next_)
    write(points_[next_]);
  host_works_until(std::min(time, last_));
}

void KinetoWorkWriter::write(const Point& point) {
  if (point.kind == Point::Kind::work) return write_work(work_[point.index], point.time);
  if (point.kind == Point::Kind::wait) return write_wait(runtime_[point.index]);
  marked_ = true;
}

void KinetoWorkWriter::host_works_until(Nanos time) {
  if (time <= now_) return;
  add_span({host_name_, {}, time - now_}, now_);
  now_ = time;
}

void KinetoWorkWriter::write_work(const KinetoWork& work, Nanos queued) {
  host_works_until(queued);
  Stream& own = stream(work.stream);
  Nanos ready = std::max(queued, own.end());
  if (Over* const over = followed(own, work.begin, ready)) {
    add_span({wait_name_, own.name, 0, kNone, id_of(*over)}, over->end);
    ready = std::max(ready, over->end);
  }
  marked_ = false;
  // Work of one stream that overlaps, as in some profiles, counts once.
  const Nanos begin = std::max(work.begin, own.end());
  // Kernels of one CUDA graph are queued by one call. What they wait for inside it is the graph's.
  const bool same_graph = work.correlation != kNone && own.correlation == work.correlation;
  own.correlation = work.correlation;
  const Nanos longest = same_graph ? INT64_MAX : kLongestLag;
  const Nanos lag = std::clamp<Nanos>(begin - ready, 0, longest);
  const Nanos duration = std::max<Nanos>(0, work.end - begin) + lag;
  const auto span = static_cast<std::uint32_t>(trace_.spans.size());
  add_span({work.name, own.name, duration}, begin - lag);
  own.over.push_back({std::max(work.end, own.end()), span});
  current_ = &own;
}

KinetoWorkWriter::Over* KinetoWorkWriter::followed(const Stream& own, Nanos begin, Nanos ready) {
  Over* const over = last_over_beside(&own, begin);
  if (over == nullptr || marked_) return over;
  const bool late = begin > ready + kLongestLag;
  return late && over->end > ready && over->end >= begin - kLongestLag ? over : nullptr;
}

StringId KinetoWorkWriter::before_call(Nanos begin, std::int64_t stream_number) {
  if (!any_ || stream_number == kNone) return {};
  Stream& own = stream(stream_number);
  // Its own waits for the current stream are not waits of what comes after it.
  marked_ = false;
  Nanos ready = std::max(now_, own.end());
  const auto follow = [&](Over& over) {
    add_span({wait_name_, own.name, 0, kNone, id_of(over)}, over.end);
    ready = std::max(ready, over.end);
  };
  if (current_ != nullptr && current_ != &own && !current_->over.empty() &&
      current_->end() <= begin + kRoundedTo)
    follow(current_->over.back());
  if (Over* const over = followed(own, begin, ready)) follow(*over);
  return own.name;
}

void KinetoWorkWriter::after_call(std::int64_t id, Nanos end, std::int64_t stream_number) {
  if (!any_ || stream_number == kNone) return;
  Stream& own = stream(stream_number);
  own.over.push_back({std::max(end, own.end()), Over::kCall, id});
}

void KinetoWorkWriter::write_wait(const KinetoRuntimeCall& call) {
  host_works_until(call.begin);
  if (call.kind == KinetoRuntimeCall::Kind::sync_device) {
    for (auto& [number, one] : streams_)
      if (Over* over = last_over(one, call.end)) host_waits_for(*over, call.begin, call.end);
    return;
  }
  Over* over = last_over_beside(nullptr, call.end);
  // Nothing ended meanwhile: it found what it waits for over, which is most likely the last work.
  if ((over == nullptr || over->end <= call.begin) && current_ != nullptr &&
      !current_->over.empty())
    over = &current_->over.back();
  if (over != nullptr && over->end <= call.end + kRoundedTo)
    host_waits_for(*over, call.begin, call.end);
}

void KinetoWorkWriter::host_waits_for(Over& over, Nanos from, Nanos until) {
  add_span({wait_name_, {}, 0, kNone, id_of(over)}, std::max(now_, from));
  // It did not work while it was blocked.
  now_ = std::max({now_, from, std::min(over.end, until)});
}

void KinetoWorkWriter::add_span(SpanMark span, Nanos time) {
  trace_.events.push_back({time, static_cast<std::uint32_t>(trace_.spans.size()), EventKind::span});
  trace_.spans.own().push_back(span);
}

KinetoWorkWriter::Stream& KinetoWorkWriter::stream(std::int64_t number) {
  Stream& out = streams_[number];
  if (out.name.value == 0) out.name = tables_.strings.intern(std::to_string(number));
  return out;
}

KinetoWorkWriter::Over* KinetoWorkWriter::last_over(Stream& stream, Nanos time) {
  const auto after = std::upper_bound(stream.over.begin(), stream.over.end(), time + kRoundedTo,
                                      [](Nanos t, const Over& over) { return t < over.end; });
  return after == stream.over.begin() ? nullptr : &*(after - 1);
}

KinetoWorkWriter::Over* KinetoWorkWriter::last_over_beside(const Stream* but, Nanos time) {
  Over* out = nullptr;
  for (auto& [number, one] : streams_) {
    Over* const over = &one == but ? nullptr : last_over(one, time);
    if (over != nullptr && (out == nullptr || over->end > out->end)) out = over;
  }
  return out;
}

std::int64_t KinetoWorkWriter::id_of(Over& over) {
  if (over.span == Over::kCall) return over.call;
  SpanMark& span = trace_.spans.own()[over.span];
  if (span.id == kNone) span.id = next_id_++;
  return span.id;
}

namespace {

// When collectives ended, by group and number.
using Ends = std::map<std::pair<GroupId, std::uint32_t>, Nanos>;

Ends ends_of(const RankTrace& trace, const Tables& tables) {
  Ends out;
  for (const Event& event : trace.events) {
    if (event.kind != EventKind::complete || event.time == kNoTime) continue;
    const Call& call = trace.calls[event.index];
    if (!tables.is_message(call)) out[{call.group, call.seq}] = event.time;
  }
  return out;
}

// What to add to times on the second clock for those on the first: the median over the calls that
// both have.
std::optional<Nanos> clock_difference(const Ends& first, const Ends& second) {
  std::vector<Nanos> differences;
  for (const auto& [call, end] : second)
    if (const auto same = first.find(call); same != first.end())
      differences.push_back(same->second - end);
  if (differences.empty()) return std::nullopt;
  const auto middle = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 2);
  std::nth_element(differences.begin(), middle, differences.end());
  return *middle;
}

Nanos first_time(const RankTrace& trace) {
  Nanos out = INT64_MAX;
  for (const Event& event : trace.events)
    if (event.time != kNoTime) out = std::min(out, event.time);
  return out;
}

}  // namespace

void add_late_starts(std::span<RankTrace> traces, Tables& tables) {
  const bool any = std::any_of(traces.begin(), traces.end(),
                               [](const RankTrace& trace) { return !trace.spans.empty(); });
  if (!any || traces.size() < 2) return;
  const Ends ends = ends_of(traces.front(), tables);
  std::vector<std::optional<Nanos>> begins;  // on the first one's clock
  Nanos earliest = INT64_MAX;
  for (const RankTrace& trace : traces) {
    const auto difference = clock_difference(ends, ends_of(trace, tables));
    begins.push_back(difference ? std::optional(first_time(trace) + *difference) : std::nullopt);
    if (begins.back()) earliest = std::min(earliest, *begins.back());
  }
  const StringId name = tables.strings.intern("late start");
  for (std::size_t t = 0; t < traces.size(); ++t) {
    RankTrace& trace = traces[t];
    if (!begins[t] || *begins[t] == earliest || trace.spans.empty()) continue;
    const Nanos late = *begins[t] - earliest;
    std::vector<Event>& events = trace.events.own();
    events.insert(events.begin(),
                  {first_time(trace) - late, static_cast<std::uint32_t>(trace.spans.size()),
                   EventKind::span});
    trace.spans.own().push_back({name, {}, late});
  }
}

}  // namespace lockstep::trace
