// The picture of who waits for whom: a box for ranks that wait alike, an arrow per wait. Where the
// boxes stand: wait_layout.cc.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/figures/figures.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"

namespace lockstep::reports::html {
namespace {

// More boxes are a picture that nobody reads; a hang has few kinds of ranks, and chains are folded.
constexpr std::size_t kMaxNodes = 16;
constexpr std::size_t kNodeLetters = 37;  // that fit into a node's box

// A call, shortened to that many letters. Its reduce operation, " (sum)", is left out first, so
// that the digits of its size stay.
std::string fitted_call(std::string call, std::size_t letters) {
  if (columns_of(call) > letters && call.ends_with(')'))
    call.erase(std::min(call.size(), call.rfind(" (")));
  return shorten_middle(call, letters);
}

// The part of the graph that is drawn.
struct Drawn {
  std::vector<WaitNode> nodes;
  std::vector<WaitEdge> edges;
  std::size_t left_out = 0;              // ranks
  std::vector<std::size_t> by_nearness;  // nodes, culprits first
};

// Folds each chain of ranks that wait one for the other, as a pipeline's stages do after one that
// stopped: "62 ranks in a chain" instead of 62 boxes. The first of a chain, next to whom all wait
// for, stays by itself.
WaitPicture without_chains(const WaitPicture& picture) {
  constexpr std::size_t kShortestChain = 4;  // of fewer the boxes have room
  const std::size_t count = picture.nodes.size();
  std::vector<std::size_t> out_edges(count), in_edges(count), next(count, count);
  for (const WaitEdge& edge : picture.edges) {
    ++out_edges[edge.from];
    ++in_edges[edge.to];
    next[edge.from] = edge.kind == WaitEdge::Kind::missing ? edge.to : count;
  }
  // A link waits for one other and at most one waits for it.
  const auto link = [&](std::size_t n) {
    return !picture.nodes[n].culprit && !picture.nodes[n].call.empty() && out_edges[n] == 1 &&
           in_edges[n] <= 1 && next[n] != count;
  };
  std::vector<std::size_t> before(count, count);
  for (std::size_t n = 0; n < count; ++n)
    if (link(n)) before[next[n]] = n;
  std::vector<std::size_t> into(count);  // the node that each becomes a part of
  for (std::size_t n = 0; n < count; ++n) into[n] = n;
  WaitPicture out = picture;
  for (std::size_t n = 0; n < count; ++n) {
    // A chain begins where the next one is not a link of it; a ring has no such beginning.
    if (!link(n) || (link(next[n]) && before[next[n]] == n)) continue;
    std::vector<std::size_t> chain;
    for (std::size_t m = n; m != count && link(m); m = before[m]) chain.push_back(m);
    if (chain.size() < kShortestChain) continue;
    WaitNode& folded = out.nodes[chain[1]];
    for (std::size_t i = 2; i < chain.size(); ++i) {
      into[chain[i]] = chain[1];
      const std::vector<trace::Rank>& ranks = picture.nodes[chain[i]].ranks;
      folded.ranks.insert(folded.ranks.end(), ranks.begin(), ranks.end());
    }
    std::sort(folded.ranks.begin(), folded.ranks.end());
    folded.location = "each for the one before";
  }
  // New numbers, without the nodes that were folded away.
  std::vector<std::size_t> number(count, count);
  std::vector<WaitNode> kept;
  for (std::size_t n = 0; n < count; ++n) {
    if (into[n] != n) continue;
    number[n] = kept.size();
    kept.push_back(std::move(out.nodes[n]));
  }
  out.nodes = std::move(kept);
  std::erase_if(out.edges, [&](const WaitEdge& edge) {
    return into[edge.from] == into[edge.to] && edge.from != edge.to;
  });
  for (WaitEdge& edge : out.edges)
    edge = {number[into[edge.from]], number[into[edge.to]], edge.kind};
  return out;
}

// Nodes by their distance from the culprits: a breadth-first search along edges in either
// direction. Nodes that it does not reach come last.
std::vector<std::size_t> by_nearness(const WaitPicture& picture) {
  std::vector<std::vector<std::size_t>> next(picture.nodes.size());
  for (const WaitEdge& edge : picture.edges) {
    next[edge.from].push_back(edge.to);
    next[edge.to].push_back(edge.from);
  }
  std::vector<bool> seen(picture.nodes.size());
  std::vector<std::size_t> order;
  std::deque<std::size_t> queue;
  const auto visit = [&](std::size_t n) {
    if (!seen[n]) queue.push_back(n);
    seen[n] = true;
  };
  const auto drain = [&] {
    for (; !queue.empty(); queue.pop_front()) {
      order.push_back(queue.front());
      for (const std::size_t n : next[queue.front()]) visit(n);
    }
  };
  for (std::size_t n = 0; n < picture.nodes.size(); ++n)
    if (picture.nodes[n].culprit) visit(n);
  drain();
  for (std::size_t n = 0; n < picture.nodes.size(); ++n) {
    visit(n);
    drain();
  }
  return order;
}

Drawn drawn_part(const WaitPicture& all) {
  const WaitPicture picture = without_chains(all);
  std::vector<std::size_t> order = by_nearness(picture);
  Drawn out;
  for (std::size_t i = kMaxNodes; i < order.size(); ++i)
    out.left_out += picture.nodes[order[i]].ranks.size();
  order.resize(std::min(order.size(), kMaxNodes));
  // Back to the picture's order, so that the layout does not depend on the search.
  const std::vector<std::size_t> nearest = order;
  std::sort(order.begin(), order.end());
  std::map<std::size_t, std::size_t> index_of;
  for (const std::size_t n : order) {
    index_of.emplace(n, out.nodes.size());
    out.nodes.push_back(picture.nodes[n]);
  }
  for (const std::size_t n : nearest) out.by_nearness.push_back(index_of.at(n));
  for (const WaitEdge& edge : picture.edges) {
    const auto from = index_of.find(edge.from);
    const auto to = index_of.find(edge.to);
    if (from != index_of.end() && to != index_of.end())
      out.edges.push_back({from->second, to->second, edge.kind});
  }
  return out;
}

class WaitFigure {
 public:
  explicit WaitFigure(const WaitPicture& picture)
      : drawn_(drawn_part(picture)), layout_(lay_out(drawn_.nodes.size(), drawn_.edges)) {
    // lay_out() puts whom others wait for on the right. Readers begin at the left, and a narrow
    // window shows the left only: there the culprit is.
    for (Box& box : layout_.boxes) box.x = layout_.width - box.x - box.width;
  }

