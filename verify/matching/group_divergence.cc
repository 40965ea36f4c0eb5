#include "verify/matching/group_divergence.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <fmt/format.h>

#include "base/text.h"
#include "verify/context.h"

namespace lockstep::verify {

namespace {

using Membership = trace::RankTrace::Membership;
std::string describe_list(const std::vector<trace::Rank>& ranks) {
  std::vector<std::string> numbers;
  numbers.reserve(ranks.size());
  for (const trace::Rank r : ranks) numbers.push_back(std::to_string(r.value));
  return fmt::format("[{}]", join_and(numbers, 16));
}

bool is_member(const trace::RankTrace& trace, const Membership& group) {
  return group.ranks.contains(trace.rank);
}

// The index of each group in Context::groups. These are sorted by name, so nothing depends on the
// order of interning.
class GroupIndex {
 public:
  explicit GroupIndex(const Context& context) : index_(context.run.tables.groups.size(), SIZE_MAX) {
    for (std::size_t g = 0; g < context.groups.size(); ++g) {
      index_[context.groups[g].group.value] = g;
    }
  }
  std::size_t operator[](trace::GroupId group) const { return index_[group.value]; }

 private:
  std::vector<std::size_t> index_;
};

RankIndices common(const RankIndices& a, const RankIndices& b) {
  RankIndices out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

}  // namespace

std::vector<Cause> check_members(const Context& context) {
  const GroupIndex index(context);
  std::map<std::size_t, std::map<trace::RankList, RankIndices>> believers;  // by group and list
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    for (const Membership& m : context.run.ranks[r].groups) {
      const std::size_t g = index[m.group];
      if (g != SIZE_MAX) believers[g][m.ranks].push_back(r);
    }
  }
  std::vector<Cause> out;
  for (auto& [g, lists] : believers) {
    if (lists.size() < 2) continue;  // all ranks agree
    const GroupStreams& group = context.groups[g];
    const RankIndices& majority = lists[trace::RankList(group.members)];
    Cause cause;
    cause.finding = make_finding(RuleId::group_divergence);
    Finding& f = cause.finding;
    bool tied = false;
    std::string others;
    for (const auto& [members, ranks] : lists) {
      if (&ranks == &majority) continue;
      tied |= ranks.size() >= majority.size();
      cause.deviants = united(cause.deviants, ranks);
      others += fmt::format("{}{} as {}", others.empty() ? "" : ", ", context.describe_ranks(ranks),
                            describe_list(members));
    }
    f.message = fmt::format("{} {} group {} as ranks {}, but {}", context.describe_ranks(majority),
                            majority.size() == 1 ? "knows" : "know", group.name,
                            describe_list(group.members), others);
    f.group = group.name;
    if (!tied) f.culprits = context.ranks(cause.deviants);
    f.ranks = context.ranks(united(majority, cause.deviants));
    cause.group = g;
    set_fingerprint(f, "");
    out.push_back(std::move(cause));
  }
  return out;
}

namespace {

// The descriptions that each rank gives to its groups. Descriptions that a rank gives to several
// groups ("undefined", or the same name for all) identify none and are left out.
class Descriptions {
 public:
  explicit Descriptions(const Context& context) : by_group_(context.groups.size()) {
    const GroupIndex index(context);
    groups_of_.resize(context.run.ranks.size());
    for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
      const trace::RankTrace& trace = context.run.ranks[r];
      std::map<trace::StringId, std::vector<std::size_t>>& mine = groups_of_[r];
      for (const Membership& m : trace.groups) {
        const std::string& text = context.run.tables.str(m.desc);
        if (text.empty() || text == "undefined" || !is_member(trace, m)) continue;
        mine[m.desc].push_back(index[m.group]);
      }
      std::erase_if(mine, [](const auto& entry) { return entry.second.size() > 1; });
      for (const auto& [desc, groups] : mine) {
        by_group_[groups[0]][context.run.tables.str(desc)].push_back(r);
        ids_.emplace(context.run.tables.str(desc), desc);
      }
    }
  }

  // The ranks by the description that they give to the group.
  const std::map<std::string, RankIndices>& of(std::size_t group) const { return by_group_[group]; }

  // The group to which the rank gives this description.
  std::optional<std::size_t> group_called(const std::string& desc, std::uint32_t rank) const {
    const auto found = groups_of_[rank].find(ids_.at(desc));
    if (found == groups_of_[rank].end()) return std::nullopt;
    return found->second[0];
  }

