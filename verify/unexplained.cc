#include "verify/unexplained.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "verify/blocking/blocking.h"
#include "verify/blocking/endings.h"
#include "verify/blocking/gone.h"
#include "verify/blocking/stalls.h"
#include "verify/blocking/wait_graph.h"
#include "verify/blocking/witnesses.h"
#include "verify/causes.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

namespace {

// A cycle of calls whose kernels keep each other from running, if devices run these one
// after the other. One replay, O(events).
std::optional<Finding> deadlock_of_serial(const Context& context, ReplayOptions::Serial kernels) {
  ReplayOptions options;
  options.semantics = context.semantics;
  options.follow_record = false;
  options.serial = kernels;
  const ReplayResult where = replay(context.run, context.groups, context.agreement, options);
  const Context serial{context.run, context.groups,   where, context.modalities, context.agreement,
                       false,       context.semantics};
  for (const WaitCause& wait : wait_causes(where)) {
    if (!wait.cycle) continue;
    Finding f = explain_wait(serial, wait).finding;
    f.certainty = Certainty::observed;
    f.why +=
        " Every call was issued, and completions were not recorded: this is how it ends where a "
        "device runs its kernels one after the other.";
    return f;
  }
  return std::nullopt;
}

// Why ranks hang that issued every call over NCCL, where the order of the calls alone may tell.
//
// Two replays, because receives are the bolder assumption: a program that posts its receives early
// may have room for both kernels, so they are not to hide a cycle of collectives, which needs no
// message. Where some member never issued a call, its order after a receive explains nothing.
// Nothing where all ranks issued these calls in one order. O(events).
std::optional<Finding> deadlock_of_serial_devices(const Context& context) {
  using Serial = ReplayOptions::Serial;
  if (auto deadlock = deadlock_of_serial(context, Serial::collectives)) return deadlock;
  const bool all_issued =
      std::all_of(context.where.wait_points.begin(), context.where.wait_points.end(),
                  [](const WaitPoint& point) { return point.missing.empty(); });
  return all_issued ? deadlock_of_serial(context, Serial::collectives_and_receives) : std::nullopt;
}

// Ranks that a watchdog ended although they wait in no call, nobody waits for them, and no other
// finding explains it.
std::optional<Finding> unexplained_hang(const Context& context, OpenQuestions& questions) {
  std::vector<std::uint32_t> hung;
  for (std::uint32_t r = 0; r < context.where.positions.size(); ++r) {
    const Position& p = context.where.positions[r];
    // If only a rank's counters were recorded, nothing shows that it hangs.
    const trace::RankTrace& trace = context.run.ranks[r];
    if (trace.calls.empty() && !trace.progress.empty()) continue;
    if (p.state == Position::State::hung && p.waiting_in() == kNoCall) hung.push_back(r);
  }
  if (hung.empty()) return std::nullopt;
  if (context.semantics == CallSemantics::nccl &&
      !records_completion(context.run, context.semantics)) {
    if (auto deadlock = deadlock_of_serial_devices(context)) return deadlock;
    questions.undecided.push_back(
        fmt::format("{} hung, every call was issued by all its {}members, and completions were not "
                    "recorded: a device, the network, or the hosts themselves may be stuck",
                    context.describe_ranks(hung), has_silent_members(context) ? "known " : ""));
    return std::nullopt;
  }
  Finding f = make_finding(RuleId::host_stall);
  f.message = fmt::format("{} hung outside of any recorded call", context.describe_ranks(hung));
  f.culprits = f.ranks = context.ranks(hung);
  set_fingerprint(f, "");
  return f;
}

// Notes the calls in which ranks hang although each known member issued them, and of which nothing
// tells all members.
void note_silent_members(const Context& context, OpenQuestions& questions) {
  for (const WaitPoint& point : context.where.wait_points) {
    if (point.group == WaitPoint::kPointToPoint || !point.unknown_member || point.mismatched)
      continue;
    const GroupStreams& group = context.groups[point.group];
    const bool hangs = std::any_of(point.waiting.begin(), point.waiting.end(), [&](auto r) {
      return context.where.positions[r].state == Position::State::hung;
    });
    if (group.declared || !group.absent.empty() || !point.missing.empty() || !hangs) continue;
    const bool all_ranks = group.name == "world";
    questions.undecided.push_back(fmt::format(
        "{}, which each of them issued: a rank that {} and that the log does not mention may never "
        "have come; {}, a device or the network is stuck",
        describe_wait(context, point), all_ranks ? "has a higher number" : "belongs to the group",
        all_ranks ? fmt::format("if there is none (say --expect-ranks {})", context.run.world_size)
                  : "if there is none"));
  }
}

// Whether a finding is an error that explains why ranks ended.
bool says_how_it_ended(const Finding& f) {
  const std::string_view family = rule(f.rule).family;
  return f.severity == Severity::error &&
         (family == "blocking" || family == "matching" || family == "modality");
}

// Notes the ranks that are behind, for whom the others wait if the job stands there. `presumed`: a
// context of presumed_positions().
std::vector<Finding> note_ranks_behind(const Context& presumed, OpenQuestions& questions) {
  Causes causes(presumed);
  for (const WaitCause& wait : wait_causes(presumed.where)) {
    if (wait.stalled != SIZE_MAX) continue;
    // No rank is just late here: each issued a call that another one was to issue before its own.
    if (wait.cycle) {
      questions.undecided.push_back(
          fmt::format("all traces just end, and completions were not recorded: if {} stand there, "
                      "they wait for each other",
                      presumed.describe_ranks(wait.roots)));
      causes.add_wait(wait);
      continue;
    }
    if (std::string why = may_be_in_newest_call(presumed, wait); !why.empty()) {
      questions.undecided.push_back(std::move(why));
      continue;
    }
    questions.undecided.push_back(fmt::format(
        "all traces just end, and completions were not recorded: nothing shows whether {} {} late "
        "or would never have come",
        presumed.describe_ranks(wait.roots), wait.roots.size() == 1 ? "was" : "were"));
    causes.add_wait(wait);
  }
  causes.merge_sister_groups();
  std::vector<Finding> out = causes.take();
  for (Finding& f : out) {
    f.severity = Severity::note;
    f.certainty = Certainty::possible;
  }
  return out;
}

}  // namespace

