#include "verify/replay/replay.h"

#include <algorithm>

#include "verify/replay/advance.h"
#include "verify/replay/positions.h"
#include "verify/replay/stuck.h"
#include "verify/replay/wait_points.h"

namespace lockstep::verify {

namespace {

// Lists the messages that nobody took.
void collect_unmatched(const Advance& at, ReplayResult& out) {
  for (const Mailbox::Posted& p : at.unmet()) {
    // A recorded completion shows a partner that was not recorded.
    const bool passed =
        at.options().follow_record && at.call(p.rank, p.call).has(trace::kCompleted);
    if (!passed) out.unmatched.emplace_back(p.rank, p.call);
    if (at.signature(p.rank, p.call).op == trace::Op::send)
      out.left_messages.emplace_back(p.rank, p.call);
  }
  std::sort(out.left_messages.begin(), out.left_messages.end());
  std::sort(out.unmatched.begin(), out.unmatched.end());
}

}  // namespace

bool was_recorded(const trace::Run& run) {
  const auto any_ends = [&](trace::End end) {
    return std::any_of(run.ranks.begin(), run.ranks.end(),
                       [&](const trace::RankTrace& trace) { return trace.end == end; });
  };
  // Who writes down a program marks the ends of all ranks, or of none.
  if (any_ends(trace::End::clean) && any_ends(trace::End::cut)) return true;
  return std::any_of(run.ranks.begin(), run.ranks.end(), [](const trace::RankTrace& trace) {
    if (trace.end != trace::End::clean && trace.end != trace::End::cut) return true;
    return std::any_of(trace.events.begin(), trace.events.end(), [](const trace::Event& e) {
      return e.time != trace::kNoTime || e.kind == trace::EventKind::complete ||
             e.kind == trace::EventKind::waited || e.kind == trace::EventKind::start;
    });
  });
}

ReplayResult replay(const trace::Run& run, const std::vector<GroupStreams>& groups,
                    Agreement& agreement, const ReplayOptions& options) {
  Advance advance(run, groups, agreement, options);
  advance.to_the_end();
  ReplayResult out;
  out.size_mismatches = advance.size_mismatches();
  out.has_wildcards = advance.has_wildcards();
  collect_unmatched(advance, out);
  out.positions = final_positions(advance);
  find_wait_points(advance, out.positions, out);
  out.stuck = find_stuck(out.positions, out.wait_points);
  return out;
}

}  // namespace lockstep::verify