 private:
  std::vector<std::map<std::string, RankIndices>> by_group_;
  std::vector<std::map<trace::StringId, std::vector<std::size_t>>> groups_of_;  // by rank index
  std::map<std::string, trace::StringId> ids_;
};

// Group `group` has one description on the ranks `usual` and another on `ranks`, which use the
// usual one for group `other`.
struct NameExchange {
  std::size_t group, other;
  std::string description, usual_description;
  RankIndices ranks, usual;
  bool tied = false;
};

// Finds an exchange in which `group` takes part:
//
//   rank 0  group "1" is "tensor", group "2" is "data"
//   rank 1  group "1" is "data",   group "2" is "tensor"
//
// Both groups must be shared by ranks of both kinds. Descriptions that depend on the rank ("to the
// next stage") also differ between a group's members, but there the other group belongs to other
// ranks.
std::optional<NameExchange> exchange_in(const Context& context, const Descriptions& descriptions,
                                        std::size_t group) {
  const auto& kinds = descriptions.of(group);
  if (kinds.size() < 2) return std::nullopt;
  // On a tie, the first in the alphabet, so that the report does not depend on the ranks' order.
  const auto usual = std::max_element(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  for (const auto& [description, ranks] : kinds) {
    if (description == usual->first) continue;
    const std::optional<std::size_t> other = descriptions.group_called(usual->first, ranks[0]);
    if (!other) continue;
    const std::vector<trace::Rank>& there = context.groups[*other].members;
    const bool shared = std::any_of(usual->second.begin(), usual->second.end(), [&](auto r) {
      return std::find(there.begin(), there.end(), context.run.ranks[r].rank) != there.end();
    });
    if (!shared) continue;
    NameExchange found{group, *other, description, usual->first, {}, usual->second, false};
    for (const std::uint32_t r : ranks) {
      if (descriptions.group_called(usual->first, r) == other) found.ranks.push_back(r);
    }
    found.tied = found.ranks.size() >= usual->second.size();
    return found;
  }
  return std::nullopt;
}

}  // namespace

std::vector<ExchangedNames> check_names(const Context& context) {
  const Descriptions descriptions(context);
  std::vector<ExchangedNames> out;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const std::optional<NameExchange> exchange = exchange_in(context, descriptions, g);
    if (!exchange) continue;
    if (!out.empty()) {  // one order of creation, one finding
      auto& groups = out[0].groups;
      groups.insert(groups.end(), {g, exchange->other});
      continue;
    }
    ExchangedNames names;
    names.groups = {g, exchange->other};
    names.cause.group = g;
    // Every rank of the two groups may wait because of this.
    names.cause.deviants = united(exchange->usual, exchange->ranks);
    Finding& f = names.cause.finding = make_finding(RuleId::group_divergence);
    f.severity = Severity::warning;
    const std::string& name = context.groups[g].name;
    const std::string usual = printable(exchange->usual_description);
    f.message = fmt::format(
        "group {} is \"{}\" to {}, but \"{}\" to {}, which {} group {} \"{}\"", name, usual,
        context.describe_ranks(exchange->usual), printable(exchange->description),
        context.describe_ranks(exchange->ranks), exchange->ranks.size() == 1 ? "calls" : "call",
        context.groups[exchange->other].name, usual);
    f.why =
        "c10d names groups by counting them: ranks that create them in different orders link "
        "different groups under one name, and calls of one are paired with calls of the other.";
    f.group = name;
    if (!exchange->tied) f.culprits = context.ranks(exchange->ranks);
    f.ranks = context.ranks(united(exchange->usual, exchange->ranks));
    set_fingerprint(f, "names");
    out.push_back(std::move(names));
  }
  for (ExchangedNames& names : out) {
    std::sort(names.groups.begin(), names.groups.end());
    names.groups.erase(std::unique(names.groups.begin(), names.groups.end()), names.groups.end());
  }
  return out;
}

namespace {

// Ranks that created group `from` before group `to`.
struct Before {
  std::size_t from, to;
  RankIndices ranks;
};

// The graph of creation orders: a vertex per group, an edge between groups that some rank created
// one directly after the other.
class CreationOrders {
 public:
  explicit CreationOrders(const Context& context) : context_(context) {
    collect(GroupIndex(context));
    find_components();
  }

