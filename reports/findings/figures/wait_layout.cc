// Where the boxes of wait_figure() stand. A box is in a column by the longest path to one that
// waits for nobody, so arrows lead to the right; ranks that wait for each other form a ring.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "reports/findings/figures/figures.h"

namespace lockstep::reports::html {
namespace {

constexpr double kNodeWidth = 290;
constexpr double kNodeHeight = 62;
constexpr double kAcross = 60;  // between columns
constexpr double kDown = 34;    // between the nodes of a column
constexpr double kEdge = 3;     // room for strokes at the picture's edge

using Nodes = std::vector<std::size_t>;

class LayeredLayout {
 public:
  LayeredLayout(std::size_t nodes, const std::vector<WaitEdge>& edges) : count_(nodes) {
    for (const WaitEdge& edge : edges)
      if (edge.kind != WaitEdge::Kind::mismatch && edge.from != edge.to) edges_.push_back(edge);
    close();
    find_levels();
  }

  WaitLayout lay_out() {
    boxes_.assign(count_, {0, 0, kNodeWidth, kNodeHeight});
    placed_.assign(count_, false);
    lay_out_rings();
    std::map<int, Nodes> columns;
    for (std::size_t n = 0; n < count_; ++n)
      if (!in_ring(n)) columns[column_of(n)].push_back(n);
    for (const auto& [column, nodes] : from_the_middle(columns)) lay_out_column(nodes);
    return finished(columns);
  }

 private:
  bool in_ring(std::size_t n) const { return reach_[n][n]; }
  bool in_one_ring(std::size_t a, std::size_t b) const { return reach_[a][b] && reach_[b][a]; }

  // Transitive closure: who waits for whom, directly or through others (Warshall 1962). A node that
  // reaches itself is in a cycle.
  void close() {
    reach_.assign(count_, std::vector<bool>(count_));
    for (const WaitEdge& edge : edges_) reach_[edge.from][edge.to] = true;
    for (std::size_t via = 0; via < count_; ++via)
      for (std::size_t a = 0; a < count_; ++a)
        for (std::size_t b = 0; reach_[a][via] && b < count_; ++b)
          if (reach_[via][b]) reach_[a][b] = true;
  }

  // Level: the longest path to a node that waits for nobody; all nodes of a cycle have the same
  // level. Relaxed `count_` times, which is as long as a path can be.
  void find_levels() {
    level_.assign(count_, 0);
    for (std::size_t round = 0; round < count_; ++round) {
      for (const WaitEdge& edge : edges_)
        if (!in_one_ring(edge.from, edge.to))
          level_[edge.from] = std::max(level_[edge.from], level_[edge.to] + 1);
      for (std::size_t a = 0; a < count_; ++a)
        for (std::size_t b = 0; b < count_; ++b)
          if (in_one_ring(a, b)) level_[a] = std::max(level_[a], level_[b]);
    }
  }

  std::vector<Nodes> rings() const {
    std::vector<Nodes> out;
    std::vector<bool> seen(count_);
    for (std::size_t n = 0; n < count_; ++n) {
      if (!in_ring(n) || seen[n]) continue;
      Nodes& ring = out.emplace_back();
      for (std::size_t m = n; m < count_; ++m) {
        if (!in_one_ring(n, m)) continue;
        ring.push_back(m);
        seen[m] = true;
      }
    }
    return out;
  }

  // The nodes of a ring in the order of the arrows, as far as they have one.
  Nodes around(const Nodes& ring) const {
    Nodes order = {ring.front()};
    std::set<std::size_t> left(ring.begin() + 1, ring.end());
    while (!left.empty()) {
      auto next = left.begin();
      for (const WaitEdge& edge : edges_)
        if (edge.from == order.back() && left.contains(edge.to)) next = left.find(edge.to);
      order.push_back(*next);
      left.erase(next);
    }
    return order;
  }

  // Clockwise in two columns, up the left one and down the right one; several rings one below the
  // other.
  void lay_out_rings() {
    double top = 0;
    for (const Nodes& ring : rings()) {
      const Nodes order = around(ring);
      const std::size_t left = order.size() / 2;
      const std::size_t right = order.size() - left;
      const double offset = static_cast<double>(right - left) * (kNodeHeight + kDown) / 2;
      for (std::size_t i = 0; i < order.size(); ++i) {
        const bool up = i < left;
        const auto row = static_cast<double>(up ? left - 1 - i : i - left);
        Box& box = boxes_[order[i]];
        box.x = up ? 0 : kNodeWidth + kAcross;  // finished() moves them
        box.y = top + row * (kNodeHeight + kDown) + (up ? offset : 0);
        placed_[order[i]] = true;
      }
      ring_level_ = std::max(ring_level_.value_or(0), level_[order[0]]);
      top += static_cast<double>(right) * (kNodeHeight + kDown) + kDown;
    }
  }

