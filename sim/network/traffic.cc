#include "sim/network/traffic.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim {
namespace {

// A node of a group, and its members there.
struct GroupNode {
  std::int64_t node = 0;
  std::vector<std::int32_t> members;
};

// In the order of their first members.
std::vector<GroupNode> nodes_of(const Network& network, const std::vector<std::int32_t>& members) {
  std::vector<std::pair<std::int64_t, std::size_t>> by_node;
  by_node.reserve(members.size());
  for (std::size_t i = 0; i < members.size(); ++i)
    by_node.emplace_back(network.node_of(members[i]), i);
  std::sort(by_node.begin(), by_node.end());
  std::vector<std::pair<std::size_t, GroupNode>> found;  // by first member
  for (const auto& [node, i] : by_node) {
    if (found.empty() || found.back().second.node != node) found.push_back({i, {node, {}}});
    found.back().second.members.push_back(members[i]);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<GroupNode> out;
  out.reserve(found.size());
  for (auto& [first, node] : found) out.push_back(std::move(node));
  return out;
}

// Sorted by link, each once.
std::vector<LinkLoad> merged(std::vector<LinkLoad> loads) {
  std::stable_sort(loads.begin(), loads.end(),
                   [](const LinkLoad& a, const LinkLoad& b) { return a.link < b.link; });
  std::vector<LinkLoad> out;
  for (const LinkLoad& load : loads) {
    if (!out.empty() && out.back().link == load.link)
      out.back().bytes += load.bytes;
    else
      out.push_back(load);
  }
  return out;
}

// The loads of one call: a function for each part of a pattern (traffic.h). Volumes are in units of
// the call's buffer.
class Loads {
 public:
  Loads(const Network& network, const std::vector<std::int32_t>& members, trace::Op op)
      : network_(network),
        nodes_(nodes_of(network, members)),
        members_(members),
        op_(plain_op(op)),
        ranks_(static_cast<double>(members.size())) {}

  std::vector<LinkLoad> of(Pattern pattern) {
    switch (pattern) {
      case Pattern::none:
        break;
      case Pattern::ring:
        inside(ring_volume(), false);
        around(ring_volume(), true);
        break;
      case Pattern::tree:
        inside(ring_volume(), false);
        trees();
        break;
      case Pattern::chain:
        inside(1, false);
        around(1, false);
        break;
      case Pattern::binomial:
        inside(1, false);
        doubling();
        break;
      case Pattern::pairs:
        pairs();
        break;
      case Pattern::star:
        star();
        break;
      case Pattern::message:
        message(members_[0], members_[1], 1);
        break;
      case Pattern::in_network:
        inside(1, true);
        up_and_down();
        break;
    }
    return std::move(out_);
  }

 private:
  void add(std::uint32_t link, double bytes) {
    if (bytes <= 0) return;
    out_.push_back({link, bytes});
    if (out_.size() < merged_at_) return;
    out_ = merged(std::move(out_));
    merged_at_ = std::max(merged_at_, 2 * out_.size());
  }

  // r (n-1)/n, with r = 2 for all-reduce: what each member of a ring passes on.
  double ring_volume() const {
    return (op_ == trace::Op::all_reduce || op_ == trace::Op::barrier ? 2 : 1) * (ranks_ - 1) /
           ranks_;
  }

  // What members pass on inside their nodes. A ring over several nodes leaves each node once per
  // channel, through another member for each: the one through which it leaves does not pass on
  // inside. `by_switch`: a switch reduces, so each member sends once.
  void inside(double volume, bool by_switch) {
    for (const GroupNode& node : nodes_) {
      if (node.members.size() < 2) continue;
      const auto here = static_cast<double>(node.members.size());
      const double share = nodes_.size() == 1 || by_switch ? 1 : (here - 1) / here;
      for (const std::int32_t member : node.members) {
        add(network_.port(member, Network::Port::node_out), volume * share);
        add(network_.port(member, Network::Port::node_in), volume * share);
      }
    }
  }

  // Bytes from one node to another, split evenly over the ports of the members there.
  void hop(const GroupNode& from, const GroupNode& to, double bytes) {
    for (const std::int32_t member : from.members)
      add(network_.port(member, Network::Port::net_out),
          bytes / static_cast<double>(from.members.size()));
    const double each = bytes / static_cast<double>(to.members.size());
    for (const std::int32_t member : to.members) {
      add(network_.port(member, Network::Port::net_in), each);
      if (network_.rails() > 1) pass(from.node, to.node, network_.rail_of(member), each);
    }
    if (network_.rails() == 1) pass(from.node, to.node, 0, bytes);
  }

  // Bytes on the links between switches. On rails, a message takes the leaf switch of its
  // receiver's rail: it changes rails inside the sender's node (NCCL's PXN).
  void pass(std::int64_t from, std::int64_t to, std::int64_t rail, double bytes) {
    network_.route(from, to, rail,
                   [&](std::uint32_t link, double share) { add(link, bytes * share); });
  }

  // From each node to the next; `closed`: and from the last to the first.
  void around(double bytes, bool closed) {
    if (nodes_.size() < 2) return;
    for (std::size_t i = 0; i + (closed ? 0 : 1) < nodes_.size(); ++i)
      hop(nodes_[i], nodes_[(i + 1) % nodes_.size()], bytes);
  }

  // Each of the two trees carries half of the buffer, up and down.
  void trees() {
    const auto count = static_cast<std::int64_t>(nodes_.size());
    for (const int tree : {0, 1})
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t parent = double_tree_node(tree, i, count).parent;
        if (parent < 0) continue;
        const GroupNode& here = nodes_[static_cast<std::size_t>(i)];
        const GroupNode& above = nodes_[static_cast<std::size_t>(parent)];
        hop(here, above, 0.5);
        hop(above, here, 0.5);
      }
  }

  // In step k, the first 2^k nodes have the buffer and each sends it to one more; a reduce goes the
  // other way.
  void doubling() {
    for (std::size_t distance = 1; distance < nodes_.size(); distance *= 2)
      for (std::size_t i = 0; i < distance && i + distance < nodes_.size(); ++i) {
        const bool to_first = op_ == trace::Op::reduce;
        hop(nodes_[to_first ? i + distance : i], nodes_[to_first ? i : i + distance], 1);
      }
  }

  void star() {
    const double each = 1 / ranks_;
    for (std::size_t i = 1; i < members_.size(); ++i) {
      if (op_ == trace::Op::gather)
        message(members_[i], members_[0], each);
      else
        message(members_[0], members_[i], each);
    }
  }

  void message(std::int64_t from, std::int64_t to, double bytes) {
    if (network_.node_of(from) == network_.node_of(to)) {
      add(network_.port(from, Network::Port::node_out), bytes);
      add(network_.port(to, Network::Port::node_in), bytes);
      return;
    }
    add(network_.port(from, Network::Port::net_out), bytes);
    add(network_.port(to, Network::Port::net_in), bytes);
    pass(network_.node_of(from), network_.node_of(to), network_.rail_of(to), bytes);
  }

  void pairs() {
    const double each = 1 / ranks_;
    for (const GroupNode& node : nodes_) {
      const auto here = static_cast<double>(node.members.size());
      for (const std::int32_t member : node.members) {
        for (const auto port : {Network::Port::node_out, Network::Port::node_in})
          add(network_.port(member, port), (here - 1) * each);
        for (const auto port : {Network::Port::net_out, Network::Port::net_in})
          add(network_.port(member, port), (ranks_ - here) * each);
      }
    }
    if (network_.has_tiers()) return pairs_on_tiers();
    for (const GroupNode& from : nodes_)
      for (const GroupNode& to : nodes_)
        if (&from != &to)
          pass(from.node, to.node, 0,
               each * static_cast<double>(from.members.size() * to.members.size()));
  }

  // A switch with m of n members below it sends m (n - m) parts up and receives as many. On rails,
  // a part takes the leaf switch of its receiver's rail, as in pass(). Grouping members by switch
  // avoids visiting all pairs of them.
  void pairs_on_tiers() {
    const double each = 1 / ranks_;
    for (std::size_t tier = 0; tier < network_.topology().tiers.size(); ++tier) {
      const bool by_rail = tier == 0 && network_.rails() > 1;
      std::vector<std::pair<std::int64_t, std::int64_t>> positions;  // (switch, rail) of members
      for (const std::int32_t member : members_)
        positions.emplace_back(network_.node_of(member) / network_.topology().tiers[tier].nodes,
                               by_rail ? network_.rail_of(member) : 0);
      const auto rails = static_cast<std::size_t>(by_rail ? network_.rails() : 1);
      std::vector<double> on_rail(rails, 0);
      for (const auto& [number, rail] : positions) ++on_rail[static_cast<std::size_t>(rail)];
      std::sort(positions.begin(), positions.end());
      for (std::size_t i = 0; i < positions.size();) {
        const std::int64_t number = positions[i].first;
        std::vector<double> below(rails, 0);
        double all = 0;
        for (; i < positions.size() && positions[i].first == number; ++i, ++all)
          ++below[static_cast<std::size_t>(positions[i].second)];
        const std::int64_t node = number * network_.topology().tiers[tier].nodes;
        for (std::size_t rail = 0; rail < rails; ++rail) {
          const auto r = static_cast<std::int64_t>(rail);
          add(network_.up(tier, node, r), all * (on_rail[rail] - below[rail]) * each);
          add(network_.down(tier, node, r), (ranks_ - all) * below[rail] * each);
        }
      }
    }
  }

  // Each node sends its buffer once to its leaf switch, and each switch reduces what comes from
  // below. On rails, each rail carries the share of the members on it.
  void up_and_down() {
    if (nodes_.size() < 2) return;
    for (const GroupNode& node : nodes_)
      for (const std::int32_t member : node.members)
        for (const auto port : {Network::Port::net_out, Network::Port::net_in})
          add(network_.port(member, port), 1 / static_cast<double>(node.members.size()));
    for (std::size_t tier = 0; tier < network_.topology().tiers.size(); ++tier) {
      const bool across = std::any_of(nodes_.begin(), nodes_.end(), [&](const GroupNode& node) {
        return network_.separated(tier, node.node, nodes_.front().node);
      });
      if (!across) return;
      std::vector<LinkLoad> used;
      for (const GroupNode& node : nodes_) {
        std::vector<LinkLoad> here;
        for (const std::int32_t member : node.members)
          here.push_back({network_.up(tier, node.node, tier == 0 ? network_.rail_of(member) : 0),
                          1 / static_cast<double>(node.members.size())});
        here = merged(std::move(here));
        used.insert(used.end(), here.begin(), here.end());
      }
      // The members of one node send different parts, so their bytes add up. The nodes below one
      // switch send the same part, which the switch reduces: the largest counts.
      std::sort(used.begin(), used.end(),
                [](const LinkLoad& a, const LinkLoad& b) { return a.link < b.link; });
      for (std::size_t i = 0; i < used.size();) {
        const std::uint32_t link = used[i].link;
        double most = 0;
        for (; i < used.size() && used[i].link == link; ++i) most = std::max(most, used[i].bytes);
        add(link, most);
        add(link + 1, most);
      }
    }
  }

  const Network& network_;
  std::vector<GroupNode> nodes_;
  const std::vector<std::int32_t>& members_;
  trace::Op op_;
  double ranks_;
  std::vector<LinkLoad> out_;
  // merged() runs when there are so many loads, so that each link is in memory only a few times.
  std::size_t merged_at_ = std::size_t{1} << 20U;
};

}  // namespace

