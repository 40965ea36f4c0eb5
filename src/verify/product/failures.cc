#include "verify/product/failures.h"

#include <algorithm>
#include <utility>

#include "verify/product/assignments.h"
#include "verify/product/counterexample.h"

namespace lockstep {

namespace {

// What a sequence does where others take part.
std::vector<std::pair<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>>> shared_part(
    const ProductModel& model, std::uint32_t sequence) {
  std::vector<std::pair<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>>> out;
  for (const Projection& p : model.sequences().sequences[sequence].projections) {
    if (!model.sequences().channels[p.channel].lonely())
      out.push_back({p.channel, {p.shared, p.own}});
  }
  return out;
}

// The members that do not do what most of them do; of equal parties, not that of the lowest rank.
std::vector<Rank> minority(const ProductModel& model, std::uint32_t channel,
                           const std::vector<std::uint32_t>& sequences) {
  const ChannelParties parties = parties_on(model, channel, sequences);
  std::vector<Rank> out;
  for (std::size_t p = 0; p < parties.size(); ++p) {
    if (p != parties_reference(parties))
      out.insert(out.end(), parties[p].ranks.begin(), parties[p].ranks.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<std::uint32_t> sequences_under(const ProductModel& model, const Situation& situation,
                                           const std::vector<ProductOption>& options) {
  std::vector<std::uint32_t> out;
  for (std::int32_t r = 0; r < model.ranks(); ++r)
    out.push_back(model.recorded(situation, r, options[static_cast<std::size_t>(r)]).sequence);
  return out;
}

// All as usual may diverge already. If not, one rank in another condition is enough: the usual
// options agree everywhere, and some option of some rank does not agree with them.
std::optional<Failure> find_divergence(const ProductModel& model, const Situation& situation) {
  const std::vector<ProductOption> usual = usual_options(model, situation);
  if (usual.empty()) return std::nullopt;
  const std::vector<std::uint32_t> sequences = sequences_under(model, situation, usual);
  if (const auto channels = model.disagreeing(sequences); !channels.empty()) {
    Failure failure{situation, usual, minority(model, channels.front(), sequences), 0,
                    std::nullopt};
    failure.cost = 4 * failure.differing.size();
    return failure;
  }
  std::optional<Failure> out;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const auto here = shared_part(model, sequences[i]);
    for (const ProductOption& option : model.situations().options(situation, r)) {
      const std::uint32_t other = model.recorded(situation, r, option).sequence;
      if (other == kNothing || shared_part(model, other) == here) continue;
      std::size_t cost = 4;
      cost += option.history != usual[i].history ? 1U : 0U;
      cost += option.condition != usual[i].condition ? 1U : 0U;
      if (out && out->cost <= cost) continue;
      out = Failure{situation, usual, {Rank(r)}, cost, std::nullopt};
      out->options[i] = option;
    }
  }
  return out;
}

DeadlockSearch find_deadlock(const ProductModel& model, const Situation& situation,
                             const Evaluation& evaluation, bool device, std::uint64_t& budget) {
  DeadlockSearch out;
  const MeetingOrder order =
      order_meetings(model.sequences(), distinct_sequences(evaluation), device);
  out.meetings = order.order.size();
  if (order.held.empty()) return out;
  const CircleSearch search =
      find_circle(model.sequences(), evaluation.choices, order.held, device, budget);
  out.one_order = false;
  out.complete = search.complete;
  if (!search.circle) return out;
  const std::vector<ProductOption> usual = usual_options(model, situation);
  if (usual.empty()) return out;
  Failure failure{situation, usual, {}, 4 * search.circle->links.size(), search.circle};
  for (const Circle::Link& link : search.circle->links) {
    const auto i = static_cast<std::size_t>(link.rank);
    failure.differing.emplace_back(link.rank);
    if (model.recorded(situation, link.rank, usual[i]).sequence == link.sequence) continue;
    for (const ProductOption& option : model.situations().options(situation, link.rank)) {
      if (model.recorded(situation, link.rank, option).sequence != link.sequence) continue;
      failure.options[i] = option;
      ++failure.cost;
      break;
    }
  }
  std::sort(failure.differing.begin(), failure.differing.end());
  out.failure = std::move(failure);
  return out;
}

}  // namespace lockstep
