#include "verify/product/order_graph.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace lockstep::verify {

namespace {

using ItemKind = ProductItem::Kind;

// Goes through a sequence in program order. Calls `comes`(instance) where the rank issues its call
// of an instance, and `through`(instances) where the rank blocks until these have completed.
// Point-to-point calls of a batch block together, after the last one. With `device` an
// enqueued collective counts as blocking: the device starts no later call before it has completed.
template <class Comes, class Through>
void walk(const SequenceTable& sequences, const ProductSequence& sequence, bool device, Comes comes,
          Through through) {
  std::vector<ProductInstance> batch;
  for (const ProductItem& item : sequence.items) {
    const ProductChannel& channel = sequences.channels[item.channel.value];
    if (channel.has_one_member()) {
      if (item.kind == ItemKind::in_batch || batch.empty()) continue;
      through(batch);
      batch.clear();
      continue;
    }
    const ProductInstance instance{item.channel, item.index};
    if (item.kind != ItemKind::wait) comes(instance);
    const bool enqueued = device && !channel.message && item.kind == ItemKind::issue;
    if (item.kind != ItemKind::issue || enqueued) batch.push_back(instance);
    if (item.kind == ItemKind::in_batch || batch.empty()) continue;
    through(batch);
    batch.clear();
  }
}

// A vertex for each instance, and one for each position where a sequence blocks. Edges go from the
// position before a call to its instance, and from each instance to the position that waits for it.
class Graph {
 public:
  Graph(const SequenceTable& sequences, bool device) : sequences_(sequences), device_(device) {}

  void add(const ProductSequence& sequence) {
    std::uint32_t here = kNothing;  // where the rank blocked last
    walk(
        sequences_, sequence, device_,
        [&](const ProductInstance& instance) {
          const std::uint32_t vertex = vertex_of(instance);
          if (here != kNothing) edge(here, vertex);
        },
        [&](const std::vector<ProductInstance>& passed) {
          const std::uint32_t next = new_vertex();
          if (here != kNothing) edge(here, next);
          for (const ProductInstance& instance : passed) edge(vertex_of(instance), next);
          here = next;
        });
  }

  // Kahn, "Topological sorting of large networks", CACM 1962.
  InstanceOrder sort() {
    InstanceOrder out;
    std::vector<std::uint32_t> ready;
    for (std::uint32_t v = 0; v < out_.size(); ++v) {
      if (incoming_[v] == 0) ready.push_back(v);
    }
    for (std::size_t i = 0; i < ready.size(); ++i) {
      if (const std::uint32_t m = instance_at_[ready[i]]; m != kNothing)
        out.order.push_back(instances_[m]);
      for (const std::uint32_t w : out_[ready[i]]) {
        if (--incoming_[w] == 0) ready.push_back(w);
      }
    }
    for (std::uint32_t v = 0; v < out_.size(); ++v) {
      if (incoming_[v] > 0 && instance_at_[v] != kNothing)
        out.held.push_back(instances_[instance_at_[v]]);
    }
    std::sort(out.held.begin(), out.held.end());
    return out;
  }

 private:
  std::uint32_t new_vertex() {
    out_.emplace_back();
    incoming_.push_back(0);
    instance_at_.push_back(kNothing);
    return static_cast<std::uint32_t>(out_.size() - 1);
  }
  std::uint32_t vertex_of(const ProductInstance& instance) {
    const std::uint64_t key = std::uint64_t{instance.channel.value} << 32U | instance.index;
    const auto [found, fresh] = vertices_.emplace(key, 0U);
    if (fresh) {
      found->second = new_vertex();
      instance_at_[found->second] = static_cast<std::uint32_t>(instances_.size());
      instances_.push_back(instance);
    }
    return found->second;
  }
  void edge(std::uint32_t from, std::uint32_t to) {
    out_[from].push_back(to);
    ++incoming_[to];
  }

  const SequenceTable& sequences_;
  const bool device_;
  std::unordered_map<std::uint64_t, std::uint32_t> vertices_;
  std::vector<ProductInstance> instances_;
  std::vector<std::vector<std::uint32_t>> out_;
  std::vector<std::uint32_t> incoming_, instance_at_;
};

// Depth-first search for cycles of 2, 3, … links. A path is a list of (rank, sequence, instance):
// the rank blocks on the instance before it comes to the instance of the next link.
class CycleSearcher {
 public:
  CycleSearcher(const SequenceTable& sequences, const Evaluation& evaluation,
                const std::vector<ProductInstance>& held, bool device, std::uint64_t most_steps)
      : evaluation_(evaluation),
        choices_(evaluation.choices),
        used_(choices_.size(), false),
        most_steps_(most_steps) {
    for (std::uint32_t i = 0; i < held.size(); ++i) index_.emplace(held[i], i);
    by_instance_.resize(held.size());
    held_ = held;
    for (std::uint32_t r = 0; r < choices_.size(); ++r) {
      for (const SequenceId s : choices_[r]) {
        if (!passages_.contains(s)) passages_.emplace(s, passage(sequences, s, device));
        const Passage& p = passages_.at(s);
        for (const auto& [instance, passed] : p.passed) by_instance_[instance].push_back({r, s});
      }
    }
  }

