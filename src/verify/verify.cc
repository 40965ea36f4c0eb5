#include "verify/verify.h"

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "verify/blocking.h"
#include "verify/context.h"
#include "verify/deviations.h"
#include "verify/exchange_totals.h"
#include "verify/input.h"
#include "verify/lifecycle.h"
#include "verify/loose_ends.h"
#include "verify/matching.h"
#include "verify/mpi_forms.h"
#include "verify/near_misses.h"
#include "verify/order_inversions.h"
#include "verify/rendezvous.h"
#include "verify/replay.h"
#include "verify/schedule_search.h"
#include "verify/snapshot.h"
#include "verify/streams.h"
#include "verify/wait_graph.h"
#include "verify/wildcards.h"

namespace lockstep {

namespace {

bool intersect(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() && j != b.end()) {
    if (*i == *j) return true;
    ++(*i < *j ? i : j);
  }
  return false;
}

// Earlier first: by step where both know theirs, then by place in the group.
bool happens_before(const Cause& a, const Cause& b) {
  if (a.step != kNone && b.step != kNone && a.step != b.step) return a.step < b.step;
  return std::tie(a.finding.seq, a.finding.group, a.finding.message) <
         std::tie(b.finding.seq, b.finding.group, b.finding.message);
}

// Collects the causes, hanging what follows from one below it.
class Causes {
 public:
  explicit Causes(const Context& context) : context_(context) {}

  void add(Cause cause) { causes_.push_back(std::move(cause)); }

  // Deviations of the same ranks in other groups, or later, follow from their first one.
  void fold_deviations() {
    std::stable_sort(causes_.begin(), causes_.end(), happens_before);
    std::vector<Cause> kept;
    for (Cause& cause : causes_) {
      const auto first = std::find_if(kept.begin(), kept.end(), [&](const Cause& k) {
        return k.can_block && cause.can_block && k.deviants == cause.deviants;
      });
      if (first != kept.end()) {
        first->finding.consequences.push_back(std::move(cause.finding));
      } else {
        kept.push_back(std::move(cause));
      }
    }
    causes_ = std::move(kept);
  }

  // A part of the wait-for graph: below the deviation that led to it, else a cause of its own.
  void add_wait(const WaitCause& wait) {
    for (Cause& cause : causes_) {
      if (!cause.can_block || !leads_to(cause, wait)) continue;
      cause.finding.consequences.push_back(wait_consequence(context_, wait));
      if (wait.stuck) cause.finding.certainty = Certainty::proven;
      explained_.insert(explained_.end(), wait.victims.begin(), wait.victims.end());
      explained_.insert(explained_.end(), wait.roots.begin(), wait.roots.end());
      return;
    }
    causes_.push_back(explain_wait(context_, wait));
    explained_.insert(explained_.end(), wait.victims.begin(), wait.victims.end());
    explained_.insert(explained_.end(), wait.roots.begin(), wait.roots.end());
  }

  // Deaths that no cause speaks of yet.
  void add_deaths() {
    std::optional<Cause> deaths = explain_deaths(context_);
    if (!deaths) return;
    for (Cause& cause : causes_) {
      if (!cause.can_block) continue;
      const auto& ranks = cause.finding.ranks;
      const auto& dead = deaths->finding.culprits;
      if (std::includes(ranks.begin(), ranks.end(), dead.begin(), dead.end())) return;
      if (cause.finding.group == deaths->finding.group && cause.seq <= deaths->seq) {
        cause.finding.consequences.push_back(std::move(deaths->finding));
        return;
      }
    }
    causes_.push_back(std::move(*deaths));
  }

  // Exceptions: below the cause that brought them about, else causes of their own.
  void add_exceptions() {
    std::sort(explained_.begin(), explained_.end());
    const Exceptions exceptions = sort_exceptions(context_);
    std::vector<std::uint32_t> left;
    for (const std::uint32_t r : exceptions.causes) {
      if (!hang_below(r)) left.push_back(r);
    }
    if (!left.empty()) {
      causes_.push_back(explain_exceptions(context_, left));
      return;
    }
    if (!causes_.empty()) {
      for (const std::uint32_t r : exceptions.victims) hang_below(r);
      return;
    }
    if (!exceptions.victims.empty()) {
      causes_.push_back(explain_exceptions(context_, exceptions.victims));
    }
  }