  // For each set of groups without a common order, the shortest cycle found, shortened as far as
  // its ranks allow.
  std::vector<std::vector<Before>> cycles() const {
    // In a strongly connected component every edge lies on a cycle. Finding the shortest one of all
    // would cost O(edges²): this many edges are tried, fewer where the cycles are long.
    constexpr std::size_t kTried = 64;
    constexpr std::size_t kSteps = 100'000;
    struct Best {
      std::size_t tried = 0, steps = 0;
      std::vector<Before> cycle;
    };
    std::map<std::uint32_t, Best> best;  // by component
    for (const Before& edge : edges_) {
      if (component_[edge.from] != component_[edge.to]) continue;
      Best& b = best[component_[edge.from]];
      if (b.tried++ >= kTried || b.steps >= kSteps) continue;
      const std::vector<const Before*> way = cycle_through(edge);
      b.steps += way.size();
      std::vector<Before> found = shortened(way);
      if (b.cycle.empty() || found.size() < b.cycle.size()) b.cycle = std::move(found);
    }
    std::vector<std::vector<Before>> out;
    out.reserve(best.size());
    for (auto& [component, entry] : best) out.push_back(std::move(entry.cycle));
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
      return std::pair(a[0].from, a[0].to) < std::pair(b[0].from, b[0].to);
    });
    return out;
  }

  // All ranks that created `first` before `second`, by a merge of the two ascending lists.
  // O(creators of both).
  RankIndices in_this_order(std::size_t first, std::size_t second) const {
    RankIndices out;
    const auto& a = creators_[first];
    const auto& b = creators_[second];
    for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
      if (i->rank == j->rank) {
        if (i->creation_index < j->creation_index) out.push_back(i->rank);
        ++i, ++j;
      } else {
        ++(i->rank < j->rank ? i : j);
      }
    }
    return out;
  }

 private:
  // Adds an edge between each two groups that a rank created in a row. Pairs further apart follow
  // from the chain.
  void collect(const GroupIndex& index) {
    std::map<std::pair<std::size_t, std::size_t>, RankIndices> edges;
    creators_.resize(context_.groups.size());
    for (std::uint32_t r = 0; r < context_.run.ranks.size(); ++r) {
      const trace::RankTrace& trace = context_.run.ranks[r];
      std::size_t last = SIZE_MAX;
      for (std::uint32_t i = 0; i < trace.created_in_order; ++i) {
        if (!is_member(trace, trace.groups[i])) continue;
        const std::size_t group = index[trace.groups[i].group];
        creators_[group].push_back({r, i});
        if (last != SIZE_MAX) edges[{last, group}].push_back(r);
        last = group;
      }
    }
    for (auto& [ends, ranks] : edges) {
      edges_.push_back({ends.first, ends.second, std::move(ranks)});
    }
  }

  void find_components() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (const Before& edge : edges_) pairs.emplace_back(edge.from, edge.to);
    if (pairs.empty()) return;
    const auto vertices = static_cast<std::uint32_t>(context_.groups.size());
    const boost::compressed_sparse_row_graph<boost::directedS> graph(
        boost::edges_are_sorted, pairs.begin(), pairs.end(), vertices);
    component_.resize(vertices);
    boost::strong_components(graph, boost::make_iterator_property_map(
                                        component_.begin(), get(boost::vertex_index, graph)));
  }

  // The shortest cycle through the edge: breadth first from its head back to its tail.
  std::vector<const Before*> cycle_through(const Before& edge) const {
    std::unordered_map<std::size_t, const Before*> reached = {{edge.to, nullptr}};  // by which edge
    std::queue<std::size_t> queue;
    queue.push(edge.to);
    while (!queue.empty() && !reached.contains(edge.from)) {
      const std::size_t v = queue.front();
      queue.pop();
      auto e = std::lower_bound(edges_.begin(), edges_.end(), v,
                                [](const Before& x, std::size_t from) { return x.from < from; });
      for (; e != edges_.end() && e->from == v; ++e) {
        if (component_[e->to] == component_[v] && reached.try_emplace(e->to, &*e).second) {
          queue.push(e->to);
        }
      }
    }
    std::vector<const Before*> out;
    for (std::size_t v = edge.from; v != edge.to;) {
      out.push_back(reached.at(v));
      v = out.back()->from;
    }
    out.push_back(&edge);
    std::reverse(out.begin(), out.end());
    return out;
  }

  // Joins consecutive steps that one rank made: if it created a before b and b before c, then a
  // before c. Fewer steps are easier to read. At least two are left, because no rank's own order is
  // a cycle. The result begins with the group that comes first in Context::groups.
  static std::vector<Before> shortened(const std::vector<const Before*>& cycle) {
    std::vector<Before> out;
    // Joins the last step with `next` if some rank made both.
    const auto joined = [&](const Before& next) {
      RankIndices both = common(out.back().ranks, next.ranks);
      if (both.empty()) return false;
      out.back() = {out.back().from, next.to, std::move(both)};
      return true;
    };
    for (std::size_t i = 0; i < cycle.size(); ++i) {
      const bool more_than_two = out.size() + (cycle.size() - i) > 2;
      if (!out.empty() && more_than_two && joined(*cycle[i])) continue;
      out.push_back(*cycle[i]);
    }
    // The cycle has no beginning: the last step may also join with the first ones.
    std::size_t first = 0;
    while (out.size() - first > 2 && joined(out[first])) ++first;
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(first));
    std::rotate(out.begin(),
                std::min_element(out.begin(), out.end(),
                                 [](const Before& a, const Before& b) { return a.from < b.from; }),
                out.end());
    return out;
  }

  const Context& context_;
  struct Creator {
    std::uint32_t rank;            // index
    std::uint32_t creation_index;  // the group's index in the rank's order of creation
  };
  std::vector<std::vector<Creator>> creators_;  // by group, ascending
  std::vector<Before> edges_;                   // between groups created in a row, sorted
  std::vector<std::uint32_t> component_;        // by group
};

