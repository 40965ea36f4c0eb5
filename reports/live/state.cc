#include "reports/live/state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/replay/replay.h"
#include "verify/replay/semantics.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::reports {

namespace {

using Doing = WatchedRank::Doing;

// By call: when it was issued.
std::vector<trace::Nanos> issue_times(const trace::RankTrace& trace) {
  std::vector<trace::Nanos> out(trace.calls.size(), trace::kNoTime);
  for (const trace::Event& event : trace.events) {
    if (event.kind == trace::EventKind::issue) out[event.index] = event.time;
  }
  return out;
}

// The lower median, which is one of the values. `values` must not be empty.
trace::Nanos median(std::vector<trace::Nanos> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool one_clock(const trace::Run& run) {
  return std::all_of(run.ranks.begin(), run.ranks.end(), [&](const trace::RankTrace& trace) {
    return trace.host == run.ranks.front().host;
  });
}

// Who was late for what. Keeps the largest delay of each rank.
class Delays {
 public:
  Delays(const trace::Run& run, const std::vector<verify::GroupStreams>& groups,
         const verify::ReplayResult& where, std::vector<WatchedRank>& ranks)
      : run_(run), groups_(groups), where_(where), ranks_(ranks) {
    for (const trace::RankTrace& trace : run.ranks) issued_.push_back(issue_times(trace));
  }

  // The last call of each group that all its members issued.
  void measure_last_collectives() {
    for (const verify::GroupStreams& group : groups_) {
      // Streams that nothing lines up cannot be compared, and one rank alone is never late.
      if (!group.comparable || group.streams.size() < 2) continue;
      std::size_t common = SIZE_MAX;
      for (const verify::Stream& s : group.streams) common = std::min(common, s.calls.size());
      if (common == 0) continue;
      std::vector<trace::Nanos> times;
      for (const verify::Stream& s : group.streams)
        times.push_back(issued_[s.rank_index][s.calls[common - 1]]);
      // Sources without times cannot say who was late.
      if (std::find(times.begin(), times.end(), trace::kNoTime) != times.end()) continue;
      const trace::Nanos usual = median(times);
      for (std::size_t i = 0; i < times.size(); ++i) {
        const verify::Stream& s = group.streams[i];
        note(s.rank_index, times[i] - usual, describe_call(s.rank_index, s.calls[common - 1]));
      }
    }
  }

  // Current waits: a rank that others wait for is late by at least the time since the median of
  // them arrived.
  void measure_waits(trace::Nanos now) {
    for (const verify::WaitPoint& point : where_.wait_points) {
      // A receive from any source waits for nobody in particular.
      if (point.waiting.empty() || point.any_source) continue;
      std::vector<trace::Nanos> times;
      for (const std::uint32_t r : point.waiting)
        times.push_back(issued_[r][where_.positions[r].waiting_in()]);
      if (std::find(times.begin(), times.end(), trace::kNoTime) != times.end()) continue;
      const std::uint32_t first = point.waiting.front();
      const std::string call = describe_call(first, where_.positions[first].waiting_in());
      for (const std::uint32_t r : point.missing) {
        // A rank that waits itself or has ended is not late: it will not come at all.
        if (ranks_[r].doing == Doing::works) note(r, now - median(times), call);
      }
    }
  }

  trace::Nanos issued(std::uint32_t r, std::uint32_t call) const { return issued_[r][call]; }

 private:
  std::string describe_call(std::uint32_t r, std::uint32_t c) const {
    const trace::Call& call = run_.ranks[r].calls[c];
    std::string out = trace::describe(run_.tables, call);
    if (call.at != trace::StringId{})
      out += fmt::format(", {}", printable(run_.tables.str(call.at)));
    return out;
  }

  void note(std::uint32_t r, trace::Nanos behind, std::string call) {
    if (behind <= ranks_[r].behind) return;
    ranks_[r].behind = behind;
    ranks_[r].behind_in = std::move(call);
  }

  const trace::Run& run_;
  const std::vector<verify::GroupStreams>& groups_;
  const verify::ReplayResult& where_;
  std::vector<WatchedRank>& ranks_;
  std::vector<std::vector<trace::Nanos>> issued_;  // by rank index and call
};

Doing doing_of(const verify::Position& position, trace::End end, bool stuck) {
  if (end == trace::End::clean) return Doing::ended;
  if (end == trace::End::exception) return Doing::raised;
  if (end == trace::End::killed || end == trace::End::interrupted) return Doing::killed;
  if (end == trace::End::hung) return Doing::hung;
  if (position.waiting_in() == verify::kNoCall) return Doing::works;
  return stuck ? Doing::stuck : Doing::waits;
}

WatchedRank standing(const trace::Run& run, const verify::ReplayResult& where, std::uint32_t r) {
  const trace::RankTrace& trace = run.ranks[r];
  const verify::Position& position = where.positions[r];
  WatchedRank out;
  out.rank = trace.rank;
  out.doing = doing_of(position, trace.end, where.stuck[r]);
  if (!trace.steps.empty()) {
    out.steps = trace.steps.back().n + 1;
    out.loss = trace.steps.back().loss;
  }
  out.host = printable(trace.host);
  out.pid = trace.pid;
  std::uint32_t c = position.waiting_in();
  if (c == verify::kNoCall && !trace.calls.empty())
    c = static_cast<std::uint32_t>(trace.calls.size() - 1);
  if (c != verify::kNoCall) {
    const trace::Call& call = trace.calls[c];
    out.call = trace::describe(run.tables, call);
    out.group = printable(run.tables.str(call.group));
    out.seq = call.seq;
    out.at = printable(run.tables.str(call.at));
  }
  if (where.point_of[r] != SIZE_MAX) {
    for (const std::uint32_t m : where.wait_points[where.point_of[r]].missing)
      out.waits_for.push_back(run.ranks[m].rank);
  }
  return out;
}

}  // namespace

std::string_view to_string(Doing doing) {
  switch (doing) {
    case Doing::works:
      return "works";
    case Doing::waits:
      return "waits";
    case Doing::stuck:
      return "stuck";
    case Doing::ended:
      return "ended";
    case Doing::raised:
      return "raised";
    case Doing::hung:
      return "hung";
    case Doing::killed:
      return "killed";
  }
  return "";
}

std::int64_t WatchState::steps() const {
  if (ranks.empty() || !absent.empty()) return 0;
  return std::min_element(ranks.begin(), ranks.end(),
                          [](const auto& a, const auto& b) { return a.steps < b.steps; })
      ->steps;
}

std::optional<double> WatchState::loss() const {
  double sum = 0;
  std::size_t known = 0;
  for (const WatchedRank& rank : ranks) {
    if (!rank.loss) continue;
    sum += *rank.loss;
    ++known;
  }
  return known == 0 ? std::nullopt : std::optional(sum / static_cast<double>(known));
}

WatchState watch_state(const trace::Run& run, const verify::Report& report, trace::Nanos now,
                       bool live) {
  WatchState out;
  out.absent = report.ranks_missing;
  out.findings = report.findings;
  const std::vector<verify::GroupStreams> groups = verify::group_streams(run);
  verify::Agreement agreement(run.tables);
  verify::ReplayOptions options;
  options.live = live;
  options.semantics = verify::recorded_semantics(run);
  const verify::ReplayResult where = verify::replay(run, groups, agreement, options);
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) out.ranks.push_back(standing(run, where, r));
  if (!one_clock(run)) return out;
  Delays delays(run, groups, where, out.ranks);
  delays.measure_last_collectives();
  if (now == trace::kNoTime) return out;
  delays.measure_waits(now);
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    const std::uint32_t call = where.positions[r].waiting_in();
    const bool waits = out.ranks[r].doing == Doing::waits || out.ranks[r].doing == Doing::stuck;
    const trace::Nanos came =
        waits && call != verify::kNoCall ? delays.issued(r, call) : trace::kNoTime;
    if (came != trace::kNoTime) out.ranks[r].waiting = std::max<trace::Nanos>(now - came, 0);
  }
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const std::vector<trace::Event>& events = run.ranks[r].events;
    if (!events.empty() && events.back().time != trace::kNoTime)
      out.ranks[r].quiet = std::max<trace::Nanos>(now - events.back().time, 0);
  }
  return out;
}

}  // namespace lockstep::reports