  bool empty() const { return causes_.empty(); }

  std::vector<Finding> take() {
    std::vector<Finding> out;
    for (Cause& cause : causes_) out.push_back(std::move(cause.finding));
    return out;
  }

 private:
  bool leads_to(const Cause& cause, const WaitCause& wait) const {
    if (intersect(cause.deviants, wait.roots) || intersect(cause.deviants, wait.victims)) {
      return true;
    }
    const auto died_of_it = [&](std::uint32_t r) {
      const std::uint32_t open = context_.where.positions[r].last_open;
      if (open == kNoCall || cause.group == SIZE_MAX) return false;
      const Call& call = context_.call({r, open});
      return call.group == context_.groups[cause.group].group && call.seq >= cause.seq;
    };
    if (std::any_of(wait.roots.begin(), wait.roots.end(), died_of_it)) return true;
    return std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
      const WaitPoint& point = context_.where.wait_points[p];
      return point.group == cause.group && context_.seq_of(point) >= cause.seq;
    });
  }

  // Puts a rank's exception below the cause in which it is a deviant or a victim.
  bool hang_below(std::uint32_t rank) {
    const Rank r = context_.run.ranks[rank].rank;
    for (Cause& cause : causes_) {
      if (!cause.can_block) continue;
      auto& ranks = cause.finding.ranks;
      if (!std::binary_search(ranks.begin(), ranks.end(), r)) continue;
      if (cause.finding.rule == RuleId::rank_exception) return true;
      Finding below = explain_exceptions(context_, {rank}).finding;
      below.fix.clear();
      below.evidence.clear();
      cause.finding.consequences.push_back(std::move(below));
      return true;
    }
    return std::binary_search(explained_.begin(), explained_.end(), rank);
  }

  const Context& context_;
  std::vector<Cause> causes_;
  std::vector<std::uint32_t> explained_;  // rank indices that a cause speaks of
};

// Lost lines look like calls that were left out, added or moved. Where one party's traces are all
// damaged, only a contradiction between two calls with the same parameters is believed.
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

// What is known of other schedules, and what is not.
struct Outlook {
  ScheduleSearch search;               // over what receives from any source may take
  bool unsearched = false;             // it, or the one with sends that wait, met its bound
  std::vector<std::string> undecided;  // why the data shows neither a fault nor its absence
  bool waits_unknown = false;          // no waits were recorded that could order two communicators
};

// What other legal schedules would do, where this one gives no reason to complain.
void find_possible_causes(const Context& context, Outlook& outlook, Causes& causes) {
  const ScheduleSearch& search = outlook.search;
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
  if (mpi && !search.has_wildcards) {
    for (Cause& cause : check_rendezvous(context, nullptr)) causes.add(std::move(cause));
  } else if (mpi) {
    SearchOptions strict;
    strict.fitting = search.fitting ? &*search.fitting : nullptr;
    const ScheduleSearch unbuffered =
        search_schedules(context.run, context.groups, context.semantics, strict);
    outlook.unsearched |= !unbuffered.complete && !unbuffered.stuck;
    if (unbuffered.stuck && unbuffered.ending) {
      if (auto race = explain_possible_race(context, unbuffered, false)) {
        causes.add(std::move(*race));
      }
    } else if (unbuffered.stuck) {
      const WildcardChoices choices = choices_of(*unbuffered.stuck);
      for (Cause& cause : check_rendezvous(context, &choices)) causes.add(std::move(cause));
    }
  }
  OrderInversions inversions = check_order_inversions(context);
  for (Cause& cause : inversions.causes) causes.add(std::move(cause));
  outlook.waits_unknown = inversions.waits_unknown;
}

// Hangs what others wait for below its cause, or makes it one.
void add_waits(const Context& context, Outlook& outlook, Causes& causes) {
  const bool snapshot = is_snapshot(context.run);
  std::vector<WaitCause> left;
  for (WaitCause& wait : wait_causes(context.where)) {
    if (context.live && !wait.stuck) continue;
    if (snapshot) {
      if (std::optional<Cause> extra = find_extra_before(context, wait)) {
        causes.add(std::move(*extra));
      } else if (std::string why = may_be_ahead(context, wait); !why.empty() && causes.empty()) {
        outlook.undecided.push_back(std::move(why));
        continue;
      }
    }
    left.push_back(std::move(wait));
  }
  for (const WaitCause& wait : left) causes.add_wait(wait);
}

