#include "verify/verify.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "verify/blocking/blocking.h"
#include "verify/blocking/device_stall.h"
#include "verify/blocking/order_inversions.h"
#include "verify/blocking/stalls.h"
#include "verify/blocking/wait_graph.h"
#include "verify/blocking/witnesses.h"
#include "verify/causes.h"
#include "verify/context.h"
#include "verify/finding_labels.h"
#include "verify/input.h"
#include "verify/job_evidence.h"
#include "verify/lifecycle.h"
#include "verify/lost_records.h"
#include "verify/matching/group_divergence.h"
#include "verify/matching/matching.h"
#include "verify/numbers/check_numbers.h"
#include "verify/replay/replay.h"
#include "verify/samples/check_samples.h"
#include "verify/schedules/rendezvous.h"
#include "verify/schedules/search.h"
#include "verify/schedules/wildcards.h"
#include "verify/streams/deviations.h"
#include "verify/streams/odd_programs.h"
#include "verify/streams/streams.h"
#include "verify/unexplained.h"
#include "verify/verdict.h"
#include "verify/waits.h"

namespace lockstep::verify {

namespace {

// Whether damaged traces may be the only reason for a deviation. Lost lines look like calls that
// were left out, added or moved. Where all traces of one party are damaged, only a contradiction
// between two calls with the same parameters counts: both lines were read, and they differ.
bool only_damage(const Context& context, const Deviation& d) {
  const auto damaged = [&](const std::vector<std::uint32_t>& ranks) {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](std::uint32_t r) { return context.run.ranks[r].damaged_count > 0; });
  };
  if (!damaged(d.deviants) && !damaged(d.reference)) return false;
  const bool contradiction = d.kind == Deviation::Kind::replaced && d.expected.call != kNoCall &&
                             d.got.call != kNoCall && context.call(d.expected).what.value != 0 &&
                             context.call(d.expected).what == context.call(d.got).what;
  return !contradiction;
}

// Adds what other legal schedules would do wrong, where the recorded schedule had no fault.
void find_possible_causes(const Context& context, OpenQuestions& questions, Causes& causes) {
  // Only for runs that ended well: of a rank that died or hung, the further calls are unknown.
  const ScheduleSearch& search = questions.search;
  const bool ended =
      std::all_of(context.where.positions.begin(), context.where.positions.end(),
                  [](const Position& p) { return p.state == Position::State::finished; });
  if (!ended) return;
  const bool mpi = context.semantics == CallSemantics::mpi;
  if (!search.whole) return;  // a message of a rank that left no trace may be the missing one
  if (auto race = explain_possible_race(context, search, mpi)) {
    causes.add(std::move(*race));
    return;
  }
  // MPI's standard sends may buffer or wait for their receive. The search above let them buffer.
  // Now let them wait: without wildcards one replay shows whether that deadlocks, with wildcards
  // every order of the messages has to be searched again.
  if (mpi && !search.has_wildcards) {
    causes.add(check_rendezvous(context, nullptr));
  } else if (mpi) {
    SearchOptions strict;
    strict.fitting = search.fitting ? &*search.fitting : nullptr;
    const ScheduleSearch unbuffered =
        search_schedules(context.run, context.groups, context.semantics, strict);
    questions.unsearched |= !unbuffered.complete && !unbuffered.stuck;
    if (unbuffered.stuck && unbuffered.ending) {
      if (auto race = explain_possible_race(context, unbuffered, false)) {
        causes.add(std::move(*race));
      }
    } else if (unbuffered.stuck) {
      const WildcardChoices choices = choices_of(*unbuffered.stuck);
      causes.add(check_rendezvous(context, &choices));
    }
  }
  OrderInversions inversions = check_order_inversions(context);
  causes.add(std::move(inversions.causes));
  questions.waits_unknown = inversions.waits_unknown;
}

// Whether nothing but their number speaks for the ranks that a deviation refers to: not the steps
// either.
bool is_by_numbers_alone(const Context& context, const Deviation& d) {
  if (d.deviants.size() > d.reference.size() || d.got.call == kNoCall ||
      d.expected.call == kNoCall) {
    return false;
  }
  const std::int32_t expected = context.call(d.expected).step;
  const std::int32_t got = context.call(d.got).step;
  return expected == got || expected == trace::kNone || got == trace::kNone;
}