Pattern pattern_of(trace::Op op, const GroupLayout& layout, const Price& price, bool sharp) {
  if (layout.ranks < 2) return Pattern::none;
  // By NCCL's choice where there is one; otherwise by Gloo's algorithms.
  if (price.chosen) {
    switch (price.chosen->algorithm) {
      case NcclAlgorithm::tree:
      case NcclAlgorithm::nvls_tree:
        return Pattern::tree;
      case NcclAlgorithm::nvls:
      case NcclAlgorithm::collnet_direct:
      case NcclAlgorithm::collnet_chain:
        return Pattern::in_network;
      case NcclAlgorithm::ring:
        break;
    }
  }
  switch (plain_op(op)) {
    case trace::Op::all_reduce:
      return !price.chosen && sharp && goes_in_rings(op, layout) ? Pattern::in_network
                                                                 : Pattern::ring;
    case trace::Op::all_gather:
    case trace::Op::reduce_scatter:
      return Pattern::ring;
    case trace::Op::broadcast:
    case trace::Op::reduce:
      return price.chosen ? Pattern::chain : Pattern::binomial;
    case trace::Op::all_to_all:
      return Pattern::pairs;
    case trace::Op::gather:
    case trace::Op::scatter:
      return Pattern::star;
    case trace::Op::send:
      return Pattern::message;
    default:
      return Pattern::none;
  }
}