bool has_silent_members(const Context& context) {
  return !knows_all_ranks(context.run) &&
         std::any_of(context.groups.begin(), context.groups.end(),
                     [](const GroupStreams& group) { return !group.declared; });
}

std::optional<ReplayResult> presumed_positions(const Context& context,
                                               const OpenQuestions& questions) {
  if (!questions.all_cut || !issued_alone(context) || is_snapshot(context.run)) return std::nullopt;
  ReplayOptions options;
  options.semantics = context.semantics;
  options.hung = true;
  return replay(context.run, context.groups, context.agreement, options);
}

void add_unexplained(const Context& context, const Context* presumed, bool live,
                     OpenQuestions& questions, std::vector<Finding>& findings) {
  if (findings.empty() && !live) note_silent_members(context, questions);
  if (findings.empty() && questions.undecided.empty() && !live) note_open_calls(context, questions);
  if (findings.empty()) note_divergent_numbers(context, questions);
  if (presumed != nullptr && findings.empty() && questions.undecided.empty())
    findings = note_ranks_behind(*presumed, questions);
  if (findings.empty()) {
    if (auto creation = explain_stay_in_creation(context))
      findings.push_back(std::move(creation->finding));
  }
  // While others run they may still come to wait for the killed rank, which is a better finding.
  if (live) return;
  if (findings.empty() && !is_snapshot(context.run)) {
    if (auto hang = unexplained_hang(context, questions)) findings.push_back(std::move(*hang));
  }
  if (std::none_of(findings.begin(), findings.end(), says_how_it_ended)) {
    if (auto killed = note_killed(context)) findings.push_back(std::move(*killed));
    if (auto why = interruption(context)) questions.undecided.push_back(std::move(*why));
  }
}

}  // namespace lockstep::verify
