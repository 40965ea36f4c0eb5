#include "verify/verdict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/group_divergence.h"
#include "verify/rules/rules.h"

namespace lockstep::verify {
namespace {

// Whether the report has a finding of this rule.
bool has_finding(const Report& report, RuleId id) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [id](const Finding& f) { return f.rule == id; });
}

// Whether calls are recorded, and none names the parameters that it carries.
bool names_no_parameters(const trace::Run& run) {
  bool any_call = false;
  for (const trace::RankTrace& trace : run.ranks) {
    any_call |= !trace.calls.empty();
    if (trace.occurs.parameters &&
        std::any_of(trace.calls.begin(), trace.calls.end(),
                    [](const trace::Call& c) { return c.what.value != 0; })) {
      return false;
    }
  }
  return any_call;
}

}  // namespace

void note_undecided_traces(const trace::Run& run, OpenQuestions& questions) {
  for (const trace::RankTrace& trace : run.ranks) {
    if (trace.inconclusive.empty()) continue;
    std::string reason = printable(trace.inconclusive);
    const bool known = std::find(questions.undecided.begin(), questions.undecided.end(), reason) !=
                       questions.undecided.end();
    if (!known) questions.undecided.push_back(std::move(reason));
  }
}

namespace {

// By group: how many calls completed at least, by the newest one that did and that the trace holds.
std::map<trace::GroupId, std::uint64_t> completed_calls(const trace::RankTrace& trace) {
  std::map<trace::GroupId, std::uint64_t> out;
  for (const trace::Call& call : trace.calls) {
    if (!call.has(trace::kCompleted)) continue;
    std::uint64_t& count = out[call.group];
    count = std::max(count, call.seq + std::uint64_t{1});
  }
  return out;
}

// Notes a rank whose own counters say that it enqueued more calls in a group than completed, where
// its ring has overwritten these calls since. O(calls · log).
void note_unfinished_counts(const Context& context, OpenQuestions& questions) {
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const trace::RankTrace& trace = context.run.ranks[r];
    if (trace.progress.empty()) continue;
    const std::map<trace::GroupId, std::uint64_t> completed = completed_calls(trace);
    for (const trace::RankTrace::Progress& progress : trace.progress) {
      if (!progress.enqueued || !progress.completed || *progress.enqueued <= *progress.completed)
        continue;
      const auto held = completed.find(progress.group);
      if (held != completed.end() && held->second >= *progress.enqueued) continue;
      questions.undecided.push_back(fmt::format(
          "{} had enqueued {} in {} and completed {}, by its counters: its dump does not hold the "
          "open ones any more (a larger TORCH_FR_BUFFER_SIZE keeps them)",
          context.describe_ranks({r}), plural(*progress.enqueued, "call"),
          context.describe_group(r, progress.group), *progress.completed));
      return;
    }
  }
}

}  // namespace

void note_open_calls(const Context& context, OpenQuestions& questions) {
  const auto holds_no_call = [](const trace::RankTrace& trace) {
    return trace.snapshot && trace.calls.empty() && trace.progress.empty();
  };
  const std::vector<trace::RankTrace>& ranks = context.run.ranks;
  if (!ranks.empty() && std::all_of(ranks.begin(), ranks.end(), holds_no_call)) {
    questions.undecided.emplace_back(
        "no recording holds a call: nothing was called, or the recorder was off (Flight Recorder "
        "with TORCH_FR_BUFFER_SIZE=0)");
    return;
  }
  if (context.semantics != CallSemantics::nccl && !is_snapshot(context.run)) return;
  std::vector<std::uint32_t> open;
  for (std::uint32_t r = 0; r < context.where.positions.size(); ++r) {
    if (context.where.positions[r].last_open != kNoCall) open.push_back(r);
  }
  if (open.empty()) {
    note_unfinished_counts(context, questions);
    return;
  }
  const CallRef first{open[0], context.where.positions[open[0]].last_open};
  questions.undecided.push_back(fmt::format(
      "{} had unfinished calls, {} ({}) among them: the traces do not show whether these hang",
      context.describe_ranks(open), context.describe_call(first),
      context.describe_location(first, context.call(first).seq)));
}

void note_divergent_numbers(const Context& context, OpenQuestions& questions) {
  for (const GroupStreams& group : context.groups) {
    if (!group.divergent_numbers) continue;
    const std::optional<DivergentNumbers>& diverged = group.divergent_numbers;
    const CallRef ref{diverged->deviants.front(), diverged->call};
    questions.undecided.push_back(fmt::format(
        "{} recorded {} as {}, {} as call {}: a call between is missing from a recording, or the "
        "calls from there on are paired with the wrong ones",
        context.describe_ranks(diverged->deviants), context.describe_call(ref),
        context.describe_location(ref, context.call(ref).seq),
        context.describe_ranks(diverged->others),
        diverged->others_seq + context.run.ranks[ref.rank].first_number));
  }
}