std::vector<LinkLoad> traffic(const Network& network, const std::vector<std::int32_t>& members,
                              trace::Op op, Pattern pattern) {
  LOCKSTEP_CHECK(members.size() >= 2, "a call of one rank uses no link");
  return merged(Loads(network, members, op).of(pattern));
}

double visits(const Network& network, std::int64_t nodes, Pattern pattern) {
  if (pattern != Pattern::pairs || network.has_tiers()) return 0;
  return static_cast<double>(nodes) * static_cast<double>(nodes) *
         static_cast<double>(network.longest_route());
}

Status check_visits(const Network& network, double visits) {
  if (visits <= kMaxVisits) return Status::ok();
  return Error{
      fmt::format("network: all-to-alls have too many routes on this {} to follow each of them",
                  topology_name(network.topology().kind)),
      {},
      "use fewer ranks, or a fat tree or rails"};
}

std::vector<LinkLoad> sum_of(const std::vector<std::vector<LinkLoad>>& loads) {
  std::vector<LinkLoad> all;
  for (const std::vector<LinkLoad>& one : loads) all.insert(all.end(), one.begin(), one.end());
  return merged(std::move(all));
}

PortLoad port_load(const Network& network, const std::vector<LinkLoad>& loads) {
  PortLoad out;
  double inside = 0;
  for (const LinkLoad& load : loads) {
    if (!network.is_port(load.link)) continue;
    out.seconds = std::max(out.seconds, load.bytes / network.capacity(load.link));
    double& flow = network.is_inside(load.link) ? inside : out.flow;
    flow = std::max(flow, load.bytes);
  }
  if (out.flow == 0) out.flow = inside;
  return out;
}

