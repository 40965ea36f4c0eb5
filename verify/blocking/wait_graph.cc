#include "verify/blocking/wait_graph.h"

#include <algorithm>
#include <map>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/reverse_graph.hpp>
#include <boost/graph/strong_components.hpp>

namespace lockstep::verify {

namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

// Vertices: ranks first, then wait points. Edges: rank -> its wait point -> the ranks missing
// there. Wait points as vertices keep it linear: 1000 ranks that wait for 1000 others are 2000
// edges.
Graph build(const ReplayResult& where) {
  const std::size_t ranks = where.positions.size();
  Graph graph(ranks + where.wait_points.size());
  for (std::size_t p = 0; p < where.wait_points.size(); ++p) {
    for (const std::uint32_t r : where.wait_points[p].waiting) add_edge(r, ranks + p, graph);
    for (const std::uint32_t r : where.wait_points[p].missing) add_edge(ranks + p, r, graph);
    for (const std::uint32_t r : where.wait_points[p].behind) add_edge(ranks + p, r, graph);
    if (!where.wait_points[p].mismatched) continue;
    // Calls that do not match never complete, so those who issued them hold each other up: an edge
    // back makes them a cycle.
    for (const std::uint32_t r : where.wait_points[p].waiting) add_edge(ranks + p, r, graph);
  }
  return graph;
}

// Records the vertices that a search visits.
struct Recorder : boost::default_bfs_visitor {
  explicit Recorder(std::vector<std::size_t>& out) : out_(&out) {}
  template <class G>
  void discover_vertex(std::size_t v, const G&) {
    out_->push_back(v);
  }
  std::vector<std::size_t>* out_;
};

// The vertices that wait for a root, directly or through others. The roots are among them.
std::vector<std::size_t> reached_backwards(const Graph& graph,
                                           const std::vector<std::uint32_t>& from) {
  std::vector<boost::default_color_type> colour(num_vertices(graph));
  std::vector<std::size_t> seen;
  const auto reversed = boost::make_reverse_graph(graph);
  boost::queue<std::size_t> queue;
  for (const std::uint32_t r : from) {
    if (colour[r] != boost::color_traits<boost::default_color_type>::white()) continue;
    boost::breadth_first_visit(
        reversed, std::size_t{r}, queue, Recorder(seen),
        boost::make_iterator_property_map(colour.begin(), get(boost::vertex_index, graph)));
  }
  return seen;
}

// A cause with its victims and wait points.
WaitCause cause_of(const ReplayResult& where, const Graph& graph, std::vector<std::uint32_t> roots,
                   bool cycle) {
  WaitCause cause;
  cause.roots = std::move(roots);
  cause.cycle = cycle;
  const std::size_t ranks = where.positions.size();
  for (const std::size_t v : reached_backwards(graph, cause.roots)) {
    if (v >= ranks) {
      cause.points.push_back(v - ranks);
    } else if (!std::binary_search(cause.roots.begin(), cause.roots.end(), v)) {
      cause.victims.push_back(static_cast<std::uint32_t>(v));
    }
  }
  std::sort(cause.victims.begin(), cause.victims.end());
  std::sort(cause.points.begin(), cause.points.end());
  // In a cycle the roots themselves wait. Otherwise they finished or died, and the victims wait.
  const auto& waiting = cycle ? cause.roots : cause.victims;
  cause.stuck = !waiting.empty() && std::all_of(waiting.begin(), waiting.end(),
                                                [&](std::uint32_t r) { return where.stuck[r]; });
  return cause;
}

// A root's state, and the wait points that it holds up.
using Held = std::pair<Position::State, std::vector<std::size_t>>;
using RootsByHeld = std::map<Held, std::vector<std::uint32_t>>;

// Makes one cause of ranks that hang outside of any call and hold up a common call: they hang
// together (in the same data loader, say), although each may hold up further calls by itself.
void merge_hung(RootsByHeld& roots_by_held) {
  RootsByHeld merged;
  for (auto& [held, roots] : roots_by_held) {
    const auto shares = [&, &points = held.second](const auto& entry) {
      return entry.first.first == Position::State::hung &&
             std::find_first_of(entry.first.second.begin(), entry.first.second.end(),
                                points.begin(), points.end()) != entry.first.second.end();
    };
    const auto other = held.first == Position::State::hung
                           ? std::find_if(merged.begin(), merged.end(), shares)
                           : merged.end();
    if (other == merged.end()) {
      merged[held] = std::move(roots);
      continue;
    }
    Held both = other->first;
    both.second.insert(both.second.end(), held.second.begin(), held.second.end());
    std::sort(both.second.begin(), both.second.end());
    both.second.erase(std::unique(both.second.begin(), both.second.end()), both.second.end());
    std::vector<std::uint32_t> all = std::move(other->second);
    all.insert(all.end(), roots.begin(), roots.end());
    merged.erase(other);
    merged[both] = std::move(all);
  }
  roots_by_held = std::move(merged);
}

}  // namespace

