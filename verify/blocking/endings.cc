#include "verify/blocking/endings.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "verify/advice.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

// The steps in which ranks were.
struct Steps {
  std::int32_t earliest = trace::kNone;
  std::int32_t latest = trace::kNone;

  // " in step 7", " in steps 7 to 9"; empty where no step is known.
  std::string words() const {
    if (earliest == trace::kNone) return "";
    return earliest == latest ? fmt::format(" in step {}", latest)
                              : fmt::format(" in steps {} to {}", earliest, latest);
  }
};

Steps steps_of(const Context& context, const std::vector<std::uint32_t>& ranks) {
  Steps out;
  for (const std::uint32_t r : ranks) {
    const std::int32_t step = context.where.positions[r].step;
    if (step == trace::kNone) continue;
    out.earliest = out.earliest == trace::kNone ? step : std::min(out.earliest, step);
    out.latest = std::max(out.latest, step);
  }
  return out;
}

std::size_t ranks_of_job(const Context& context) {
  return static_cast<std::size_t>(context.run.world_size);
}

// Those that stand out where a library compared the ranks.
std::vector<trace::Rank> odd_ranks(const Context& context,
                                   const std::vector<std::uint32_t>& ranks) {
  std::vector<std::string_view> exceptions;
  for (const std::uint32_t r : ranks) {
    const auto& marks = context.run.ranks[r].exceptions;
    if (!marks.empty()) exceptions.emplace_back(marks.back().what);
  }
  return trace::odd_ranks(exceptions, context.run.world_size);
}

// The call in which the rank died. Its host may have issued many more than its device had begun, so
// over NCCL it is the oldest that did not complete.
CallRef open_at_death(const Context& context, std::uint32_t rank) {
  const Position& position = context.where.positions[rank];
  const bool queued = context.semantics == CallSemantics::nccl && position.pending != kNoCall;
  return {rank, queued ? position.pending : position.last_open};
}

}  // namespace

std::optional<Cause> explain_deaths(const Context& context) {
  // The dead, and the ranks that suffered from it: by a secondary exception, or hung in a call.
  std::vector<std::uint32_t> dead;
  std::vector<std::uint32_t> hurt;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const Position& p = context.where.positions[r];
    const auto& marks = context.run.ranks[r].exceptions;
    if (p.state == State::killed || p.state == State::cut) {
      // Whom the job's user ended took nobody along that he did not want to end.
      if (context.run.ranks[r].end != trace::End::interrupted) dead.push_back(r);
    } else if ((p.state == State::raised && !marks.empty() &&
                trace::mentions_a_peer(marks.back().what)) ||
               (p.state == State::hung && p.waiting_in() != kNoCall)) {
      hurt.push_back(r);
    }
  }
  // Ranks that wait for living ones hang by themselves, whichever rank died as well.
  std::erase_if(hurt, [&](std::uint32_t r) {
    const std::size_t at = context.where.point_of[r];
    if (context.where.positions[r].state != State::hung || at == SIZE_MAX) return false;
    const std::vector<std::uint32_t>& missing = context.where.wait_points[at].missing;
    return !missing.empty() && std::none_of(missing.begin(), missing.end(), [&](std::uint32_t m) {
      return std::find(dead.begin(), dead.end(), m) != dead.end();
    });
  });
  // A death hurts those alone who are in a call with the dead.
  std::erase_if(hurt, [&](std::uint32_t r) {
    const std::size_t at = context.where.point_of[r];
    if (context.where.positions[r].state != State::hung || at == SIZE_MAX) return false;
    const WaitPoint& point = context.where.wait_points[at];
    if (point.group == WaitPoint::kPointToPoint) return false;
    const std::vector<trace::Rank>& members = context.groups[point.group].members;
    return std::none_of(dead.begin(), dead.end(), [&](std::uint32_t d) {
      return std::find(members.begin(), members.end(), context.run.ranks[d].rank) != members.end();
    });
  });
  // A death from which nobody suffers explains nothing.
  if (dead.empty() || hurt.empty()) return std::nullopt;
  Cause cause;
  cause.finding = make_finding(RuleId::host_stall);
  Finding& f = cause.finding;
  const CallRef inside = open_at_death(context, dead[0]);
  f.message = fmt::format("{} {}", context.describe_ranks(dead),
                          describe_state(context, dead[0], dead.size()));
  if (inside.call != kNoCall) {
    const trace::Call& call = context.call(inside);
    f.message += fmt::format(", inside {} ({})", context.describe_call(inside),
                             context.describe_location(inside, call.seq));
    f.group = printable(context.run.tables.str(call.group));
    f.seq = cause.seq = call.seq;
    if (call.step != trace::kNone) f.step = cause.step = call.step;
    f.what = context.run.tables.names(call.what);
  }
  f.message += fmt::format("; {} lost {} in the middle of a call", context.describe_ranks(hurt),
                           dead.size() == 1 ? "it" : "them");
  cause.deviants = dead;
  f.culprits = context.ranks(dead);
  std::vector<std::uint32_t> concerned = dead;
  concerned.insert(concerned.end(), hurt.begin(), hurt.end());
  f.ranks = context.ranks(concerned);
  for (const std::uint32_t r : dead) {
    if (f.evidence.size() < 4) {
      f.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
    }
  }
  set_fingerprint(f, "");
  return cause;
}

