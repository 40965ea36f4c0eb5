// Finds collectives of several communicators that hang if a device runs its kernels one after the
// other: cycles in the order in which ranks issue them. docs/verify.md has the argument.
#include "verify/blocking/order_inversions.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::verify {

namespace {

constexpr std::size_t kFindings = 16;     // more would repeat the same in other groups
constexpr std::size_t kCyclesTried = 64;  // components from which a cycle is taken

using Vertex = std::uint32_t;  // an instance of a collective
constexpr Vertex kNoVertex = UINT32_MAX;

// An edge between instances of two groups.
struct Edge {
  Vertex from, to;
  CallRef before, after;  // the two calls on a rank where both were under way at once
  friend bool operator<(const Edge& a, const Edge& b) {
    return std::tie(a.from, a.to, a.before.rank) < std::tie(b.from, b.to, b.before.rank);
  }
};

class OrderGraph {
 public:
  explicit OrderGraph(const Context& context) : context_(context) {
    number_instances();
    for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) add_rank(r);
    std::sort(edges_.begin(), edges_.end());
    edges_.erase(
        std::unique(edges_.begin(), edges_.end(),
                    [](const Edge& a, const Edge& b) { return a.from == b.from && a.to == b.to; }),
        edges_.end());
    find_components();
  }

  bool waits_unknown() const { return waits_unknown_; }

  // One cycle for each set of groups that form one: its edges between groups, in order. The same
  // groups in every step would otherwise give one cycle per step.
  std::vector<std::vector<Edge>> cycles() const {
    std::vector<std::vector<Edge>> out;
    std::set<std::set<std::size_t>> reported;
    std::set<std::uint32_t> tried;
    for (const Edge& edge : edges_) {
      if (component_[edge.from] != component_[edge.to]) continue;
      if (!tried.insert(component_[edge.from]).second) continue;
      if (tried.size() > kCyclesTried || out.size() >= kFindings) break;
      std::vector<Edge> cycle = cycle_through(edge);
      std::set<std::size_t> groups;
      for (const Edge& e : cycle) groups.insert(group_of(e.from));
      if (reported.insert(groups).second) out.push_back(std::move(cycle));
    }
    return out;
  }

  std::size_t group_of(Vertex v) const {
    const auto next = std::upper_bound(first_.begin(), first_.end(), v);
    return static_cast<std::size_t>(next - first_.begin()) - 1;
  }
  std::uint64_t seq_of(Vertex v) const {
    const std::size_t g = group_of(v);
    return context_.groups[g].first_seq + (v - first_[g]);
  }
  std::size_t inversions() const {  // the number of edges that lie on cycles
    return static_cast<std::size_t>(std::count_if(edges_.begin(), edges_.end(), [&](const Edge& e) {
      return component_[e.from] == component_[e.to];
    }));
  }

 private:
  // The newest call of a group that is under way on the rank whose events are walked.
  struct NewestCall {
    Vertex last = kNoVertex;
    CallRef call;
  };

  // Numbers the instances: those of one group are consecutive, in order.
  void number_instances() {
    instance_of_.resize(context_.run.ranks.size());
    for (std::size_t r = 0; r < instance_of_.size(); ++r) {
      instance_of_[r].assign(context_.run.ranks[r].calls.size(), kNoVertex);
    }
    for (const GroupStreams& group : context_.groups) {
      first_.push_back(vertices_);
      std::size_t longest = 0;
      for (const Stream& stream : group.streams) {
        longest = std::max(longest, stream.calls.size());
        for (std::size_t m = 0; m < stream.calls.size() && group.comparable; ++m) {
          instance_of_[stream.rank_index][stream.calls[m]] = vertices_ + static_cast<Vertex>(m);
        }
      }
      vertices_ += static_cast<Vertex>(longest);
    }
  }

  static bool records_waits(const trace::RankTrace& trace) {
    return std::any_of(trace.calls.begin(), trace.calls.end(), [](const trace::Call& c) {
      return c.has(trace::kAsync) && (c.has(trace::kWaitBegan) || c.has(trace::kWaitEnded));
    });
  }

  // Walks a rank's events and adds its edges.
  void add_rank(std::uint32_t r) {
    const trace::RankTrace& trace = context_.run.ranks[r];
    if (!records_waits(trace)) {
      waits_unknown_ |= std::any_of(trace.calls.begin(), trace.calls.end(),
                                    [](const trace::Call& c) { return c.has(trace::kAsync); });
      return;
    }
    std::map<std::size_t, NewestCall> under_way;  // by group
    for (const trace::Event& event : trace.events) {
      const bool ends =
          event.kind == trace::EventKind::wait || event.kind == trace::EventKind::waited;
      if (!ends && event.kind != trace::EventKind::issue) continue;
      const Vertex v = instance_of_[r][event.index];
      if (v == kNoVertex) continue;
      const std::size_t g = group_of(v);
      if (!ends) issue(r, event.index, v, g, under_way);
      // The calls of a group run in order: when its last one is waited for, all of them are over.
      const bool blocks = !ends && !trace.calls[event.index].has(trace::kAsync);
      const auto own = under_way.find(g);
      if ((ends || blocks) && own != under_way.end() && own->second.last <= v) under_way.erase(own);
    }
  }

  // Adds an edge from the newest call of every other group that is under way. Older calls of these
  // groups need none: the chain within their group implies them.
  void issue(std::uint32_t r, std::uint32_t call, Vertex v, std::size_t g,
             std::map<std::size_t, NewestCall>& under_way) {
    for (const auto& [other, there] : under_way) {
      if (other != g) edges_.push_back({there.last, v, there.call, {r, call}});
    }
    under_way[g] = {v, {r, call}};
  }

