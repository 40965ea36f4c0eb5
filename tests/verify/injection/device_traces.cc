#include "tests/verify/injection/device_traces.h"

#include <algorithm>

#include "tests/verify/injection/trace_lines.h"

namespace lockstep::verify::injection {

namespace {

struct Line {
  enum class Kind { host, waited, start, complete } kind = Kind::host;
  std::int64_t time = 0;
  std::size_t index = 0;  // of the host's event, or of the entry
};

// The call as this recorder sees it.
CallSpec as_recorded(const CallSpec& call, Recorder recorder) {
  CallSpec c = call;
  if (recorder != Recorder::recorder) {
    c.async = true;
    c.coalesced = kUnset;
  }
  return c;
}

std::vector<Line> lines_of(const RankOutcome& rank, Recorder recorder, Random& random) {
  std::vector<Line> out;
  for (std::size_t i = 0; i < rank.events.size(); ++i) {
    const HostEvent& e = rank.events[i];
    out.push_back({Line::Kind::host, e.time, i});
    // NCCL's wait only makes the stream wait; a call that is not asynchronous has one.
    const bool waits = e.action->kind == Action::Kind::wait ||
                       (e.action->kind == Action::Kind::issue && !e.action->call.async);
    if (recorder == Recorder::recorder && waits) {
      out.push_back({Line::Kind::waited, e.time + 1, e.entry});
    }
  }
  if (recorder == Recorder::issues) return out;
  for (std::size_t i = 0; i < rank.entries.size(); ++i) {
    const Entry& e = rank.entries[i];
    const bool starts = recorder == Recorder::profiler;
    if (starts && e.state != Entry::State::scheduled) {
      out.push_back({Line::Kind::start, e.started_at, i});
    }
    // Ours looks from time to time.
    const int late = starts ? 0 : pick(random, 0, 40'000);
    if (e.state == Entry::State::completed) {
      out.push_back({Line::Kind::complete, std::max(e.completed_at, e.created_at + 2) + late, i});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Line& a, const Line& b) { return a.time < b.time; });
  return out;
}

void write_host_event(TraceLines& lines, const HostEvent& e, Recorder recorder) {
  const bool ours = recorder == Recorder::recorder;
  const int id = static_cast<int>(e.entry);
  switch (e.action->kind) {
    case Action::Kind::issue:
      lines.issue(id, as_recorded(e.action->call, recorder));
      break;
    case Action::Kind::modality:
      lines.modality(*e.action);
      break;
    case Action::Kind::step:
      lines.step(e.action->n);
      break;
    case Action::Kind::raise:
      if (ours) lines.exception(e.action->text, kUnset);
      break;
    case Action::Kind::wait:
    case Action::Kind::late:
    case Action::Kind::stall:
    case Action::Kind::die:
      break;
  }
}

std::string write_rank(const Job& job, int r, const RankOutcome& rank, Recorder recorder,
                       const Recording& recording, bool ends, Random& random) {
  TraceLines lines(job, r, recording, random);
  for (const Line& line : lines_of(rank, recorder, random)) {
    lines.move_clock(line.time);
    const int id = static_cast<int>(line.index);
    switch (line.kind) {
      case Line::Kind::host:
        write_host_event(lines, rank.events[line.index], recorder);
        break;
      case Line::Kind::waited:
        lines.call_event("wait", id);
        lines.call_event("waited", id);
        break;
      case Line::Kind::start:
        lines.call_event("start", id);
        break;
      case Line::Kind::complete:
        lines.call_event("complete", id);
        break;
    }
  }
  if (rank.end.empty() || !ends) return lines.text();
  // What NCCL calls tells nothing of exceptions: the file just ends there.
  if (recorder == Recorder::recorder || rank.end != "exception") lines.end(rank.end.c_str());
  return lines.text();
}

}  // namespace

std::vector<std::string> device_traces(const Job& job, const DeviceOutcome& outcome,
                                       Recorder recorder, const Recording& recording, bool ends,
                                       Random& random) {
  std::vector<std::string> out;
  for (int r = 0; r < job.world(); ++r) {
    out.push_back(write_rank(job, r, outcome.ranks[static_cast<std::size_t>(r)], recorder,
                             recording, ends, random));
  }
  return out;
}

}  // namespace lockstep::verify::injection
