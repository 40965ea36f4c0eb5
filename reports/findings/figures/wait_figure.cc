#include "reports/findings/figures/wait_figure.h"

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "base/columns.h"
#include "base/text.h"
#include "reports/findings/figures/wait_layout.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"

namespace lockstep::html {
namespace {

constexpr std::size_t kMostNodes = 16;
constexpr std::size_t kNodeLetters = 25;  // that fit into a node

// A graph that is small enough to be drawn.
struct Drawn {
  std::vector<WaitNode> nodes;
  std::vector<WaitEdge> edges;
  std::size_t left_out = 0;  // ranks
};

// Culprits first, then what is nearest to them along edges of either direction.
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

Drawn drawn_part(const WaitPicture& picture) {
  std::vector<std::size_t> order = by_nearness(picture);
  Drawn out;
  for (std::size_t i = kMostNodes; i < order.size(); ++i)
    out.left_out += picture.nodes[order[i]].ranks.size();
  order.resize(std::min(order.size(), kMostNodes));
  std::sort(order.begin(), order.end());
  std::map<std::size_t, std::size_t> place;
  for (const std::size_t n : order) {
    place.emplace(n, out.nodes.size());
    out.nodes.push_back(picture.nodes[n]);
  }
  for (const WaitEdge& edge : picture.edges) {
    const auto from = place.find(edge.from);
    const auto to = place.find(edge.to);
    if (from != place.end() && to != place.end())
      out.edges.push_back({from->second, to->second, edge.kind});
  }
  return out;
}

class WaitFigure {
 public:
  explicit WaitFigure(const WaitPicture& picture)
      : drawn_(drawn_part(picture)), layout_(lay_out(drawn_.nodes.size(), drawn_.edges)) {}

  std::string str() const {
    std::string content;
    for (const WaitEdge& edge : drawn_.edges) content += this->edge(edge);
    for (std::size_t n = 0; n < drawn_.nodes.size(); ++n) content += node(n);
    return element("figure", "",
                   scroller("who waits for whom",
                            svg_picture(summary(), layout_.width, layout_.height, content)) +
                       element("figcaption", "", text(caption())));
  }

 private:
  bool has(WaitEdge::Kind kind) const {
    return std::any_of(drawn_.edges.begin(), drawn_.edges.end(),
                       [&](const WaitEdge& edge) { return edge.kind == kind; });
  }

  std::string caption() const {
    std::string words;
    if (drawn_.edges.empty()) words = "Everybody came to this call, and it does not end. ";
    if (has(WaitEdge::Kind::missing) || has(WaitEdge::Kind::any))
      words += "Arrows point to whom ranks wait for";
    if (words.starts_with("Arrows")) words += layout_.goes_round ? "; they go round. " : ". ";
    if (has(WaitEdge::Kind::mismatch)) words += "≠ joins calls that met and do not fit together. ";
    if (has(WaitEdge::Kind::unknown)) words += "? leads to ranks without a trace. ";
    if (has(WaitEdge::Kind::any)) words += "Dashed: any one of these would do. ";
    if (drawn_.left_out > 0) words += plural(drawn_.left_out, "more rank") + " not drawn.";
    return words;
  }

  std::string summary() const {
    std::string out;
    for (const WaitEdge& edge : drawn_.edges) {
      const bool mismatch = edge.kind == WaitEdge::Kind::mismatch;
      out += rank_label(drawn_.nodes[edge.from].ranks, 40) + (mismatch ? " and " : " wait for ") +
             rank_label(drawn_.nodes[edge.to].ranks, 40) +
             (mismatch ? " do not fit together. " : ". ");
    }
    return out;
  }

  // From where to where the edge goes, and whether level or upright. Two nodes that wait for each
  // other have two lines.
  struct Way {
    Point from, to;
    bool level = true;
  };
  Way way(const WaitEdge& edge) const {
    const Box& a = layout_.boxes[edge.from];
    const Box& b = layout_.boxes[edge.to];
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
    std::string out = "<g><title>" +
                      text(rank_label(node.ranks, 80) + ": " + node.state +
                           (waits ? " in " + node.call + ", " + node.place : "")) +
                      "</title>";
    out += svg_rect(node.culprit ? "box bad" : waits ? "box waits" : "box", box, 6);
    out += svg_text(node.culprit ? "name bad-ink" : "name", {box.x + 12, box.y + 20},
                    rank_label(node.ranks, kNodeLetters));
    if (!waits) return out + svg_text("note", {box.x + 12, box.y + 39}, node.state) + "</g>";
    out += svg_text("", {box.x + 12, box.y + 38},
                    shorten_middle(printable(node.call), kNodeLetters - 1));
    return out +
           svg_text("note", {box.x + 12, box.y + 54},
                    shorten_middle("waits, " + printable(node.place), kNodeLetters + 3)) +
           "</g>";
  }

  Drawn drawn_;
  WaitLayout layout_;
};

}  // namespace

std::string wait_figure(const WaitPicture& picture) {
  if (picture.nodes.empty()) return {};
  return WaitFigure(picture).str();
}

}  // namespace lockstep::html