  std::string str() const {
    std::string content;
    for (const WaitEdge& edge : drawn_.edges) content += this->edge(edge);
    for (std::size_t n = 0; n < drawn_.nodes.size(); ++n) content += node(n);
    return element("figure", "waiting",
                   element("div", "roomy",
                           scroller("who waits for whom", svg_picture(summary(), layout_.width,
                                                                      layout_.height, content))) +
                       list() + element("figcaption", "roomy", text(caption())));
  }

 private:
  bool has(WaitEdge::Kind kind) const {
    return std::any_of(drawn_.edges.begin(), drawn_.edges.end(),
                       [&](const WaitEdge& edge) { return edge.kind == kind; });
  }

  std::string caption() const {
    std::string out;
    if (drawn_.edges.empty()) out = "All ranks issued this call, and it does not complete. ";
    if (has(WaitEdge::Kind::missing) || has(WaitEdge::Kind::any))
      out += "Arrows point to whom ranks wait for";
    if (out.starts_with("Arrows")) out += layout_.has_ring ? "; they form a cycle. " : ". ";
    if (has(WaitEdge::Kind::mismatch))
      out += "≠ joins calls of one collective that do not fit together. ";
    if (has(WaitEdge::Kind::unknown)) out += "? leads to ranks without a trace. ";
    if (has(WaitEdge::Kind::any)) out += "Dashed: any one of these would do. ";
    if (drawn_.left_out > 0)
      out += fmt::format("{} not drawn.", plural(drawn_.left_out, "more rank"));
    return out;
  }