std::vector<std::uint32_t> WaitCause::all_ranks() const {
  std::vector<std::uint32_t> out = roots;
  out.insert(out.end(), victims.begin(), victims.end());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<WaitCause> wait_causes(const ReplayResult& where) {
  const Graph graph = build(where);
  const std::size_t ranks = where.positions.size();
  // Strongly connected components: cycles become single vertices, and what is left is acyclic. Its
  // sinks, the components that no edge leaves, wait for nothing outside: they are the causes.
  std::vector<std::size_t> component(num_vertices(graph));
  const std::size_t count = boost::strong_components(
      graph, boost::make_iterator_property_map(component.begin(), get(boost::vertex_index, graph)));
  std::vector<std::vector<std::uint32_t>> ranks_in(count);
  std::vector<bool> has_point(count);
  for (std::size_t v = 0; v < component.size(); ++v) {
    if (v < ranks)
      ranks_in[component[v]].push_back(static_cast<std::uint32_t>(v));
    else
      has_point[component[v]] = true;
  }
  // Whether an edge leaves the component. A sink is a cause if something waits for it, or in it.
  std::vector<bool> leaves(count);
  const auto [begin, end] = edges(graph);
  for (auto e = begin; e != end; ++e) {
    const std::size_t from = component[source(*e, graph)];
    if (from != component[target(*e, graph)]) leaves[from] = true;
  }
  // Roots in one state that hold up the same calls are one cause: two ranks that died in one step.
  RootsByHeld roots_by_held;
  std::vector<WaitCause> causes;
  // A wait point that is a sink by itself lacks nobody: it stalls. Not if a member without a trace
  // may be missing, and not for a receive from any source.
  for (std::size_t p = 0; p < where.wait_points.size(); ++p) {
    const WaitPoint& point = where.wait_points[p];
    if (leaves[component[ranks + p]] || point.mismatched || point.unknown_member) continue;
    if (!ranks_in[component[ranks + p]].empty() || point.any_source) continue;
    causes.push_back(cause_of(where, graph, point.waiting, false));
    causes.back().stalled = p;
  }
  for (std::size_t c = 0; c < count; ++c) {
    if (leaves[c] || ranks_in[c].empty()) continue;
    // A component of a rank and a wait point is a cycle; a single rank is a root if somebody waits
    // for it.
    const std::uint32_t first = ranks_in[c][0];
    if (has_point[c]) {
      causes.push_back(cause_of(where, graph, ranks_in[c], true));
    } else if (in_degree(first, graph) > 0) {
      Held held{where.positions[first].state, {}};
      const auto [in, in_end] = in_edges(first, graph);
      for (auto e = in; e != in_end; ++e) held.second.push_back(source(*e, graph));
      std::sort(held.second.begin(), held.second.end());
      roots_by_held[held].push_back(first);
    }
  }
  merge_hung(roots_by_held);
  for (auto& [held, roots] : roots_by_held) {
    std::sort(roots.begin(), roots.end());
    causes.push_back(cause_of(where, graph, roots, false));
  }
  std::sort(causes.begin(), causes.end(),
            [](const WaitCause& a, const WaitCause& b) { return a.roots < b.roots; });
  return causes;
}

}  // namespace lockstep::verify