// Two ranks that still run, or a file that ends, are not yet different: skew is no error.
void find_causes(const Context& context, Outlook& outlook, Causes& causes) {
  for (Cause& cause : check_groups(context)) causes.add(std::move(cause));
  std::vector<bool> deviates(context.groups.size());
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    for (const Deviation& d : find_deviations(context.run, context.groups, g, context.where,
                                              context.modalities, context.agreement)) {
      if (only_damage(context, d)) continue;
      deviates[g] = true;
      causes.add(explain_deviation(context, d));
    }
  }
  for (Cause& cause : check_splits(context)) {
    if (!deviates[cause.group]) causes.add(std::move(cause));
  }
  for (Cause& cause : check_forms(context, deviates)) causes.add(std::move(cause));
  for (Cause& cause : check_point_to_point(context)) causes.add(std::move(cause));
  for (Cause& cause : check_exchange_totals(context)) {
    if (!deviates[cause.group]) causes.add(std::move(cause));
  }
  if (causes.empty()) {
    if (auto race = explain_observed_race(context, outlook.search)) causes.add(std::move(*race));
  }
  // A c10d message with another tag is more often one of a circle than a slip.
  if (causes.empty() && !context.live && context.semantics == CallSemantics::mpi) {
    for (Cause& cause : check_near_misses(context)) causes.add(std::move(cause));
  }
  causes.fold_deviations();
  // A stalled device holds up everybody, wherever they wait.
  std::optional<Cause> stall;
  if (is_snapshot(context.run) && causes.empty()) stall = find_device_stall(context);
  if (stall) {
    for (const WaitCause& wait : wait_causes(context.where)) {
      if (stall->finding.consequences.size() >= 4) break;
      stall->finding.consequences.push_back(wait_consequence(context, wait));
    }
    causes.add(std::move(*stall));
    return;
  }
  add_waits(context, outlook, causes);
  causes.add_deaths();
  causes.add_exceptions();
  if (context.live) return;
  if (causes.empty() && !is_snapshot(context.run)) {
    for (Cause& cause : check_transport(context)) causes.add(std::move(cause));
  }
  if (causes.empty()) find_possible_causes(context, outlook, causes);
  for (Cause& cause : check_lifecycle(context)) causes.add(std::move(cause));
  for (Cause& cause : check_buffers(context)) causes.add(std::move(cause));
}

// Ranks that a watchdog ended, which wait for nobody, nobody waits for, and nothing explains.
std::optional<Finding> unexplained_hang(const Context& context) {
  std::vector<std::uint32_t> hung;
  for (std::uint32_t r = 0; r < context.where.positions.size(); ++r) {
    const Position& p = context.where.positions[r];
    if (p.state == Position::State::hung && p.waiting_in() == kNoCall) hung.push_back(r);
  }
  if (hung.empty()) return std::nullopt;
  Finding f = make_finding(RuleId::host_stall);
  f.message = context.rank_words(hung) + " hung outside of any recorded call";
  f.culprits = f.ranks = context.ranks(hung);
  set_fingerprint(f, "");
  return f;
}

void list_unknowns(const Context& context, const Outlook& outlook, Report& report) {
  report.unknown = context.run.unknown;
  report.unknown.insert(report.unknown.end(), outlook.undecided.begin(), outlook.undecided.end());
  for (const GroupStreams& group : context.groups) {
    if (!group.comparable) {
      report.unknown.push_back("group " + group.name +
                               ": the streams start mid-run (a bounded recorder dropped the oldest "
                               "events), and nothing tells how they line up");
    }
  }
  if (context.where.has_wildcards) {
    report.unknown.emplace_back(
        "receives from any source, or whose source was not recorded: taken to be matched");
  }
  if (outlook.unsearched) {
    report.unknown.emplace_back(
        "receives from any source: not every order of the messages was tried, there are too many, "
        "or traces are missing");
  }
  if (!outlook.search.steered.empty()) {
    report.unknown.push_back(
        "receives from any source of " + context.rank_words(outlook.search.steered) +
        ": what follows depends on the sender, so that this run does not show other orders");
  }
  if (outlook.waits_unknown) {
    report.unknown.emplace_back(
        "waits: not recorded, so calls of two communicators that are under way at once cannot be "
        "told from calls that a wait keeps apart");
  }
  bool any_call = false;
  bool any_identity = false;
  for (const RankTrace& trace : context.run.ranks) {
    any_call |= !trace.calls.empty();
    any_identity |= std::any_of(trace.calls.begin(), trace.calls.end(),
                                [](const Call& c) { return c.what.value != 0; });
  }
  if (any_call && !any_identity) {
    report.unknown.emplace_back(
        "parameters carried by a call: not recorded, so equal calls that pair different parameters "
        "cannot be seen");
  }
  for (const Run::Unreadable& file : context.run.unreadable) {
    report.unknown.push_back("unreadable file: " + printable(file.error.str()));
  }
}