  // Nodes that wait in calls alike for the same ones: an item of the list.
  struct Item {
    std::vector<trace::Rank> ranks;
    const WaitNode* node = nullptr;  // the first of them
    std::size_t calls = 0;           // in how many places they wait
    std::set<std::size_t> targets;   // nodes
  };

  // Culprits first, then by distance. The seven ranks of a tensor-parallel group that wait for the
  // eighth are one item, and so are those that wait for one of the seven, each in its own group.
  std::vector<Item> items() const {
    using Key = std::tuple<bool, std::string, std::string, std::set<std::size_t>>;
    const std::size_t count = drawn_.nodes.size();
    std::vector<std::size_t> item_of(count);
    // A target that is in no item yet (in a cycle) gets a number that no other node has.
    for (std::size_t n = 0; n < count; ++n) item_of[n] = count + n;
    std::map<Key, std::size_t> known;
    std::vector<Item> out;
    std::vector<std::set<std::string>> places;
    for (const std::size_t n : drawn_.by_nearness) {
      const WaitNode& node = drawn_.nodes[n];
      std::set<std::size_t> targets, target_items;
      for (const WaitEdge& edge : drawn_.edges) {
        if (edge.from != n || edge.kind == WaitEdge::Kind::mismatch) continue;
        targets.insert(edge.to);
        target_items.insert(item_of[edge.to]);
      }
      const Key key{node.culprit, node.call, node.state, std::move(target_items)};
      const auto [found, is_new] = known.try_emplace(key, out.size());
      if (is_new) {
        out.push_back({{}, &node, 0, {}});
        places.emplace_back();
      }
      item_of[n] = found->second;
      Item& item = out[found->second];
      item.ranks.insert(item.ranks.end(), node.ranks.begin(), node.ranks.end());
      item.targets.merge(targets);
      places[found->second].insert(node.location);
      item.calls = places[found->second].size();
    }
    for (Item& item : out) std::sort(item.ranks.begin(), item.ranks.end());
    return out;
  }