  CycleSearch search() {
    CycleSearch out;
    // Shortest first: a cycle of few ranks is the easiest to understand.
    for (std::size_t length = 2; length <= std::min<std::size_t>(choices_.size(), kLongest);
         ++length) {
      for (start_ = 0; start_ < held_.size(); ++start_) {
        if (!extend(start_, length)) continue;
        Cycle cycle;
        for (const Step& step : path_) {
          cycle.links.push_back(
              {static_cast<std::int32_t>(step.rank), step.sequence, held_[step.instance]});
        }
        out.cycle = std::move(cycle);
        return out;
      }
      if (steps_ > most_steps_) break;
    }
    out.complete = steps_ <= most_steps_ && choices_.size() <= kLongest;
    return out;
  }

  std::uint64_t steps() const { return steps_; }

 private:
  // The most ranks in a cycle. In a larger job, a search without a result is incomplete.
  static constexpr std::size_t kLongest = 64;

  // A sequence, reduced to the held instances (indices in held_).
  struct Passage {
    std::vector<std::uint32_t> comes;  // in program order
    // For each instance that the rank blocks on: how many of `comes` it issues before it goes on.
    // Those after are the ones that it holds up.
    std::map<std::uint32_t, std::size_t> passed;
  };
  struct Choice {
    std::uint32_t rank;
    SequenceId sequence;
  };
  struct Step {
    std::uint32_t rank;
    SequenceId sequence;
    std::uint32_t instance;
  };

  Passage passage(const SequenceTable& sequences, SequenceId s, bool device) const {
    Passage out;
    walk(
        sequences, sequences.sequences[s.value], device,
        [&](const ProductInstance& instance) {
          if (const auto known = index_.find(instance); known != index_.end())
            out.comes.push_back(known->second);
        },
        [&](const std::vector<ProductInstance>& passed) {
          for (const ProductInstance& instance : passed) {
            if (const auto known = index_.find(instance); known != index_.end())
              out.passed.emplace(known->second, out.comes.size());
          }
        });
    return out;
  }

  const std::vector<std::uint32_t>& options_of(const TeamChoice& team, std::uint32_t rank,
                                               SequenceId sequence) const {
    const auto at = std::lower_bound(choices_[rank].begin(), choices_[rank].end(), sequence);
    return team.under[static_cast<std::size_t>(at - choices_[rank].begin())];
  }

  // Whether the team has an option under which its ranks on the path, and this one, have the
  // sequences that were chosen for them.
  bool goes_with_team(const TeamChoice& team, const Choice& choice) const {
    std::vector<std::uint32_t> left = options_of(team, choice.rank, choice.sequence);
    for (const Step& step : path_) {
      const auto other = evaluation_.teams.find(static_cast<std::int32_t>(step.rank));
      if (other == evaluation_.teams.end() || other->second.team != team.team) continue;
      const std::vector<std::uint32_t>& its = options_of(other->second, step.rank, step.sequence);
      std::erase_if(left, [&](std::uint32_t option) {
        return !std::binary_search(its.begin(), its.end(), option);
      });
    }
    return !left.empty();
  }

  // Continues the path, which ends before `instance`, by `left` links, back to start_. True if that
  // closes a cycle, which is then path_. Instances below start_ were tried as starts before.
  bool extend(std::uint32_t instance, std::size_t left) {
    for (const Choice& choice : by_instance_[instance]) {
      if (used_[choice.rank]) continue;
      const auto team = evaluation_.teams.find(static_cast<std::int32_t>(choice.rank));
      if (team != evaluation_.teams.end() && !goes_with_team(team->second, choice)) continue;
      const Passage& p = passages_.at(choice.sequence);
      used_[choice.rank] = true;
      path_.push_back({choice.rank, choice.sequence, instance});
      for (std::size_t i = p.passed.at(instance); i < p.comes.size(); ++i) {
        if (++steps_ > most_steps_) break;
        if (left == 1 ? p.comes[i] == start_ : p.comes[i] > start_ && extend(p.comes[i], left - 1))
          return true;
      }
      path_.pop_back();
      used_[choice.rank] = false;
      if (steps_ > most_steps_) return false;
    }
    return false;
  }

  const Evaluation& evaluation_;
  const std::vector<std::vector<SequenceId>>& choices_;
  std::vector<ProductInstance> held_;
  std::map<ProductInstance, std::uint32_t> index_;
  std::map<SequenceId, Passage> passages_;
  std::vector<std::vector<Choice>> by_instance_;  // who blocks on it
  std::vector<bool> used_;
  std::vector<Step> path_;
  std::uint32_t start_ = 0;  // the lowest instance of the cycle, so that each is tried once
  const std::uint64_t most_steps_;
  std::uint64_t steps_ = 0;
};

}  // namespace

InstanceOrder order_instances(const SequenceTable& sequences, std::span<const SequenceId> which,
                              bool device) {
  Graph graph(sequences, device);
  for (const SequenceId s : which) graph.add(sequences.sequences[s.value]);
  return graph.sort();
}

CycleSearch find_cycle(const SequenceTable& sequences, const Evaluation& evaluation,
                       const std::vector<ProductInstance>& held, bool device,
                       std::uint64_t& budget) {
  // For one situation, so that a hard one leaves some of the budget to the others.
  constexpr std::uint64_t kMaxSteps = 5'000'000;
  CycleSearcher searcher(sequences, evaluation, held, device, std::min(budget, kMaxSteps));
  CycleSearch out = searcher.search();
  budget -= std::min(budget, searcher.steps());
  return out;
}

}  // namespace lockstep::verify