void list_unknowns(const Context& context, const OpenQuestions& questions, Report& report) {
  report.unknown = questions.undecided;
  report.unknown.insert(report.unknown.end(), questions.unknown.begin(), questions.unknown.end());
  report.unknown.insert(report.unknown.end(), context.run.unknown.begin(),
                        context.run.unknown.end());
  for (const GroupStreams& group : context.groups) {
    if (!group.comparable) {
      report.unknown.push_back(fmt::format(
          "group {}: the streams start mid-run (a bounded recorder dropped the oldest events), and "
          "nothing shows how they align",
          group.name));
    }
  }
  if (context.semantics == CallSemantics::gloo && is_snapshot(context.run)) {
    report.unknown.emplace_back(
        "messages (send, recv): not in Flight Recorder's dumps over Gloo, so a rank that hangs in "
        "one looks as if it computed; where messages are used, add the ranks' stacks (py-spy "
        "dump)");
  }
  if (context.where.has_wildcards) {
    report.unknown.emplace_back(
        "receives from any source, or whose source was not recorded: taken to be matched");
  }
  if (questions.unsearched) {
    report.unknown.emplace_back(
        "receives from any source: not every order of the messages was tried, there are too many, "
        "or traces are missing");
  }
  if (!questions.search.steered.empty()) {
    report.unknown.push_back(
        fmt::format("receives from any source of {}: what follows depends on the sender, so that "
                    "this run does not show other orders",
                    context.describe_ranks(questions.search.steered)));
  }
  if (questions.waits_unknown) {
    report.unknown.emplace_back(
        "waits: not recorded, so concurrent calls of two communicators cannot be distinguished "
        "from calls that a wait separates");
  }
  if (creation_order_unknown(context.run)) {
    report.unknown.emplace_back(
        "the order in which ranks created their process groups: not recorded");
  }
  if (names_no_parameters(context.run)) {
    report.unknown.emplace_back(
        "parameters carried by a call: not recorded, so equal calls that pair different parameters "
        "cannot be seen");
  }
  for (const trace::Run::Unreadable& file : context.run.unreadable) {
    report.unknown.push_back(fmt::format("unreadable file: {}", file.error.summary()));
  }
}

void sort_findings(std::vector<Finding>& findings) {
  const bool cycle = std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.severity == Severity::error && f.certainty == Certainty::proven &&
           (f.rule == RuleId::deadlock || f.rule == RuleId::cross_group_deadlock ||
            f.rule == RuleId::p2p_cycle);
  });
  // What a job reads neither stops it nor makes its calls differ. So what does so leads.
  const bool calls = std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    const std::string_view family = rule(f.rule).family;
    return f.severity == Severity::error &&
           (family == "matching" || family == "blocking" || family == "modality");
  });
  std::stable_sort(findings.begin(), findings.end(), [&](const Finding& a, const Finding& b) {
    const auto key = [&](const Finding& f) {
      const std::int64_t step = f.step.value_or(INT64_MAX);
      // Notes with a headline are about ranks that seem to have stopped; the others are about
      // files.
      const bool only_note = f.severity == Severity::note && f.headline.empty();
      return std::tuple(-static_cast<int>(f.severity), only_note,
                        calls && rule(f.rule).family == "data",
                        cycle && f.rule == RuleId::host_stall, static_cast<int>(f.certainty), step,
                        f.seq.value_or(UINT64_MAX));
    };
    return key(a) < key(b);
  });
}

void note_unexplained_hang(const Report& report, const trace::Run& run, OpenQuestions& questions) {
  const bool explained = std::any_of(report.findings.begin(), report.findings.end(),
                                     [](const Finding& f) { return f.severity != Severity::note; });
  const bool all_ended = std::all_of(run.ranks.begin(), run.ranks.end(), [](const auto& trace) {
    return trace.end == trace::End::clean;
  });
  if (explained || all_ended || !questions.undecided.empty()) return;
  const auto timeout = std::find_if(run.notes.begin(), run.notes.end(), [](const auto& note) {
    return note.kind == trace::RankNote::Kind::watchdog;
  });
  // Who takes the stacks of ranks suspects that these hang.
  const bool any_stack = std::any_of(run.notes.begin(), run.notes.end(), [](const auto& note) {
    return note.kind == trace::RankNote::Kind::stack;
  });
  const bool lacks_messages = std::any_of(
      run.ranks.begin(), run.ranks.end(),
      [](const trace::RankTrace& trace) { return trace.snapshot && trace.backend == "gloo"; });
  if (!report.hung && timeout == run.notes.end() && any_stack && lacks_messages) {
    questions.undecided.emplace_back(
        "the stacks show where the ranks were: whether they hang there, in a message, Flight "
        "Recorder's dumps over Gloo cannot tell, since they hold none");
  }
  if (report.hung) {
    questions.undecided.emplace_back("the job is said to have hung, and no trace shows why");
  } else if (timeout != run.notes.end()) {
    questions.undecided.push_back(fmt::format("a call timed out ({}), and no trace shows why",
                                              printable(timeout->location.str())));
  }
}

Verdict verdict_of(const Report& report, const trace::Run& run, const OpenQuestions& questions) {
  const bool serious = std::any_of(report.findings.begin(), report.findings.end(),
                                   [](const Finding& f) { return f.severity != Severity::note; });
  if (serious) return Verdict::findings;
  const bool blind = !report.ranks_missing.empty() || !report.ranks_damaged.empty() ||
                     !run.unreadable.empty() || run.ranks.empty() || questions.unsearched ||
                     !questions.undecided.empty() || has_finding(report, RuleId::rank_killed);
  return blind ? Verdict::inconclusive : Verdict::clean;
}

}  // namespace lockstep::verify