// The deviations of all groups, by group. Where two equal sides of one group deviate from each
// other, a rank that deviates alone from most of another group is the one that does so here, too.
// Not of `explained` groups, by number. Says so where there are too many to look for all.
std::vector<std::vector<Deviation>> deviations_of(const Context& context,
                                                  const std::vector<bool>& explained,
                                                  std::vector<std::string>& unknown) {
  std::vector<std::vector<Deviation>> out(context.groups.size());
  std::vector<std::uint32_t> alone;  // ranks that a majority singles out
  EditBudget budget;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    if (explained[g]) continue;
    out[g] = find_deviations(context.run, context.groups, g, context.where, context.modalities,
                             context.agreement, budget);
    if (out[g].empty()) continue;
    const Deviation& first = out[g].front();
    if (first.singled_out && first.deviants.size() < first.reference.size())
      unite(alone, first.deviants);
  }
  if (budget.is_spent())
    unknown.emplace_back("further differences between the calls of ranks: there are too many");
  const auto all_alone = [&](const std::vector<std::uint32_t>& ranks) {
    return std::includes(alone.begin(), alone.end(), ranks.begin(), ranks.end());
  };
  for (std::vector<Deviation>& of_group : out) {
    for (Deviation& d : of_group) {
      if (d.deviants.size() != d.reference.size() || d.expected.call == kNoCall ||
          d.got.call == kNoCall || all_alone(d.deviants) || !all_alone(d.reference)) {
        continue;
      }
      turn_around(d);
      d.singled_out = true;
    }
  }
  return out;
}

// Adds calls that do not match across ranks. A rank that has only issued fewer calls so far, or
// whose file ends, does not deviate: skew is not an error.
void add_deviations(const Context& context, std::vector<std::string>& unknown, Causes& causes) {
  // In a group whose streams deviate, later indexes pair unrelated calls: checks that compare by
  // index would only repeat the deviation in other words.
  std::vector<bool> deviates(context.groups.size());
  const auto add_elsewhere = [&](std::vector<Cause> found) {
    std::erase_if(found, [&](const Cause& cause) { return deviates[cause.group]; });
    causes.add(std::move(found));
  };
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    if (auto race = check_thread_order(context, g)) {
      deviates[g] = true;
      causes.add(std::move(*race));
    }
  }
  const std::vector<std::vector<Deviation>> deviations = deviations_of(context, deviates, unknown);
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    for (const Deviation& d : deviations[g]) {
      if (only_damage(context, d)) continue;
      // Later deviations follow from the first one.
      const bool is_first = !deviates[g];
      deviates[g] = true;
      std::optional<Cause> odd;
      if (is_first && ((is_by_numbers_alone(context, d) &&
                        is_odd_program_of_others(context, d.deviants, d.reference, d.got.call)) ||
                       is_beginning_of(context, d))) {
        odd = explain_odd_program(context, *context.odd_program);
      }
      causes.add(odd ? std::move(*odd) : explain_deviation(context, d));
    }
  }
  add_elsewhere(check_splits(context));
  causes.add(check_forms(context, deviates));
  causes.add(check_point_to_point(context));
  add_elsewhere(check_exchange_totals(context));
  add_elsewhere(check_step_offsets(context));
}

// Adds a stalled device with the waits that follow from it. False where no device stalls.
bool add_device_stall(const Context& context, OpenQuestions& questions, Causes& causes) {
  constexpr std::size_t kWaitsShown = 4;  // all follow from one device, and look alike
  DeviceStall stall = find_device_stall(context);
  if (!stall.undecided.empty()) questions.undecided.push_back(std::move(stall.undecided));
  if (!stall.cause) return false;
  std::vector<Finding>& consequences = stall.cause->finding.consequences;
  for (const WaitCause& wait : wait_causes(context.where)) {
    if (consequences.size() >= kWaitsShown) break;
    consequences.push_back(wait_consequence(context, wait));
  }
  causes.add(std::move(*stall.cause));
  return true;
}

// Adds what can only be judged when the ranks have ended: requests never waited for, buffers
// accessed too early, and, where nothing else was found, possible causes. Takes those of `orders`
// (process groups created in different orders) that explain a hang without another cause.
void add_at_the_end(const Context& context, OpenQuestions& questions, std::vector<Cause>& orders,
                    Causes& causes) {
  if (causes.empty()) {
    const auto explains = std::stable_partition(orders.begin(), orders.end(),
                                                [](const Cause& c) { return !c.can_block; });
    causes.add(std::vector<Cause>(std::make_move_iterator(explains),
                                  std::make_move_iterator(orders.end())));
    orders.erase(explains, orders.end());
  }
  if (causes.empty()) find_possible_causes(context, questions, causes);
  causes.add(check_lifecycle(context));
  causes.add(check_buffers(context));
}

