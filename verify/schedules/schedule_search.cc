#include "verify/schedules/schedule_search.h"

#include <algorithm>
#include <map>
#include <utility>

#include "verify/schedules/schedule_walk.h"

namespace lockstep {

namespace {

Schedule as_schedule(const std::vector<ScheduleChoice>& path) {
  Schedule out;
  for (const ScheduleChoice& c : path) out.matches.push_back(c.match);
  return out;
}

// The rank that the first point-to-point call addresses which the rank posts behind the receive's
// completion, if it is not a receive from any source again.
std::optional<std::uint32_t> addressed_after(const SchedulePrograms& p, std::uint32_t rank,
                                             std::uint32_t receive) {
  const auto& actions = p.ranks()[rank].actions;
  bool done = false;
  for (const ScheduleAction& a : actions) {
    if (a.blocks && a.call == receive) done = true;
    if (!done || a.blocks || !is_point_to_point(p.op(rank, a.call))) continue;
    if (p.is_wildcard(rank, a.call) || !p.has_partner(rank, a.call)) return std::nullopt;
    const Message m = p.message(rank, a.call);
    return p.op(rank, a.call) == Op::send ? m.dest : m.source;
  }
  return std::nullopt;
}

// Looks for a schedule like the recorded one.
class FittingVisitor final : public ScheduleVisitor {
 public:
  FittingVisitor(const SchedulePrograms& programs, ScheduleSearch& result)
      : p_(programs), result_(result) {}

  bool allows(const WildcardMatch& m) const override {
    const Call& receive = p_.call(m.receiver, m.receive);
    if (receive.values == 0) return true;
    const CallValues& values = p_.run().ranks[m.receiver].values[receive.values - 1];
    if (values.from != kNone && p_.run().ranks[m.sender].rank.value != values.from) return false;
    return values.fromtag == kNoPeerTag || p_.call(m.sender, m.send).ptag == values.fromtag;
  }
  // The sender to which the rank turns next is the likeliest.
  void order(std::vector<ScheduleChoice>& choices) const override {
    std::stable_partition(choices.begin(), choices.end(), [&](const ScheduleChoice& c) {
      return addressed_after(p_, c.match.receiver, c.match.receive) == c.match.sender;
    });
  }
  void misfit(const WildcardMatch&, const std::vector<ScheduleChoice>&) override {}
  void end(ScheduleMachine& machine, const ScheduleState& state,
           const std::vector<ScheduleChoice>& path) override {
    if (!machine.fits_record(state)) return;
    result_.fitting = as_schedule(path);
    for (const ScheduleChoice& c : path) {
      if (c.contested) result_.contested.push_back(c.match);
    }
    done_ = true;
  }
  bool done() const override { return done_; }

 private:
  const SchedulePrograms& p_;
  ScheduleSearch& result_;
  bool done_ = false;
};

// Tries all schedules, but keeps the senders by which the recorded program was steered.
class AllVisitor final : public ScheduleVisitor {
 public:
  AllVisitor(const SchedulePrograms& programs, bool keep_steered, ScheduleSearch& result)
      : result_(result) {
    if (!keep_steered || !result.fitting) return;
    for (const WildcardMatch& m : result.fitting->matches) {
      if (addressed_after(programs, m.receiver, m.receive) != m.sender) continue;
      kept_[{m.receiver, m.receive}] = m.sender;
      result.steered.push_back(m.receiver);
    }
    std::sort(result.steered.begin(), result.steered.end());
    result.steered.erase(std::unique(result.steered.begin(), result.steered.end()),
                         result.steered.end());
  }

  bool allows(const WildcardMatch& m) const override {
    const auto kept = kept_.find({m.receiver, m.receive});
    return kept == kept_.end() || kept->second == m.sender;
  }
  void order(std::vector<ScheduleChoice>&) const override {}
  void misfit(const WildcardMatch& match, const std::vector<ScheduleChoice>& path) override {
    if (result_.differing) return;
    result_.differing = as_schedule(path);
    result_.misfit = match;
  }
  void end(ScheduleMachine& machine, const ScheduleState& state,
           const std::vector<ScheduleChoice>& path) override {
    auto& found = machine.has_stuck(state) ? result_.stuck : result_.ending;
    if (!found) found = as_schedule(path);
  }
  // A stuck schedule beside one that ends says all there is to say.
  bool done() const override { return result_.stuck && result_.ending; }

 private:
  ScheduleSearch& result_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> kept_;
};

}  // namespace

WildcardChoices choices_of(const Schedule& schedule) {
  WildcardChoices out;
  for (const WildcardMatch& m : schedule.matches) out.sender[{m.receiver, m.receive}] = m.sender;
  out.others_wait = true;
  return out;
}

ScheduleSearch search_schedules(const Run& run, const std::vector<GroupStreams>& groups,
                                CallSemantics semantics, const SearchOptions& options) {
  ScheduleSearch out;
  const SchedulePrograms programs(run, groups, semantics, options.buffered_sends);
  out.has_wildcards = programs.has_wildcards();
  if (!out.has_wildcards) return out;
  if (options.fitting != nullptr) {
    out.fitting = *options.fitting;
  } else if (was_recorded(run)) {
    ScheduleMachine machine(programs, options.work);
    FittingVisitor visitor(programs, out);
    walk_schedules(machine, options.states, visitor);
  }
  const bool ended_well = std::all_of(run.ranks.begin(), run.ranks.end(),
                                      [](const RankTrace& t) { return t.end == End::clean; });
  ScheduleMachine machine(programs, options.work);
  AllVisitor visitor(programs, ended_well, out);
  const bool finished = walk_schedules(machine, options.states, visitor);
  out.whole = programs.whole();
  out.complete = finished && out.whole;
  return out;
}

}  // namespace lockstep