  std::string targets_of(const Item& item) const {
    std::vector<trace::Rank> ranks;
    for (const std::size_t n : item.targets) {
      const std::vector<trace::Rank>& more = drawn_.nodes[n].ranks;
      ranks.insert(ranks.end(), more.begin(), more.end());
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks.empty() ? "" : fmt::format(", for {}", text(rank_label(ranks, 40)));
  }

  // The same as lines, for windows in which a graph is too small to be read.
  std::string list() const {
    std::string lines;
    for (const Item& item : items()) {
      const WaitNode& node = *item.node;
      const std::string where =
          item.calls == 1 ? text(node.location) : fmt::format("{} calls like it", item.calls);
      const std::string state =
          node.call.empty() ? text(node.state)
                            : fmt::format("{} in {}, {}", item.ranks.size() == 1 ? "waits" : "wait",
                                          code(node.call), where);
      lines +=
          fmt::format("<li{}><strong>{}</strong> {}{}</li>\n", node.culprit ? " class=\"bad\"" : "",
                      text(rank_label(item.ranks, 60)), state, targets_of(item));
    }
    const std::string left_out =
        drawn_.left_out == 0
            ? ""
            : element("p", "caption narrow",
                      text(fmt::format("and {}", plural(drawn_.left_out, "more rank"))));
    return element("ul", "narrow", lines) + left_out;
  }

  std::string summary() const {
    std::string out;
    for (const WaitEdge& edge : drawn_.edges) {
      const bool mismatch = edge.kind == WaitEdge::Kind::mismatch;
      out += fmt::format("{} {} {}{}. ", rank_label(drawn_.nodes[edge.from].ranks, 40),
                         mismatch ? "and" : "wait for", rank_label(drawn_.nodes[edge.to].ranks, 40),
                         mismatch ? " do not fit together" : "");
    }
    return out;
  }

  // The ends of an edge, and whether it leaves its boxes sideways or vertically. Two nodes that
  // wait for each other have two lines, drawn apart.
  struct Way {
    Point from, to;
    bool level = true;
  };
  Way way(const WaitEdge& edge) const {
    const Box& a = layout_.boxes[edge.from];
    const Box& b = layout_.boxes[edge.to];
    // Two arrows between the same boxes would lie on each other.
    const double apart = both_ways(edge) ? 12 : 0;
    if (b.x >= a.x + a.width)
      return {{a.right().x, a.right().y - apart}, {b.left().x, b.left().y - apart}, true};
    if (a.x >= b.x + b.width)
      return {{a.left().x, a.left().y + apart}, {b.right().x, b.right().y + apart}, true};
    if (b.y > a.y)
      return {{a.bottom().x - 2 * apart, a.bottom().y}, {b.top().x - 2 * apart, b.top().y}, false};
    return {{a.top().x + 2 * apart, a.top().y}, {b.bottom().x + 2 * apart, b.bottom().y}, false};
  }

  std::string edge(const WaitEdge& edge) const {
    constexpr double kTip = 9;
    const Way way = this->way(edge);
    const Point middle{(way.from.x + way.to.x) / 2 + (way.level ? -4 : 7),
                       (way.from.y + way.to.y) / 2 + (way.level ? -6 : 4)};
    const auto curve = way.level ? svg_level_curve : svg_upright_curve;
    if (edge.kind == WaitEdge::Kind::mismatch)
      return curve("join bad", way.from, way.to) + svg_text("state bad-ink", middle, "≠");
    const double direction =
        way.level ? (way.to.x > way.from.x ? 1 : -1) : (way.to.y > way.from.y ? 1 : -1);
    const Point before = way.level ? Point{way.to.x - kTip * direction, way.to.y}
                                   : Point{way.to.x, way.to.y - kTip * direction};
    return curve(edge.kind == WaitEdge::Kind::missing ? "join" : "join dashed", way.from, before) +
           svg_tip("tip", before, way.to) +
           (edge.kind == WaitEdge::Kind::unknown ? svg_text("state", middle, "?") : "");
  }

  bool both_ways(const WaitEdge& edge) const {
    return std::any_of(drawn_.edges.begin(), drawn_.edges.end(), [&](const WaitEdge& other) {
      return other.from == edge.to && other.to == edge.from;
    });
  }

  std::string node(std::size_t n) const {
    const WaitNode& node = drawn_.nodes[n];
    const Box& box = layout_.boxes[n];
    const bool waits = !node.call.empty();
    const std::string in =
        waits ? fmt::format(" in {}, {}", node.call, node.location) : std::string();
    std::string out =
        fmt::format("<g><title>{}</title>",
                    text(fmt::format("{}: {}{}", rank_label(node.ranks, 80), node.state, in)));
    out += svg_rect(node.culprit ? "box bad" : waits ? "box waits" : "box", box, 6);
    out += svg_text(node.culprit ? "name bad-ink" : "name", {box.x + 12, box.y + 20},
                    rank_label(node.ranks, kNodeLetters));
    if (!waits)
      return fmt::format("{}{}</g>", out, svg_text("note", {box.x + 12, box.y + 39}, node.state));
    out +=
        svg_text("", {box.x + 12, box.y + 38}, fitted_call(printable(node.call), kNodeLetters - 1));
    return fmt::format(
        "{}{}</g>", out,
        svg_text("note", {box.x + 12, box.y + 54},
                 shorten_middle(fmt::format("waits, {}", printable(node.location)), kNodeLetters)));
  }

  Drawn drawn_;
  WaitLayout layout_;
};

}  // namespace

std::string wait_figure(const WaitPicture& picture) {
  if (picture.nodes.empty()) return {};
  return WaitFigure(picture).str();
}

}  // namespace lockstep::reports::html
