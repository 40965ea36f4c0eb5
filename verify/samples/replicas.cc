#include "verify/samples/replicas.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

namespace lockstep {

namespace {

class UnionFind {
 public:
  explicit UnionFind(std::size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0U); }
  std::uint32_t root(std::uint32_t x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }
  void unite(std::uint32_t a, std::uint32_t b) { parent_[root(a)] = root(b); }

 private:
  std::vector<std::uint32_t> parent_;
};

struct Traffic {
  std::set<std::uint32_t> reducing, naming;  // groups with reductions; … that name what they carry
  std::set<std::pair<std::uint32_t, std::uint32_t>> messages;
  bool any_call = false;
};

Traffic traffic_of(const Run& run) {
  std::unordered_map<std::int32_t, std::uint32_t> index_of;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) index_of[run.ranks[r].rank.value] = r;
  Traffic out;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    for (const Call& call : run.ranks[r].calls) {
      out.any_call = true;
      const Op op = run.tables.signatures[call.signature].op;
      if (is_reduction(op)) {
        out.reducing.insert(call.group.value);
        if (call.what.value != 0) out.naming.insert(call.group.value);
      } else if (is_point_to_point(op)) {
        const auto peer = index_of.find(call.peer.value);
        if (peer != index_of.end()) out.messages.insert(std::minmax(r, peer->second));
      }
    }
  }
  return out;
}

}  // namespace

Replicas find_replicas(const Context& context) {
  const Traffic traffic = traffic_of(context.run);
  Replicas out;
  out.partners.assign(traffic.messages.begin(), traffic.messages.end());
  const auto ranks = static_cast<std::uint32_t>(context.run.ranks.size());
  UnionFind sets(ranks);
  if (!traffic.any_call) {
    for (std::uint32_t r = 1; r < ranks; ++r) sets.unite(0, r);
  }
  const std::set<std::uint32_t>& averaging =
      traffic.naming.empty() ? traffic.reducing : traffic.naming;
  if (traffic.naming.empty() && traffic.reducing.size() > 1) {
    out.known = false;
    return out;
  }
  std::set<std::uint32_t> talking;
  for (const auto& [a, b] : traffic.messages) talking.insert({a, b});
  for (const GroupStreams& group : context.groups) {
    if (!averaging.contains(group.group.value)) continue;
    // A group over parts of one model (a norm over all of them, say) averages nothing.
    const auto joins_parts = [&](const auto& message) {
      const auto member = [&](std::uint32_t r) {
        return std::any_of(group.streams.begin(), group.streams.end(),
                           [&](const Stream& s) { return s.rank_index == r; });
      };
      return member(message.first) && member(message.second);
    };
    if (std::any_of(traffic.messages.begin(), traffic.messages.end(), joins_parts)) continue;
    for (const Stream& stream : group.streams) {
      sets.unite(group.streams.front().rank_index, stream.rank_index);
    }
  }
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_root;
  for (std::uint32_t r = 0; r < ranks; ++r) by_root[sets.root(r)].push_back(r);
  for (auto& [root, members] : by_root) {
    if (members.size() > 1) out.sets.push_back(std::move(members));
  }
  return out;
}

}  // namespace lockstep