// Runs all analyses. The order matters: a cause is added before what it explains, so that the
// consequence finds it. Groups with different members explain deviations, deviations explain waits,
// waits explain deaths and exceptions, and all of them explain wrong numbers.
void find_causes(const Context& context, OpenQuestions& questions, Causes& causes) {
  causes.add(check_members(context));
  add_deviations(context, questions.unknown, causes);
  if (causes.empty()) {
    if (auto race = explain_observed_race(context, questions.search)) causes.add(std::move(*race));
  }
  // Messages that differ in their tag alone. Not for c10d, where a message with another tag is more
  // often part of a cycle than a wrong tag.
  if (causes.empty() && !context.live && context.semantics == CallSemantics::mpi) {
    causes.add(check_near_misses(context));
  }
  causes.fold_deviations();
  std::vector<ExchangedNames> exchanged = check_names(context);
  std::erase_if(exchanged,
                [&](ExchangedNames& names) { return causes.add_exchanged_names(names); });
  const bool snapshot = is_snapshot(context.run);
  const std::string late = snapshot ? may_be_late(context) : "";
  // Gloo's calls run on the hosts, not on devices.
  const bool devices = snapshot && context.semantics != CallSemantics::gloo && late.empty();
  if (devices && causes.empty() && add_device_stall(context, questions, causes)) return;
  add_wait_causes(context, late, questions, causes);
  causes.add_deaths();
  causes.add_exceptions();
  std::vector<Cause> orders = check_creation_order(context);
  if (!context.live) add_at_the_end(context, questions, orders, causes);
  for (ExchangedNames& names : exchanged) causes.add(std::move(names.cause));
  // If there is a hang, something else explains it: the remaining orders are warnings.
  for (Cause& order : orders) order.finding.severity = Severity::warning;
  causes.add(std::move(orders));
  causes.add_wrong_values(check_numbers(context, questions.unknown, questions.undecided));
  causes.add(check_samples(context, questions.unknown));
}

// For a run that looks like a moment of a running job.
constexpr const char* kUnlessHung =
    "whether the job had hung when this was recorded: if it had, `lockstep verify --hung` says who "
    "held it up";

// Whether the finding or a consequence of it proves that ranks cannot continue.
bool holds_deadlock(const Finding& f) {
  const bool blocks = rule(f.rule).family == "blocking" || f.rule == RuleId::modality_divergence ||
                      rule(f.rule).family == "matching";
  if (blocks && f.certainty == Certainty::proven) return true;
  return std::any_of(f.consequences.begin(), f.consequences.end(), holds_deadlock);
}

// The report's account of its input: which ranks were read, are missing or damaged.
Report start_report(const trace::Run& run, const InputState& input, bool hung) {
  Report report;
  report.ranks_expected = run.world_size;
  for (const trace::RankTrace& trace : run.ranks) report.ranks_read.push_back(trace.rank);
  report.ranks_missing = input.missing;
  report.events = run.event_count();
  report.hung = hung;
  return report;
}

// Adds findings about the input itself, such as missing ranks, and says who waits for these.
// `presumed`: a context of presumed_positions(), or the recorded one.
void add_input_findings(const Context& presumed, std::vector<Finding> findings, Report& report) {
  for (Finding& note : findings) {
    if (note.rule == RuleId::missing_rank) {
      note_who_waits_for_missing(presumed, report.ranks_missing, note);
    }
  }
  report.findings.insert(report.findings.end(), findings.begin(), findings.end());
  // An error that only tells who gave up waiting leaves the headline to whom they waited for.
  const auto is_victim = [](const Finding& f) {
    return f.severity == Severity::error && f.rule == RuleId::rank_exception &&
           f.culprits.empty() && f.headline.empty();
  };
  const auto victim = std::find_if(report.findings.begin(), report.findings.end(), is_victim);
  const auto note = std::find_if(
      report.findings.begin(), report.findings.end(),
      [](const Finding& f) { return f.rule == RuleId::missing_rank && !f.headline.empty(); });
  if (victim == report.findings.end() || note == report.findings.end()) return;
  victim->headline = std::exchange(note->headline, {});
  victim->next = std::exchange(note->next, {});
}

// What is open before the analyses: what the readers of the traces could not decide, and which
// messages receives from any source took. Searching other orders of messages needs whole programs.
OpenQuestions open_questions(const trace::Run& run, const std::vector<GroupStreams>& groups,
                             CallSemantics semantics, bool may_go_on) {
  OpenQuestions out;
  note_undecided_traces(run, out);
  if (may_go_on) return out;
  SearchOptions search;
  search.buffered_sends = semantics == CallSemantics::mpi;
  out.search = search_schedules(run, groups, semantics, search);
  out.unsearched = !out.search.complete && !out.search.stuck;
  return out;
}