  // The column of a node outside the rings; negative is left. Column 0 is the rings, or without
  // rings the nodes that wait for nobody.
  int column_of(std::size_t n) const {
    if (!ring_level_) return -static_cast<int>(level_[n]);
    const int beyond = static_cast<int>(level_[n]) - static_cast<int>(*ring_level_);
    if (beyond <= 0) return 1 - beyond;
    for (std::size_t r = 0; r < count_; ++r)
      if (in_ring(r) && boxes_[r].x > 0 && waits_first_for(n, r)) return beyond;
    return -beyond;
  }

  // True if n waits for r directly, or through nodes outside the rings.
  bool waits_first_for(std::size_t n, std::size_t r) const {
    for (const WaitEdge& edge : edges_)
      if (edge.to == r && !in_ring(edge.from) && (edge.from == n || reach_[n][edge.from]))
        return true;
    return false;
  }

  static std::vector<std::pair<int, Nodes>> from_the_middle(const std::map<int, Nodes>& columns) {
    std::vector<std::pair<int, Nodes>> out(columns.begin(), columns.end());
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
      return std::abs(a.first) < std::abs(b.first);
    });
    return out;
  }

  // The mean height of the neighbours that have been placed.
  double wanted(std::size_t n) const {
    double sum = 0;
    int count = 0;
    for (const WaitEdge& edge : edges_) {
      const std::size_t other = edge.from == n ? edge.to : edge.from;
      if ((edge.from != n && edge.to != n) || !placed_[other]) continue;
      sum += boxes_[other].y;
      ++count;
    }
    return count == 0 ? 0 : sum / count;
  }

  // Places the nodes of a column as close to their wanted heights as they can be without
  // overlapping: in that order, each pushed down as far as needed, then all moved up by the mean
  // displacement.
  void lay_out_column(Nodes nodes) {
    std::map<std::size_t, double> heights;
    for (const std::size_t n : nodes) heights[n] = wanted(n);
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](std::size_t a, std::size_t b) { return heights[a] < heights[b]; });
    double shift = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const double above =
          i == 0 ? heights[nodes[0]] : boxes_[nodes[i - 1]].y + kNodeHeight + kDown;
      boxes_[nodes[i]].y = std::max(heights[nodes[i]], above);
      shift += (heights[nodes[i]] - boxes_[nodes[i]].y) / static_cast<double>(nodes.size());
    }
    for (const std::size_t n : nodes) {
      boxes_[n].y += shift;
      placed_[n] = true;
    }
  }

  // Gives columns their x and moves everything into the picture.
  WaitLayout finished(std::map<int, Nodes>& columns) {
    if (ring_level_) columns[0];  // the rings' own
    double x = kEdge;
    double top = 0;
    for (const auto& box : boxes_) top = std::min(top, box.y);
    for (const auto& [column, nodes] : columns) {
      const bool rings = ring_level_ && column == 0;
      for (const std::size_t n : nodes) boxes_[n].x = x;
      for (std::size_t n = 0; rings && n < count_; ++n)
        if (in_ring(n)) boxes_[n].x += x;
      x += kNodeWidth + kAcross + (rings ? kNodeWidth + kAcross : 0);
    }
    WaitLayout out{{}, x - kAcross + kEdge, 0, ring_level_.has_value()};
    for (Box& box : boxes_) {
      box.y += kEdge - top;
      out.height = std::max(out.height, box.y + box.height + kEdge);
    }
    out.boxes = std::move(boxes_);
    return out;
  }

  std::size_t count_;
  std::vector<WaitEdge> edges_;
  std::vector<std::vector<bool>> reach_;
  std::vector<std::size_t> level_;
  std::vector<Box> boxes_;
  std::vector<bool> placed_;
  std::optional<std::size_t> ring_level_;  // empty: there is no ring
};

}  // namespace

WaitLayout lay_out(std::size_t nodes, const std::vector<WaitEdge>& edges) {
  return LayeredLayout(nodes, edges).lay_out();
}

}  // namespace lockstep::reports::html