std::optional<std::string> interruption(const Context& context) {
  std::vector<std::uint32_t> interrupted;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r)
    if (context.run.ranks[r].end == trace::End::interrupted) interrupted.push_back(r);
  if (interrupted.empty()) return std::nullopt;
  return fmt::format("the job was interrupted{}: what would have come later is not known",
                     steps_of(context, interrupted).words());
}

namespace {

// For a run whose traces just end: ranks lost a peer in a call to which others never came. The
// processes of these ended first, by whatever signal: an exception would have been recorded.
std::optional<Finding> note_lost(const Context& context) {
  for (const WaitPoint& point : context.where.wait_points) {
    const bool all_end =
        std::all_of(point.missing.begin(), point.missing.end(),
                    [&](std::uint32_t r) { return context.run.ranks[r].end == trace::End::cut; });
    if (point.missing.empty() || !all_end) continue;
    std::vector<std::uint32_t> lost;  // the ranks that noticed
    for (const std::uint32_t r : point.waiting) {
      const auto& marks = context.run.ranks[r].exceptions;
      if (!marks.empty() && marks.back().call == context.where.positions[r].waiting_in() &&
          trace::mentions_a_peer(marks.back().what))
        lost.push_back(r);
    }
    if (lost.empty()) continue;
    Finding f = make_finding(RuleId::rank_killed);
    const Steps steps = steps_of(context, point.missing);
    const CallRef call = waiting_call(context, lost[0]);
    f.message = fmt::format(
        "{} lost the connection in {} ({}), to which {} never came: {} ended first{}, without an "
        "exception",
        context.describe_ranks(lost), context.describe_call(call),
        context.describe_location(call, seq_at(context, point)),
        context.describe_ranks(point.missing),
        point.missing.size() == 1 ? "its process" : "their processes", steps.words());
    if (steps.earliest != trace::kNone) f.step = steps.earliest;
    f.ranks = context.ranks(point.missing);
    set_fingerprint(f, "");
    return f;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> note_killed(const Context& context) {
  constexpr std::size_t kShown = 4;
  std::vector<std::uint32_t> killed;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const Position& p = context.where.positions[r];
    if (p.state == State::killed && context.run.ranks[r].end == trace::End::killed)
      killed.push_back(r);
  }
  if (killed.empty()) return note_lost(context);
  Finding f = make_finding(RuleId::rank_killed);
  const Steps steps = steps_of(context, killed);
  f.message = fmt::format("{} {} killed{}", context.describe_ranks(killed),
                          killed.size() == 1 ? "was" : "were", steps.words());
  if (steps.earliest != trace::kNone) f.step = steps.earliest;
  const std::string them = killed.size() == 1 ? "it" : "them";
  const bool waited_for = std::any_of(
      context.where.wait_points.begin(), context.where.wait_points.end(), [&](const WaitPoint& p) {
        return std::any_of(p.missing.begin(), p.missing.end(), [&](std::uint32_t r) {
          return std::binary_search(killed.begin(), killed.end(), r);
        });
      });
  f.message +=
      waited_for
          ? fmt::format("; the traces do not show what ended {}", them)
          : fmt::format("; nobody waits for {0}, and the traces do not show what ended {0}", them);
  f.ranks = context.ranks(killed);
  for (const std::uint32_t r : killed) {
    if (f.evidence.size() == kShown) break;
    f.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
  }
  set_fingerprint(f, "");
  return f;
}

Exceptions sort_exceptions(const Context& context) {
  Exceptions out;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    if (context.where.positions[r].state != State::raised) continue;
    const auto& marks = context.run.ranks[r].exceptions;
    const bool secondary = !marks.empty() && trace::mentions_a_peer(marks.back().what);
    (secondary ? out.victims : out.causes).push_back(r);
  }
  return out;
}

RuleId rule_of_exception(const Context& context, std::uint32_t rank) {
  const auto& marks = context.run.ranks[rank].exceptions;
  const bool unused = !marks.empty() && trace::mentions_unused_parameters(marks.back().what);
  return unused ? RuleId::unused_parameter : RuleId::rank_exception;
}

void advise_about_exception(const Context& context, std::uint32_t rank, Finding& finding) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  if (finding.rule != RuleId::rank_exception || trace.exceptions.empty()) return;
  Advice advice = advice_about(trace.exceptions.back().what, trace.host);
  if (!advice.fix.empty()) finding.fix = std::move(advice.fix);
  if (finding.next.empty()) finding.next = std::move(advice.next);
}

Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks) {
  Cause cause;
  cause.finding = make_finding(rule_of_exception(context, ranks[0]));
  Finding& f = cause.finding;
  f.message = fmt::format("{} {}", context.describe_ranks(ranks),
                          describe_state(context, ranks[0], ranks.size()));
  f.culprits = context.ranks(ranks);
  f.ranks = f.culprits;
  advise_about_exception(context, ranks[0], f);
  // Where all ranks raise, or will, none stands out by that.
  const auto& marks = context.run.ranks[ranks[0]].exceptions;
  const bool compared = !marks.empty() && trace::raised_by_all(marks.back().what);
  if (compared || (f.rule == RuleId::rank_exception && ranks.size() > 1 &&
                   ranks.size() == ranks_of_job(context))) {
    f.culprits = odd_ranks(context, ranks);
  }
  cause.deviants = ranks;
  const Position& position = context.where.positions[ranks[0]];
  if (position.step != trace::kNone) f.step = cause.step = position.step;
  for (const std::uint32_t r : ranks) {
    f.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
    if (f.evidence.size() >= 4) break;
  }
  set_fingerprint(f, "");
  return cause;
}

}  // namespace lockstep::verify
