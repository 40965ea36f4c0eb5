#include "verify/samples/replicas.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include <boost/pending/disjoint_sets.hpp>

#include "verify/numbers/replicas.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {
namespace {

// What the ranks exchange, as far as it shows who is a replica of whom.
struct Traffic {
  std::set<std::uint32_t> reducing;  // groups with reductions
  std::set<std::uint32_t> naming;    // … whose reductions name what they carry
  std::set<std::pair<std::uint32_t, std::uint32_t>>
      messages;  // pairs of ranks, the lower one first
  bool any_call = false;

  // The groups whose reductions average gradients: those that name what they carry, if there are
  // any.
  const std::set<std::uint32_t>& averaging() const { return naming.empty() ? reducing : naming; }
};

Traffic traffic_of(const trace::Run& run) {
  std::unordered_map<std::int32_t, std::uint32_t> index_of;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) index_of[run.ranks[r].rank.value] = r;
  Traffic out;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    for (const trace::Call& call : run.ranks[r].calls) {
      out.any_call = true;
      const trace::Op op = run.tables.op(call);
      if (trace::is_reduction(op)) {
        out.reducing.insert(call.group.value);
        if (call.what.value != 0) out.naming.insert(call.group.value);
      } else if (trace::is_point_to_point(op)) {
        const auto peer = index_of.find(call.peer.value);
        if (peer != index_of.end()) out.messages.insert(std::minmax(r, peer->second));
      }
    }
  }
  return out;
}

// Whether two members send each other messages: then the group is over parts of one model, such as
// for a norm over all of them, and averages nothing.
bool joins_parts(const GroupStreams& group, const Traffic& traffic) {
  const auto is_member = [&](std::uint32_t r) { return stream_of(group, r) != nullptr; };
  return std::any_of(traffic.messages.begin(), traffic.messages.end(), [&](const auto& message) {
    return is_member(message.first) && is_member(message.second);
  });
}

// The sets that lockstep_watch knows from how the program wrapped its model: ranks of one set have
// recorded one name.
std::vector<std::vector<std::uint32_t>> declared_sets(const trace::Run& run) {
  constexpr std::string_view kDeclares = "data_replicas";
  std::map<std::uint32_t, std::set<std::uint32_t>> by_name;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    for (const trace::StateMark& mark : run.ranks[r].states) {
      if (mark.kind == trace::StateMark::Kind::optim &&
          number_name(run.tables.str(mark.name)) == kDeclares)
        by_name[mark.name.value].insert(r);
    }
  }
  std::vector<std::vector<std::uint32_t>> out;
  std::set<std::uint32_t> taken;
  for (const auto& [name, ranks] : by_name) {
    const bool first = std::none_of(ranks.begin(), ranks.end(),
                                    [&](std::uint32_t r) { return taken.contains(r); });
    if (ranks.size() < 2 || !first) continue;
    out.emplace_back(ranks.begin(), ranks.end());
    taken.insert(ranks.begin(), ranks.end());
  }
  return out;
}

// By rank index: what lockstep_watch says of the data set that the rank reads; nothing where it did
// not say. Equal numbers stand for equal data.
std::vector<std::optional<double>> data_sets(const trace::Run& run) {
  std::vector<std::optional<double>> out(run.ranks.size());
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    for (const trace::StateMark& mark : run.ranks[r].states) {
      if (out[r] || mark.kind != trace::StateMark::Kind::optim) continue;
      if (number_name(run.tables.str(mark.name)) == kDataSet) out[r] = mark.norm;
    }
  }
  return out;
}

// Divides sets whose ranks read different data sets. A rank that did not say what it reads stays
// with the others where these agree, and is compared with nobody where they do not.
void divide_by_data(const trace::Run& run, Replicas& replicas) {
  const std::vector<std::optional<double>> read = data_sets(run);
  const auto differ = [&](std::uint32_t a, std::uint32_t b) {
    return read[a] && read[b] && *read[a] != *read[b];
  };
  std::vector<std::vector<std::uint32_t>> divided;
  for (std::vector<std::uint32_t>& set : replicas.sets) {
    std::map<double, std::vector<std::uint32_t>> by_data;
    for (const std::uint32_t r : set)
      if (read[r]) by_data[*read[r]].push_back(r);
    if (by_data.size() < 2) {
      divided.push_back(std::move(set));
      continue;
    }
    replicas.own_data = true;
    for (auto& [data, ranks] : by_data)
      if (ranks.size() > 1) divided.push_back(std::move(ranks));
  }
  replicas.sets = std::move(divided);
  std::erase_if(replicas.partners,
                [&](const auto& pair) { return differ(pair.first, pair.second); });
}

// Whether ranks of the set began with other values under a name that nobody declared to be the same
// on them: columns of a layer split by hand, whose ranks must read the same samples. Not where
// their gradients are the same (are_undeclared_replicas): then only their seeds differed.
bool hold_parts(const trace::Run& run, const std::vector<std::uint32_t>& set) {
  std::map<std::uint32_t, std::uint64_t> first;  // hashes by name
  for (const std::uint32_t r : set) {
    std::set<std::uint32_t> seen;
    for (const trace::StateMark& mark : run.ranks[r].states) {
      if (mark.kind != trace::StateMark::Kind::param || !mark.sharded || !mark.hash) continue;
      // Marks are in the order of the steps: a rank's first of a name is what it began with.
      if (!seen.insert(mark.name.value).second) continue;
      if (first.try_emplace(mark.name.value, *mark.hash).first->second != *mark.hash) return true;
    }
  }
  return false;
}

// Sets and partners by what the ranks exchange.
Replicas by_traffic(const Context& context) {
  const Traffic traffic = traffic_of(context.run);
  Replicas out;
  out.partners.assign(traffic.messages.begin(), traffic.messages.end());
  if (traffic.naming.empty() && traffic.reducing.size() > 1) {
    out.sets = declared_sets(context.run);
    out.known = !out.sets.empty();
    return out;
  }
  const auto ranks = static_cast<std::uint32_t>(context.run.ranks.size());
  boost::disjoint_sets_with_storage<> sets(ranks);
  if (!traffic.any_call) {
    for (std::uint32_t r = 1; r < ranks; ++r) sets.union_set(std::uint32_t{0}, r);
  }
  for (const GroupStreams& group : context.groups) {
    if (!traffic.averaging().contains(group.group.value) || joins_parts(group, traffic)) continue;
    for (const Stream& stream : group.streams)
      sets.union_set(group.streams.front().rank_index, stream.rank_index);
  }
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_lowest;  // by the lowest rank of each set
  std::unordered_map<std::size_t, std::uint32_t> lowest;          // by the set's representative
  for (std::uint32_t r = 0; r < ranks; ++r)
    by_lowest[lowest.try_emplace(sets.find_set(r), r).first->second].push_back(r);
  for (auto& [first, members] : by_lowest) {
    if (members.size() > 1) out.sets.push_back(std::move(members));
  }
  return out;
}

}  // namespace

Replicas find_replicas(const Context& context) {
  Replicas out = by_traffic(context);
  if (!are_undeclared_replicas(context.run)) {
    const std::size_t erased = std::erase_if(out.sets, [&](const std::vector<std::uint32_t>& set) {
      return hold_parts(context.run, set);
    });
    out.parts = erased > 0;
  }
  divide_by_data(context.run, out);
  return out;
}

}  // namespace lockstep::verify