Narrowest narrowest(const Network& network, const std::vector<LinkLoad>& loads, double bytes,
                    double seconds) {
  Narrowest out;
  if (bytes <= 0 || seconds <= 0) return out;
  const double rate = std::min(bytes / seconds, 1 / port_load(network, loads).seconds);
  for (const LinkLoad& load : loads) {
    if (network.is_port(load.link)) continue;
    const double factor = load.bytes * rate / network.capacity(load.link);
    if (factor > out.factor) out = {factor, load.link};
  }
  return out;
}

void add_hops(const Network& network, const std::vector<std::int32_t>& members,
              GroupLayout& layout) {
  const std::vector<GroupNode> nodes = nodes_of(network, members);
  const std::size_t count = nodes.size();
  if (count < 2) return;
  double ring = 0, pairs = 0, counted = 0;
  // Pairs from all nodes would be quadratic: a sample of 64 of them gives the mean.
  const std::size_t every = std::max<std::size_t>(1, count / 64);
  for (std::size_t i = 0; i < count; ++i) {
    ring += network.hops(nodes[i].node, nodes[(i + 1) % count].node);
    layout.most_hops = std::max(layout.most_hops, network.hops(nodes[0].node, nodes[i].node));
    if (i % every != 0) continue;
    for (std::size_t ahead = 1; ahead < count; ++ahead, ++counted)
      pairs += network.hops(nodes[i].node, nodes[(i + ahead) % count].node);
  }
  layout.ring_hops = ring / static_cast<double>(count);
  layout.pair_hops = pairs / counted;
}

}  // namespace lockstep::sim
