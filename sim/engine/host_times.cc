#include "sim/engine/host_times.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace lockstep::sim {
namespace {

using trace::EventKind;
using trace::Nanos;

bool computes_on_host(const trace::RankTrace& rank) {
  return (rank.backend == "gloo" || rank.backend == "mpi") && rank.gpu == trace::kNone &&
         std::none_of(rank.spans.begin(), rank.spans.end(),
                      [](const trace::SpanMark& span) { return span.stream.value != 0; });
}

// Goes through a rank's events as its thread did.
class HostThread {
 public:
  // `begin`: when the job began by the rank's clock, if that is known.
  HostThread(const trace::Tables& tables, trace::RankTrace& rank, trace::StringId name,
             std::optional<Nanos> begin)
      : tables_(tables), rank_(rank), name_(name), free_since_(begin) {}

  bool add_times() {
    std::vector<trace::Event> events;
    for (const trace::Event& event : rank_.events) {
      follow(event, events);
      follow_call(event);
      events.push_back(event);
    }
    if (!changed_) return false;
    rank_.events = std::move(events);
    rank_.device_times = std::move(call_times_);
    return true;
  }

 private:
  void follow(const trace::Event& event, std::vector<trace::Event>& out) {
    switch (event.kind) {
      case EventKind::issue:
        work_until(event.time, out);
        // The call of a blocking collective returns when it is complete.
        if (rank_.calls[event.index].has(trace::kAsync)) return;
        call_ = event.index;
        free_since_ = std::nullopt;
        is_inside_ = true;
        return;
      case EventKind::wait:
        work_until(event.time, out);
        free_since_ = std::nullopt;
        is_inside_ = true;
        wait_began_ = event.time;
        return;
      case EventKind::complete:
        if (call_ == event.index) return_at(event.time);
        return;
      case EventKind::waited:
        // Until the thread ran again the call was over already: that is the host's time, too.
        return return_at(completed_[event.index] == trace::kNoTime
                             ? event.time
                             : std::max(completed_[event.index], wait_began_));
      case EventKind::start:
        return;
      case EventKind::span: {
        work_until(event.time, out);
        Nanos end = 0;
        const bool known =
            event.time != trace::kNoTime &&
            !__builtin_add_overflow(event.time, rank_.spans[event.index].duration, &end);
        return return_at(known ? end : trace::kNoTime);
      }
      default:  // what the thread notes in passing
        return work_until(event.time, out);
    }
  }

  // A queue of a group, or of its messages to or from a rank, carries out its calls in order: one
  // begins when it is issued and the one before it is over.
  void follow_call(const trace::Event& event) {
    if (event.time == trace::kNoTime) return;
    if (event.kind == EventKind::issue) issued_[event.index] = event.time;
    if (event.kind != EventKind::complete || issued_[event.index] == trace::kNoTime) return;
    const trace::Call& call = rank_.calls[event.index];
    const bool sends = tables_.signatures[call.signature].op == trace::Op::send;
    Nanos& last = over_.try_emplace({call.group, call.peer.value, sends}, INT64_MIN).first->second;
    Nanos taken = 0;
    if (!__builtin_sub_overflow(event.time, std::max(issued_[event.index], last), &taken)) {
      call_times_[event.index] = std::max<Nanos>(taken, 1);  // 0 would say: not recorded
      changed_ = true;
    }
    last = std::max(last, event.time);
    completed_[event.index] = event.time;
  }

  // The thread comes back to the program.
  void return_at(Nanos time) {
    is_inside_ = false;
    call_ = std::nullopt;
    free_since_ = time == trace::kNoTime ? std::nullopt : std::optional(time);
  }

  // Unless it is inside a call, the thread has worked until `time`.
  void work_until(Nanos time, std::vector<trace::Event>& out) {
    if (is_inside_ || time == trace::kNoTime) return;
    Nanos gap = 0;
    if (free_since_ && time > *free_since_ && !__builtin_sub_overflow(time, *free_since_, &gap)) {
      out.push_back(
          {*free_since_, static_cast<std::uint32_t>(rank_.spans.size()), EventKind::span});
      trace::SpanMark span;
      span.name = name_;
      span.duration = gap;
      rank_.spans.push_back(span);
      changed_ = true;
    }
    free_since_ = std::max(time, free_since_.value_or(time));
  }

  const trace::Tables& tables_;
  trace::RankTrace& rank_;
  trace::StringId name_;
  bool changed_ = false;
  std::vector<Nanos> issued_ = std::vector<Nanos>(rank_.calls.size(), trace::kNoTime);
  std::vector<Nanos> completed_ = issued_;
  std::vector<Nanos> call_times_ = std::vector<Nanos>(rank_.calls.size(), 0);
  using Queue = std::tuple<trace::GroupId, std::int32_t, bool>;  // peer; whether it sends
  std::map<Queue, Nanos> over_;                                  // when its last call was
  bool is_inside_ = false;                                       // of a call or a wait
  Nanos wait_began_ = trace::kNoTime;
  std::optional<std::uint32_t> call_;  // the blocking call that it is in
  std::optional<Nanos> free_since_;    // not inside since then; nothing: not known
};

// When the first of the ranks began, if they share a clock: that of one machine.
std::optional<Nanos> begin_of_job(const trace::Run& run) {
  std::optional<Nanos> out;
  for (const trace::RankTrace& rank : run.ranks) {
    if (rank.host.empty() || rank.host != run.ranks.front().host) return std::nullopt;
    const auto first =
        std::find_if(rank.events.begin(), rank.events.end(),
                     [](const trace::Event& event) { return event.time != trace::kNoTime; });
    if (first != rank.events.end()) out = std::min(first->time, out.value_or(first->time));
  }
  return out;
}

}  // namespace

std::vector<trace::Rank> add_host_times(trace::Run& run) {
  std::vector<trace::Rank> out;
  const trace::StringId name = run.tables.strings.intern("between calls");
  const std::optional<Nanos> begin = begin_of_job(run);
  for (trace::RankTrace& rank : run.ranks)
    if (rank.ends_of_waits && computes_on_host(rank) &&
        HostThread(run.tables, rank, name, begin).add_times())
      out.push_back(rank.rank);
  return out;
}

}  // namespace lockstep::sim