bool hung_outside_of_calls(const Context& context, const RankIndices& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
    const Position& p = context.where.positions[r];
    return p.state == Position::State::hung && p.waiting_in() == kNoCall;
  });
}

Cause explain_order(const Context& context, std::vector<Before> cycle) {
  Cause cause;
  Finding& f = cause.finding = make_finding(RuleId::group_divergence);
  RankIndices concerned;
  std::string names;
  for (const Before& step : cycle) {
    const char* const separator = f.message.empty() ? "" : &step == &cycle.back() ? ", but " : ", ";
    f.message +=
        fmt::format("{}{} created {} before {}", separator, context.describe_ranks(step.ranks),
                    context.describe_group(step.ranks[0], context.groups[step.from].group),
                    context.describe_group(step.ranks[0], context.groups[step.to].group));
    concerned = united(concerned, step.ranks);
    names += (names.empty() ? "" : ",") + context.groups[step.from].name;
  }
  if (cycle.size() == 2 && cycle[0].ranks.size() != cycle[1].ranks.size()) {
    const bool first = cycle[0].ranks.size() < cycle[1].ranks.size();
    cause.deviants = cycle[first ? 0 : 1].ranks;
    f.culprits = context.ranks(cause.deviants);
  } else {
    cause.deviants = concerned;
  }
  f.why =
      "Creating a group may wait for its members, as the set-up of Gloo and NCCL does: each of "
      "these ranks then waits in the group that it creates first. Where groups are named by "
      "counting, different groups get one name.";
  f.certainty = Certainty::possible;
  const bool hung = hung_outside_of_calls(context, concerned);
  if (!hung) f.severity = Severity::warning;
  cause.can_block = hung;
  cause.group = cycle[0].from;
  f.group = context.groups[cycle[0].from].name;
  f.ranks = context.ranks(concerned);
  set_fingerprint(f, names);
  return cause;
}

}  // namespace

std::vector<Cause> check_creation_order(const Context& context) {
  const CreationOrders orders(context);
  std::vector<Cause> out;
  for (std::vector<Before>& cycle : orders.cycles()) {
    if (cycle.size() == 2) {
      for (Before& step : cycle) step.ranks = orders.in_this_order(step.from, step.to);
    }
    out.push_back(explain_order(context, std::move(cycle)));
  }
  return out;
}

bool creation_order_unknown(const trace::Run& run) {
  std::map<trace::GroupId, std::size_t> members;
  for (const trace::RankTrace& trace : run.ranks) {
    if (trace.created_in_order > 0) return false;
    for (const Membership& m : trace.groups) members[m.group] += is_member(trace, m) ? 1U : 0U;
  }
  // One group alone has no order, and one recorded member has nothing to compare it with.
  return std::count_if(members.begin(), members.end(),
                       [](const auto& entry) { return entry.second >= 2; }) >= 2;
}

}  // namespace lockstep::verify
