#include "verify/lost_records.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trace/signature.h"
#include "verify/context.h"
#include "verify/rules/rules.h"
#include "verify/verdict.h"

namespace lockstep::verify {

namespace {

using CallCounts = std::map<trace::GroupId, std::uint64_t>;
// Of one sender, by group and receiver.
using MessageCounts = std::map<std::pair<trace::GroupId, trace::Rank>, std::uint64_t>;

// What must have been issued, since others saw it complete.
struct Completed {
  std::map<trace::Rank, CallCounts> collectives;  // by member
  std::map<trace::Rank, MessageCounts> messages;  // by sender
};

// Of the ranks in question. The members of a group are those that a rank that completed its calls
// declares: one whose trace was cut off may not have come to do so. O(calls + memberships).
Completed completed_calls(const trace::Run& run, const std::set<trace::Rank>& in_question) {
  Completed out;
  CallCounts counts;
  std::map<trace::GroupId, trace::RankList> members;
  for (const trace::RankTrace& trace : run.ranks) {
    CallCounts own;
    for (const trace::Call& call : trace.calls) {
      if (!call.has(trace::kCompleted)) continue;
      const trace::Op op = run.tables.op(call);
      if (trace::completes_together(op)) {
        std::uint64_t& count = own[call.group];
        count = std::max(count, call.seq + std::uint64_t{1});
      } else if (op == trace::Op::recv && trace.dropped == 0) {
        ++out.messages[call.peer][{call.group, trace.rank}];
      }
    }
    for (const trace::RankTrace::Membership& membership : trace.groups)
      if (own.contains(membership.group)) members.emplace(membership.group, membership.ranks);
    for (const auto& [group, count] : own) counts[group] = std::max(counts[group], count);
  }
  for (const auto& [group, ranks] : members)
    for (const trace::Rank rank : ranks)
      if (in_question.contains(rank)) out.collectives[rank].emplace(group, counts[group]);
  return out;
}

// Whether the rank issued calls that its trace ends too early to hold.
bool went_on(const trace::Run& run, const trace::RankTrace& trace, const Completed& completed) {
  CallCounts collectives;
  MessageCounts sent;
  for (const trace::Call& call : trace.calls) {
    if (run.tables.op(call) == trace::Op::send) {
      ++sent[{call.group, call.peer}];
    } else if (!run.tables.is_message(call)) {
      std::uint64_t& count = collectives[call.group];
      count = std::max(count, call.seq + std::uint64_t{1});
    }
  }
  const auto lacks_any_of = [&](const auto& own, const auto& completed_by_rank) {
    const auto all = completed_by_rank.find(trace.rank);
    return all != completed_by_rank.end() &&
           std::any_of(all->second.begin(), all->second.end(), [&](const auto& entry) {
             const auto found = own.find(entry.first);
             return (found == own.end() ? 0 : found->second) < entry.second;
           });
  };
  return lacks_any_of(collectives, completed.collectives) ||
         (trace.dropped == 0 && lacks_any_of(sent, completed.messages));
}

// Damaged, but for the record in which the file was cut off.
bool has_damage_within(const trace::RankTrace& trace) {
  return trace.damaged_count > (trace.damaged_at_end ? 1 : 0);
}

// Whether the trace may end before its rank did. A snapshot is no such trace: it may have been
// taken before those of other ranks.
bool has_no_end(const trace::RankTrace& trace) {
  return trace.end == trace::End::cut && !trace.end_is_told && !trace.snapshot;
}

// Ranks whose traces lack records.
std::set<trace::Rank> ranks_with_losses(const trace::Run& run) {
  std::set<trace::Rank> in_question;
  for (const trace::RankTrace& trace : run.ranks)
    if (has_no_end(trace)) in_question.insert(trace.rank);
  Completed completed;
  if (!in_question.empty()) completed = completed_calls(run, in_question);
  std::set<trace::Rank> out;
  for (const trace::RankTrace& trace : run.ranks) {
    // A dump also counts names that it could mend. Where it lost an entry, its end is open.
    const bool lost = has_damage_within(trace) && (!trace.snapshot || trace.open_ended);
    // The record in which a file was cut off may have been a call. A process that is killed leaves
    // one as well, where its output was buffered: it had gone on.
    const bool went_beyond =
        has_no_end(trace) && (trace.damaged_at_end || went_on(run, trace, completed));
    if (lost || went_beyond) out.insert(trace.rank);
  }
  return out;
}

trace::Run run_without(const trace::Run& run, const std::set<trace::Rank>& ranks) {
  trace::Run out;
  std::copy_if(run.ranks.begin(), run.ranks.end(), std::back_inserter(out.ranks),
               [&](const trace::RankTrace& trace) { return !ranks.contains(trace.rank); });
  trace::move_to_tables(out.tables, run.tables, out.ranks);
  out.world_size = run.world_size;
  out.unknown = run.unknown;
  out.unreadable = run.unreadable;
  out.header_conflicts = run.header_conflicts;
  out.notes = run.notes;
  out.sources = run.sources;
  return out;
}

bool compares_calls(const Finding& f) {
  const std::string_view family = rule(f.rule).family;
  return (family == "matching" && f.rule != RuleId::group_divergence) || family == "blocking" ||
         f.rule == RuleId::never_waited;
}

// Whether the finding has culprits, and it holds for the traces of all of them.
template <class Predicate>
bool holds_for_culprits(const trace::Run& run, const Finding& f, Predicate holds) {
  return !f.culprits.empty() &&
         std::all_of(f.culprits.begin(), f.culprits.end(), [&](trace::Rank rank) {
           const trace::RankTrace* const trace = run.find(rank);
           return trace != nullptr && holds(*trace);
         });
}

// Whether the finding says that the culprits' calls differ from those of others, and all their
// dumps hold names that had to be mended.
bool rests_on_mended_names(const trace::Run& run, const Finding& f) {
  if (rule(f.rule).family != "matching" && f.rule != RuleId::p2p_unmatched &&
      f.rule != RuleId::p2p_size) {
    return false;
  }
  return holds_for_culprits(run, f, [](const trace::RankTrace& trace) {
    return trace.snapshot && has_damage_within(trace);
  });
}

// Whether each of the finding's culprits recorded how it ended.
bool recorded_their_ends(const trace::Run& run, const Finding& f) {
  return holds_for_culprits(run, f, [](const trace::RankTrace& trace) {
    return trace.end_is_told || !trace.exceptions.empty() || trace.end == trace::End::exception ||
           trace.end == trace::End::killed;
  });
}

// Two calls with the same parameters, both read, that differ: only such a finding names parameters
// and compares what calls say of themselves.
bool is_contradiction(const Finding& f) {
  switch (f.rule) {
    case RuleId::op_mismatch:
    case RuleId::size_mismatch:
    case RuleId::dtype_mismatch:
    case RuleId::redop_mismatch:
    case RuleId::root_mismatch:
      return !f.what.empty();
    default:
      return false;
  }
}

}  // namespace

void doubt_findings_of_lost_records(const trace::Run& run, Report& report,
                                    const std::function<Report(const trace::Run&)>& verify_others) {
  const auto holds = [&](const Finding& f) {
    return !compares_calls(f) || is_contradiction(f) || recorded_their_ends(run, f);
  };
  if (std::all_of(report.findings.begin(), report.findings.end(), holds)) return;
  const std::set<trace::Rank> lost = ranks_with_losses(run);
  Report without;
  if (!lost.empty()) without = verify_others(run_without(run, lost));
  const auto is_among = [](const Finding& f, const std::vector<Finding>& findings) {
    return std::any_of(findings.begin(), findings.end(), [&](const Finding& other) {
      return other.rule == f.rule && other.culprits == f.culprits && other.group == f.group;
    });
  };
  std::vector<std::string> questions;
  std::erase_if(report.findings, [&](const Finding& f) {
    const bool mended = compares_calls(f) && rests_on_mended_names(run, f);
    if (!mended && (holds(f) || lost.empty() || is_among(f, without.findings))) return false;
    const std::string& told = f.message.empty() ? f.headline : f.message;
    questions.push_back(
        mended ? fmt::format("{}: or a damaged record of its dump only makes it look so", told)
               : fmt::format("{}: or lost records of {} only make it look so", told,
                             describe_ranks({lost.begin(), lost.end()})));
    return true;
  });
  if (questions.empty()) return;
  for (Finding& f : without.findings) {
    const bool added = f.severity != Severity::note && compares_calls(f);
    if (added && !is_among(f, report.findings)) report.findings.push_back(std::move(f));
  }
  sort_findings(report.findings);
  report.unknown.insert(report.unknown.begin(), std::move_iterator(questions.begin()),
                        std::move_iterator(questions.end()));
  const bool serious = std::any_of(report.findings.begin(), report.findings.end(),
                                   [](const Finding& f) { return f.severity != Severity::note; });
  report.verdict = serious ? Verdict::findings : Verdict::inconclusive;
}

}  // namespace lockstep::verify
