#include "verify/product/failures.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/product/assignments.h"
#include "verify/product/decide.h"

namespace lockstep::verify {

namespace {

// The cost of a rank that deviates. It is more than all its conditions cost, of which at most three
// are unusual: those of step 0, of the step before and of the current step. So fewer ranks always
// win.
constexpr std::size_t kRankCost = 4;

// The calls of a sequence on channels with ranks of other teams: (channel, (shared, own)).
std::vector<std::pair<ChannelId, std::pair<std::uint32_t, std::uint32_t>>> shared_part(
    const ProductModel& model, SequenceId sequence) {
  std::vector<std::pair<ChannelId, std::pair<std::uint32_t, std::uint32_t>>> out;
  for (const Projection& p : model.sequences().sequences[sequence.value].projections) {
    if (!model.sequences().channels[p.channel.value].has_one_member() &&
        !model.within_team(p.channel))
      out.push_back({p.channel, {p.shared, p.own}});
  }
  return out;
}

// Whether the calls of the rank and its team under the option do not match the usual ones of the
// others, or each other.
bool deviates(const ProductModel& model, const Situation& situation, std::int32_t rank,
              const ProductOption& option, const std::vector<SequenceId>& usual) {
  const std::vector<std::int32_t>& team = model.situations().team_of(rank);
  for (const std::int32_t r : team) {
    const SequenceId other = model.recorded(situation, r, option).sequence;
    const SequenceId own = usual[static_cast<std::size_t>(r)];
    if (other != own && shared_part(model, other) != shared_part(model, own)) return true;
  }
  return team.size() > 1 &&
         !model.disagreeing(model.team_sequences(situation, rank, option)).empty();
}

// The members that do not issue what the largest party issues. Among equally large parties, the
// one with the lowest rank is the reference.
std::vector<trace::Rank> minority(const ProductModel& model, ChannelId channel,
                                  const std::vector<SequenceId>& sequences) {
  const ChannelParties parties = parties_on(model, channel, sequences);
  std::vector<trace::Rank> out;
  for (std::size_t p = 0; p < parties.size(); ++p) {
    if (p != reference_party(parties))
      out.insert(out.end(), parties[p].ranks.begin(), parties[p].ranks.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<SequenceId> sequences_under(const ProductModel& model, const Situation& situation,
                                        const std::vector<ProductOption>& options) {
  std::vector<SequenceId> out;
  out.reserve(options.size());
  for (std::int32_t r = 0; r < model.ranks(); ++r)
    out.push_back(model.recorded(situation, r, options[static_cast<std::size_t>(r)]).sequence);
  return out;
}

// The usual options may diverge already. If they agree on every channel, but not all options do,
// then some option of some rank does not match the usual ones: one rank (with its team) is enough.
std::optional<Failure> find_divergence(const ProductModel& model, const Situation& situation) {
  const std::vector<ProductOption> usual = usual_options(model, situation);
  if (usual.empty()) return std::nullopt;
  const std::vector<SequenceId> sequences = sequences_under(model, situation, usual);
  if (const auto channels = model.disagreeing(sequences); !channels.empty()) {
    Failure failure{situation, usual, minority(model, channels.front(), sequences), 0,
                    std::nullopt};
    failure.cost = kRankCost * failure.differing.size();
    return failure;
  }
  std::optional<Failure> out;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    const std::vector<std::int32_t>& team = model.situations().team_of(r);
    if (team.front() != r) continue;
    const auto i = static_cast<std::size_t>(r);
    for (const ProductOption& option : model.situations().options(situation, r)) {
      std::size_t cost = kRankCost;
      cost += option.history != usual[i].history ? 1U : 0U;
      cost += option.condition != usual[i].condition ? 1U : 0U;
      cost += option.previous != usual[i].previous ? 1U : 0U;
      if (option == usual[i] || (out && out->cost <= cost)) continue;
      if (!model.was_recorded(situation, r, option) ||
          !deviates(model, situation, r, option, sequences)) {
        continue;
      }
      out = Failure{situation, usual, {}, cost, std::nullopt};
      for (const std::int32_t other : team) {
        out->differing.emplace_back(other);
        out->options[static_cast<std::size_t>(other)] = option;
      }
    }
  }
  return out;
}

namespace {

// An option under which the link's rank, and the members of its team on the cycle, have the
// sequences that the cycle names. The usual one if it fits; null if none does.
const ProductOption* option_on(const ProductModel& model, const Situation& situation,
                               const Cycle& cycle, const Cycle::Link& link,
                               const std::vector<ProductOption>& options,
                               const ProductOption& usual) {
  const std::vector<std::int32_t>& team = model.situations().team_of(link.rank);
  const auto fits = [&](const ProductOption& option) {
    return std::all_of(cycle.links.begin(), cycle.links.end(), [&](const Cycle::Link& other) {
      return !std::binary_search(team.begin(), team.end(), other.rank) ||
             model.recorded(situation, other.rank, option).sequence == other.sequence;
    });
  };
  if (fits(usual)) return &usual;
  const auto found = std::find_if(options.begin(), options.end(), fits);
  return found == options.end() ? nullptr : &*found;
}

}  // namespace

DeadlockSearch find_deadlock(const ProductModel& model, const Situation& situation,
                             const Evaluation& evaluation, bool device, std::uint64_t& budget) {
  DeadlockSearch out;
  const InstanceOrder order =
      order_instances(model.sequences(), distinct_sequences(evaluation), device);
  out.instances = order.order.size();
  if (order.held.empty()) return out;
  const CycleSearch search = find_cycle(model.sequences(), evaluation, order.held, device, budget);
  out.one_order = false;
  out.complete = search.complete;
  if (!search.cycle) return out;
  const std::vector<ProductOption> usual = usual_options(model, situation);
  if (usual.empty()) return out;
  Failure failure{situation, usual, {}, kRankCost * search.cycle->links.size(), search.cycle};
  for (const Cycle::Link& link : search.cycle->links) {
    failure.differing.emplace_back(link.rank);
    const ProductOption& as_usual = usual[static_cast<std::size_t>(link.rank)];
    const std::vector<ProductOption> options = model.situations().options(situation, link.rank);
    const ProductOption* option =
        option_on(model, situation, *search.cycle, link, options, as_usual);
    if (option == nullptr || *option == as_usual) continue;
    ++failure.cost;
    for (const std::int32_t r : model.situations().team_of(link.rank))
      failure.options[static_cast<std::size_t>(r)] = *option;
  }
  std::sort(failure.differing.begin(), failure.differing.end());
  out.failure = std::move(failure);
  return out;
}

namespace {

// Whether `allowed` lets the rank begin the history.
bool may_begin(const ProductModel& model, HistoryId history, std::int32_t rank) {
  const auto may = [&](std::int64_t step) {
    const ConditionId condition = model.recorded_condition(history, step);
    for (std::uint32_t m = 0; m < model.situations().condition_sets().size(); ++m) {
      const auto mine = model.situations().conditions(m, rank, step);
      if (std::binary_search(mine.begin(), mine.end(), condition)) return true;
    }
    return false;
  };
  return may(0) && (!model.spec().has_seconds() || may(1));
}

}  // namespace

RaiseSearch find_raise(const ProductModel& model) {
  constexpr double kMaxWork = double{1U << 28U};  // as much as Situations::check_size() allows
  const double work_a_step = static_cast<double>(model.ranks()) *
                             static_cast<double>(model.spec().allowed.size() + 1) *
                             static_cast<double>(model.situations().condition_sets().size());
  double work = 0;
  RaiseSearch out;
  for (std::uint32_t h = 0; h < model.derivation().runs.size(); ++h) {
    const HistoryId history{h};
    for (std::int32_t r = 0; r < model.ranks(); ++r) {
      const auto& raise = model.sequences().raise(history, r);
      if (!raise || (out.first && out.first->step <= raise->step)) continue;
      work += static_cast<double>(raise->step + 1) * work_a_step;
      auto assignment = work > kMaxWork ? std::nullopt : follow_trace(model, history, r);
      if (assignment) {
        out.first = PossibleRaise{history, r, raise->step, std::move(*assignment)};
      } else if (may_begin(model, history, r)) {
        out.unknown.push_back(
            fmt::format("rank {} raised an exception in step {} of {}, and whether it can in an "
                        "allowed assignment is not known",
                        r, raise->step, printable(model.spec().histories[h].folder)));
      }
    }
  }
  return out;
}

}  // namespace lockstep::verify