Verdict judge(const Report& report, const Run& run, const Outlook& outlook) {
  const bool serious = std::any_of(report.findings.begin(), report.findings.end(),
                                   [](const Finding& f) { return f.severity != Severity::note; });
  if (serious) return Verdict::findings;
  const bool blind = !report.ranks_missing.empty() || !report.ranks_damaged.empty() ||
                     !run.unreadable.empty() || run.ranks.empty() || outlook.unsearched ||
                     !outlook.undecided.empty();
  return blind ? Verdict::inconclusive : Verdict::clean;
}

void sort_findings(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    const auto key = [](const Finding& f) {
      const std::int64_t step = f.step.value_or(INT64_MAX);
      return std::tuple(-static_cast<int>(f.severity), static_cast<int>(f.certainty), step,
                        f.seq.value_or(UINT64_MAX));
    };
    return key(a) < key(b);
  });
}

bool holds_deadlock(const Finding& f) {
  const bool blocks = rule(f.rule).family == "blocking" || f.rule == RuleId::modality_divergence ||
                      rule(f.rule).family == "matching";
  if (blocks && f.certainty == Certainty::proven) return true;
  return std::any_of(f.consequences.begin(), f.consequences.end(), holds_deadlock);
}

}  // namespace

Report verify(const Run& run, const VerifyOptions& options) {
  Report report;
  // Where no rank has an end mark, the traces were copied while the job ran, or all of it died at
  // once: who is behind may just have been behind.
  const bool unended = std::all_of(run.ranks.begin(), run.ranks.end(),
                                   [](const RankTrace& t) { return t.end == End::cut; });
  const bool may_go_on = options.live || unended;
  InputState input = check_input(run, options.live);
  report.ranks_expected = run.world_size;
  for (const RankTrace& trace : run.ranks) report.ranks_read.push_back(trace.rank);
  report.ranks_missing = std::move(input.missing);
  report.ranks_damaged = std::move(input.damaged);
  report.events = run.event_count();

  const std::vector<GroupStreams> groups = group_streams(run);
  Agreement agreement(run.tables);
  const Modalities modalities(run);
  const CallSemantics semantics = options.semantics.value_or(recorded_semantics(run));
  Outlook outlook;
  if (!may_go_on) {
    SearchOptions search;
    search.buffered_sends = semantics == CallSemantics::mpi;
    outlook.search = search_schedules(run, groups, semantics, search);
    outlook.unsearched = !outlook.search.complete && !outlook.search.stuck;
  }
  ReplayOptions replaying;
  replaying.live = may_go_on;
  replaying.semantics = semantics;
  const ReplayResult where = replay_as_recorded(run, groups, agreement, replaying, outlook.search);
  const Context context{run, groups, where, modalities, agreement, may_go_on, semantics};

  Causes causes(context);
  find_causes(context, outlook, causes);
  report.findings = causes.take();
  if (report.findings.empty() && !options.live && !is_snapshot(run)) {
    if (auto hang = unexplained_hang(context)) report.findings.push_back(std::move(*hang));
  }
  report.findings.insert(report.findings.end(), input.findings.begin(), input.findings.end());
  sort_findings(report.findings);
  list_unknowns(context, outlook, report);
  report.verdict = judge(report, run, outlook);
  return report;
}

bool proves_stuck(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(), holds_deadlock);
}

}  // namespace lockstep
