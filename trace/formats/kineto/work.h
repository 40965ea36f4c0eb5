// What a profiled rank computed, as spans between its calls: the program that its host and its
// device carried out, so that a simulation can run it again with other calls, or on slower ranks.
//
// The host is one line of work: whatever queues work, calls or waits, on any thread, in the order
// of its times (PyTorch's main thread rests while autograd's thread runs backward). The time
// between two of these is a span of the host, except while it waits for the device. A kernel is a
// span in its CUDA stream. It begins when the host has queued it and its stream is done with what
// came before, so it moves when these move.
//
// A profile records the kernels, but not which stream waited for which. That is inferred, and only
// where the recorded times agree:
//  - A call follows the work that the host queued last, as c10d makes NCCL's stream wait for the
//    current one.
//  - After cudaStreamWaitEvent or a wait for a call, the next work follows what ended last before
//    it began, in another stream.
//  - Work that began when something in another stream ended, although it was queued and its stream
//    was free earlier, followed that.
//  - A host that is blocked in cudaStreamSynchronize, cudaEventSynchronize or a copy goes on with
//    what ended meanwhile; in cudaDeviceSynchronize with the last of every stream.
//
// From the moment at which a kernel could begin until it does, a device takes some microseconds.
// Up to kLongestLag of them count as the kernel's; between the kernels of a CUDA graph, whose edges
// are not recorded, all that passes does. What is left over is a wait that was not
// understood: it is in no span, so a simulation shows it as an error.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "trace/formats/kineto/events.h"
#include "trace/run.h"

namespace lockstep::trace {

inline constexpr Nanos kLongestLag = 10'000;

class KinetoWorkWriter {
 public:
  // Takes work and calls of the runtime out of `events`, whose steps are sorted, and sets
  // KinetoComm::queued of calls and kernels. `trace` and `tables` are not owned.
  KinetoWorkWriter(KinetoEvents& events, RankTrace& trace, Tables& tables);

  // Whether the profile shows what the device did. If not, nothing is written.
  bool any() const { return any_; }

  // Whether the host did this before the first training step or after the last one.
  bool is_outside(Nanos time) const { return any_ && (time < first_ || time > last_); }

  // Spans get numbers from `id` on. Call it before anything is written.
  void number_from(std::int64_t id) { next_id_ = id; }

  // Writes what the host did up to `time`; the time that is left until then is work of the host.
  void write_until(Nanos time);

  // Before a call is issued at the time of write_until() that runs on the device from `begin` on,
  // in `stream` (kNone: it has no kernel): what it follows. Returns the name of its stream for
  // Call::stream.
  StringId before_call(Nanos begin, std::int64_t stream);
  // After it was issued.
  void after_call(std::int64_t id, Nanos end, std::int64_t stream);

 private:
  // What is over at a time, and can be waited for.
  struct Over {
    Nanos end = 0;
    std::uint32_t span = kCall;  // index in RankTrace::spans
    std::int64_t call = kNone;   // its id
    static constexpr std::uint32_t kCall = UINT32_MAX;
  };
  struct Stream {
    StringId name;
    std::vector<Over> over;            // in the order of their ends
    std::int64_t correlation = kNone;  // of the last work
    Nanos end() const { return over.empty() ? INT64_MIN : over.back().end; }
  };
  // Something that the host does to streams, at a time.
  struct Point {
    enum class Kind : std::uint8_t { work, wait, mark };
    Nanos time;
    std::uint32_t index;  // in work_, or runtime_
    Kind kind;
  };

  void set_queue_times(KinetoEvents& events);
  void collect_points(const KinetoEvents& events);
  void add_mark(Nanos time) { points_.push_back({time, 0, Point::Kind::mark}); }

  // What work that began at `begin` followed in another stream; nullptr: nothing.
  Over* followed(const Stream& own, Nanos begin, Nanos ready);

  void write(const Point& point);
  void write_work(const KinetoWork& work, Nanos queued);
  void write_wait(const KinetoRuntimeCall& call);
  void host_works_until(Nanos time);
  void host_waits_for(Over& over, Nanos from, Nanos until);
  void add_span(SpanMark span, Nanos time);

  Stream& stream(std::int64_t number);
  // What ended last, but by `time`; nullptr: nothing did.
  static Over* last_over(Stream& stream, Nanos time);
  Over* last_over_beside(const Stream* but, Nanos time);
  std::int64_t id_of(Over& over);

  RankTrace& trace_;
  Tables& tables_;
  std::vector<KinetoWork> work_;
  std::vector<KinetoRuntimeCall> runtime_;
  std::vector<Point> points_;  // by time
  std::size_t next_ = 0;       // of points_
  std::map<std::int64_t, Stream> streams_;
  Stream* current_ = nullptr;  // where the host queued its last work
  StringId host_name_, wait_name_;
  Nanos first_ = kNoTime, last_ = kNoTime;  // the window; what is outside is not written
  Nanos now_ = 0;                           // how far the host is written
  std::int64_t next_id_ = 0;
  bool marked_ = false;  // the host made a stream wait since it queued its last work
  bool any_ = false;
};

// Hosts do not begin a profile at the same moment, and their clocks differ. Ranks that begin later
// get a span of the host for it, before everything else. Clocks are compared by the ends of calls,
// which are at one time on all members; ranks that share no call with the first one begin with it.
// Only traces with spans change.
void add_late_starts(std::span<RankTrace> traces, Tables& tables);

}  // namespace lockstep::trace