  // Strongly connected components: an edge lies on a cycle if both its ends are in one component.
  void find_components() {
    std::vector<std::pair<Vertex, Vertex>> pairs;
    for (const Edge& e : edges_) pairs.emplace_back(e.from, e.to);
    if (pairs.empty()) return;
    for (std::size_t g = 0; g < first_.size(); ++g) {
      const Vertex end = g + 1 < first_.size() ? first_[g + 1] : vertices_;
      for (Vertex v = first_[g]; v + 1 < end; ++v) pairs.emplace_back(v, v + 1);
    }
    std::sort(pairs.begin(), pairs.end());
    const boost::compressed_sparse_row_graph<boost::directedS> graph(
        boost::edges_are_sorted, pairs.begin(), pairs.end(), vertices_);
    component_.resize(vertices_);
    boost::strong_components(graph, boost::make_iterator_property_map(
                                        component_.begin(), get(boost::vertex_index, graph)));
  }

  // The shortest cycle through the edge: breadth first from its head back to its tail, within the
  // component. The edges along a group (v to v + 1) are implicit, and not part of the result.
  std::vector<Edge> cycle_through(const Edge& edge) const {
    std::map<Vertex, std::pair<Vertex, const Edge*>> reached;  // from where, and by which edge
    std::queue<Vertex> queue;
    queue.push(edge.to);
    reached[edge.to] = {edge.to, nullptr};
    const auto visit = [&](Vertex from, Vertex to, const Edge* by) {
      if (component_[to] != component_[from]) return;
      if (reached.try_emplace(to, from, by).second) queue.push(to);
    };
    while (!queue.empty() && !reached.contains(edge.from)) {
      const Vertex v = queue.front();
      queue.pop();
      const auto begin = std::lower_bound(edges_.begin(), edges_.end(), v,
                                          [](const Edge& e, Vertex x) { return e.from < x; });
      for (auto e = begin; e != edges_.end() && e->from == v; ++e) visit(v, e->to, &*e);
      if (v + 1 < vertices_ && group_of(v) == group_of(v + 1)) visit(v, v + 1, nullptr);
    }
    std::vector<Edge> out;
    for (Vertex v = edge.from; v != edge.to && reached.contains(v);) {
      const auto [from, by] = reached[v];
      if (by != nullptr) out.push_back(*by);
      v = from;
    }
    out.push_back(edge);
    std::reverse(out.begin(), out.end());
    return out;
  }

  const Context& context_;
  std::vector<Vertex> first_;  // by group: its first instance
  Vertex vertices_ = 0;
  std::vector<std::vector<Vertex>> instance_of_;  // by rank index and call
  std::vector<Edge> edges_;                       // between groups
  std::vector<std::uint32_t> component_;
  bool waits_unknown_ = false;
};

Cause explain_inversion(const Context& context, const OrderGraph& graph,
                        const std::vector<Edge>& cycle) {
  Cause cause;
  cause.finding = make_finding(RuleId::cross_group_deadlock);
  Finding& f = cause.finding;
  f.severity = Severity::warning;
  f.certainty = Certainty::possible;
  std::set<std::string> groups;
  std::vector<std::uint32_t> ranks;
  std::string operations;
  for (const Edge& e : cycle) {
    const auto words = [&](CallRef call, Vertex v) {
      return fmt::format("{} ({})", context.describe_call(call),
                         context.describe_location(call, graph.seq_of(v)));
    };
    f.message += fmt::format("{}{} issued {} while {} was in progress",
                             f.message.empty() ? "" : "; ", context.describe_ranks({e.before.rank}),
                             words(e.after, e.to), words(e.before, e.from));
    f.evidence.push_back(context.evidence(e.before, "issued first, not waited for"));
    f.evidence.push_back(context.evidence(e.after, "issued while the other was in progress"));
    groups.insert(context.groups[graph.group_of(e.from)].name);
    ranks.push_back(e.before.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const std::vector<std::string> names(groups.begin(), groups.end());
  f.why = fmt::format(
      "This run did not hang because the devices ran the kernels of groups {} side by side. Where "
      "one device runs them one after the other, each of these ranks runs the call that it issued "
      "first and waits for the others to reach it.",
      join_and(names));
  f.fix =
      "issue the calls of these groups in the same order on all ranks, or wait for one before "
      "issuing the other";
  cause.deviants = ranks;
  cause.can_block = false;
  f.ranks = context.ranks(ranks);
  const Edge& first = cycle[0];
  f.group = context.groups[graph.group_of(first.from)].name;
  f.seq = cause.seq = graph.seq_of(first.from);
  const trace::Call& call = context.call(first.before);
  if (call.step != trace::kNone) f.step = cause.step = call.step;
  set_fingerprint(f, join_and(names));
  return cause;
}

}  // namespace

OrderInversions check_order_inversions(const Context& context) {
  OrderInversions out;
  if (context.semantics != CallSemantics::nccl || context.groups.size() < 2) return out;
  const OrderGraph graph(context);
  out.waits_unknown = graph.waits_unknown();
  for (const auto& cycle : graph.cycles()) {
    out.causes.push_back(explain_inversion(context, graph, cycle));
  }
  if (!out.causes.empty() && graph.inversions() > 2 * kFindings) {
    out.causes[0].finding.why +=
        fmt::format(" Such overlaps in a cycle occur {} times.", graph.inversions());
  }
  return out;
}

}  // namespace lockstep::verify