// Whether the verdict would be `findings` for a job that is known to have hung. Costs another
// verify().
bool is_decided_if_hung(const trace::Run& run, VerifyOptions options) {
  options.hung = true;
  return verify(run, options).verdict == Verdict::findings;
}

// The verdict, if what was read is all that there was.
Report judge(const trace::Run& run, const VerifyOptions& options) {
  // Without any end mark, the traces were copied while the job ran, or the whole job died at once:
  // a rank with fewer calls may just have been slower. An end that its log tells is no mark: the
  // recordings of the others do not say whether these ended, too.
  const bool unended = std::all_of(
      run.ranks.begin(), run.ranks.end(),
      [](const trace::RankTrace& t) { return t.end == trace::End::cut || t.end_is_told; });
  const bool may_go_on = options.live || (unended && !options.hung);
  InputState input = check_input(run, options.live || options.hung);
  Report report = start_report(run, input, options.hung);

  // What the analyses share: streams, what every rank's batch held, and how far each rank gets.
  const std::vector<GroupStreams> groups = group_streams(run);
  Agreement agreement(run.tables);
  const Modalities modalities(run);
  const CallSemantics semantics = options.semantics.value_or(recorded_semantics(run));
  OpenQuestions questions = open_questions(run, groups, semantics, may_go_on);
  questions.all_cut = unended && may_go_on && !options.live;
  ReplayOptions replaying;
  replaying.live = may_go_on;
  replaying.hung = options.hung;
  replaying.semantics = semantics;
  const ReplayResult where =
      replay_as_recorded(run, groups, agreement, replaying, questions.search);
  std::optional<OddProgram> odd_program;
  std::optional<UnevenExchange> uneven_exchange;
  // Where nothing completes, calls that pair with the wrong ones keep nobody waiting.
  const bool waits = !where.wait_points.empty();
  const bool differ = std::any_of(groups.begin(), groups.end(),
                                  [](const GroupStreams& g) { return g.classes.size() > 1; });
  if (waits || (differ && !records_completion(run, semantics)))
    odd_program = find_odd_program(run, agreement);
  if (waits) uneven_exchange = find_uneven_exchange(run);
  Context context{.run = run,
                  .groups = groups,
                  .where = where,
                  .modalities = modalities,
                  .agreement = agreement,
                  .live = may_go_on,
                  .semantics = semantics,
                  .odd_program = odd_program ? &*odd_program : nullptr,
                  .uneven_exchange = uneven_exchange ? &*uneven_exchange : nullptr,
                  .uneven_rounds = find_uneven_rounds(run, groups, where, agreement),
                  .hung = options.hung};

  Causes causes(context);
  find_causes(context, questions, causes);
  report.findings = causes.take();
  const std::optional<ReplayResult> positions = presumed_positions(context, questions);
  const Context presumed{.run = run,
                         .groups = groups,
                         .where = positions ? *positions : where,
                         .modalities = modalities,
                         .agreement = agreement,
                         .live = may_go_on && !positions,
                         .semantics = semantics,
                         .presumed = positions.has_value()};
  add_unexplained(context, positions ? &presumed : nullptr, options.live, questions,
                  report.findings);
  leave_out_killed_waiters(context, report.findings, input);
  report.ranks_damaged = input.damaged;
  add_input_findings(presumed, std::move(input.findings), report);
  add_job_evidence(run, report);
  sort_findings(report.findings);
  label_findings(context, report.findings);
  note_unexplained_hang(report, run, questions);
  list_unknowns(context, questions, report);
  report.verdict = verdict_of(report, run, questions);
  const bool may_have_hung = !options.live && !options.hung && !where.wait_points.empty();
  if (report.verdict == Verdict::inconclusive && may_have_hung && is_decided_if_hung(run, options))
    report.unknown.insert(report.unknown.begin() + std::ssize(questions.undecided), kUnlessHung);
  return report;
}

}  // namespace

Report verify(const trace::Run& run, const VerifyOptions& options) {
  Report report = judge(run, options);
  doubt_findings_of_lost_records(run, report,
                                 [&](const trace::Run& others) { return judge(others, options); });
  return report;
}

bool proves_stuck(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(), holds_deadlock);
}

}  // namespace lockstep::verify
