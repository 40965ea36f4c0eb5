#include "verify/product/order_graph.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace lockstep::verify {

namespace {

using ItemKind = ProductItem::Kind;

// Goes through a sequence: which meetings a rank comes to, and which it must be through before it
// goes on. `comes`(meeting) and `through`(meetings) are called in program order.
template <class Comes, class Through>
void walk(const SequenceTable& sequences, const ProductSequence& sequence, bool device, Comes comes,
          Through through) {
  std::vector<ProductMeeting> batch;
  for (const ProductItem& item : sequence.items) {
    const ProductChannel& channel = sequences.channels[item.channel];
    if (channel.lonely()) {
      if (item.kind == ItemKind::in_batch || batch.empty()) continue;
      through(batch);
      batch.clear();
      continue;
    }
    const ProductMeeting meeting{item.channel, item.place};
    if (item.kind != ItemKind::wait) comes(meeting);
    const bool enqueued = device && !channel.message && item.kind == ItemKind::issue;
    if (item.kind != ItemKind::issue || enqueued) batch.push_back(meeting);
    if (item.kind == ItemKind::in_batch || batch.empty()) continue;
    through(batch);
    batch.clear();
  }
}

class Graph {
 public:
  Graph(const SequenceTable& sequences, bool device) : sequences_(sequences), device_(device) {}

  void add(const ProductSequence& sequence) {
    std::uint32_t here = kNothing;  // the rank's last place of blocking
    walk(
        sequences_, sequence, device_,
        [&](const ProductMeeting& meeting) {
          const std::uint32_t vertex = vertex_of(meeting);
          if (here != kNothing) edge(here, vertex);
        },
        [&](const std::vector<ProductMeeting>& passed) {
          const std::uint32_t next = new_vertex();
          if (here != kNothing) edge(here, next);
          for (const ProductMeeting& meeting : passed) edge(vertex_of(meeting), next);
          here = next;
        });
  }

  // Kahn, "Topological sorting of large networks", CACM 1962.
  MeetingOrder sort() {
    MeetingOrder out;
    std::vector<std::uint32_t> ready;
    for (std::uint32_t v = 0; v < out_.size(); ++v) {
      if (incoming_[v] == 0) ready.push_back(v);
    }
    for (std::size_t i = 0; i < ready.size(); ++i) {
      if (const std::uint32_t m = meeting_at_[ready[i]]; m != kNothing)
        out.order.push_back(meetings_[m]);
      for (const std::uint32_t w : out_[ready[i]]) {
        if (--incoming_[w] == 0) ready.push_back(w);
      }
    }
    for (std::uint32_t v = 0; v < out_.size(); ++v) {
      if (incoming_[v] > 0 && meeting_at_[v] != kNothing)
        out.held.push_back(meetings_[meeting_at_[v]]);
    }
    std::sort(out.held.begin(), out.held.end());
    return out;
  }

 private:
  std::uint32_t new_vertex() {
    out_.emplace_back();
    incoming_.push_back(0);
    meeting_at_.push_back(kNothing);
    return static_cast<std::uint32_t>(out_.size() - 1);
  }
  std::uint32_t vertex_of(const ProductMeeting& meeting) {
    const std::uint64_t key = std::uint64_t{meeting.channel} << 32U | meeting.place;
    const auto [found, fresh] = vertices_.emplace(key, 0U);
    if (fresh) {
      found->second = new_vertex();
      meeting_at_[found->second] = static_cast<std::uint32_t>(meetings_.size());
      meetings_.push_back(meeting);
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
  std::vector<ProductMeeting> meetings_;
  std::vector<std::vector<std::uint32_t>> out_;
  std::vector<std::uint32_t> incoming_, meeting_at_;
};

class CircleSearcher {
 public:
  CircleSearcher(const SequenceTable& sequences, const Evaluation& evaluation,
                 const std::vector<ProductMeeting>& held, bool device, std::uint64_t most_steps)
      : evaluation_(evaluation),
        choices_(evaluation.choices),
        used_(choices_.size(), false),
        most_steps_(most_steps) {
    for (std::uint32_t i = 0; i < held.size(); ++i) index_.emplace(held[i], i);
    by_meeting_.resize(held.size());
    held_ = held;
    for (std::uint32_t r = 0; r < choices_.size(); ++r) {
      for (const std::uint32_t s : choices_[r]) {
        if (!places_.contains(s)) places_.emplace(s, places(sequences, s, device));
        const Places& p = places_.at(s);
        for (const auto& [meeting, passed] : p.passed) by_meeting_[meeting].push_back({r, s});
      }
    }
  }

  CircleSearch search() {
    CircleSearch out;
    for (std::size_t length = 2; length <= std::min<std::size_t>(choices_.size(), kLongest);
         ++length) {
      for (start_ = 0; start_ < held_.size(); ++start_) {
        if (!extend(start_, length)) continue;
        Circle circle;
        for (const Step& step : path_) {
          circle.links.push_back(
              {static_cast<std::int32_t>(step.rank), step.sequence, held_[step.meeting]});
        }
        out.circle = std::move(circle);
        return out;
      }
      if (steps_ > most_steps_) break;
    }
    out.complete = steps_ <= most_steps_ && choices_.size() <= kLongest;
    return out;
  }

  std::uint64_t steps() const { return steps_; }

 private:
  static constexpr std::size_t kLongest = 64;

  struct Places {
    std::vector<std::uint32_t> comes;             // held meetings in program order
    std::map<std::uint32_t, std::size_t> passed;  // meeting -> how many it came to before going on
  };
  struct Choice {
    std::uint32_t rank, sequence;
  };
  struct Step {
    std::uint32_t rank, sequence, meeting;
  };

  Places places(const SequenceTable& sequences, std::uint32_t s, bool device) const {
    Places out;
    walk(
        sequences, sequences.sequences[s], device,
        [&](const ProductMeeting& meeting) {
          if (const auto known = index_.find(meeting); known != index_.end())
            out.comes.push_back(known->second);
        },
        [&](const std::vector<ProductMeeting>& passed) {
          for (const ProductMeeting& meeting : passed) {
            if (const auto known = index_.find(meeting); known != index_.end())
              out.passed.emplace(known->second, out.comes.size());
          }
        });
    return out;
  }

  const std::vector<std::uint32_t>& options_of(const TeamChoice& team, std::uint32_t rank,
                                               std::uint32_t sequence) const {
    const auto at = std::lower_bound(choices_[rank].begin(), choices_[rank].end(), sequence);
    return team.under[static_cast<std::size_t>(at - choices_[rank].begin())];
  }

  // Whether some option of the team gives its ranks on the path, and this one, what they do.
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

  // Continues the path, which ends before `meeting`, by `left` links, back to the start.
  bool extend(std::uint32_t meeting, std::size_t left) {
    for (const Choice& choice : by_meeting_[meeting]) {
      if (used_[choice.rank]) continue;
      const auto team = evaluation_.teams.find(static_cast<std::int32_t>(choice.rank));
      if (team != evaluation_.teams.end() && !goes_with_team(team->second, choice)) continue;
      const Places& p = places_.at(choice.sequence);
      used_[choice.rank] = true;
      path_.push_back({choice.rank, choice.sequence, meeting});
      for (std::size_t i = p.passed.at(meeting); i < p.comes.size(); ++i) {
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
  const std::vector<std::vector<std::uint32_t>>& choices_;
  std::vector<ProductMeeting> held_;
  std::map<ProductMeeting, std::uint32_t> index_;
  std::map<std::uint32_t, Places> places_;       // by sequence
  std::vector<std::vector<Choice>> by_meeting_;  // who blocks on it
  std::vector<bool> used_;
  std::vector<Step> path_;
  std::uint32_t start_ = 0;  // the lowest meeting of the circle, so that each is tried once
  const std::uint64_t most_steps_;
  std::uint64_t steps_ = 0;
};

}  // namespace

MeetingOrder order_meetings(const SequenceTable& sequences, std::span<const std::uint32_t> which,
                            bool device) {
  Graph graph(sequences, device);
  for (const std::uint32_t s : which) graph.add(sequences.sequences[s]);
  return graph.sort();
}

CircleSearch find_circle(const SequenceTable& sequences, const Evaluation& evaluation,
                         const std::vector<ProductMeeting>& held, bool device,
                         std::uint64_t& budget) {
  constexpr std::uint64_t kMostSteps = 5'000'000;
  CircleSearcher searcher(sequences, evaluation, held, device, std::min(budget, kMostSteps));
  CircleSearch out = searcher.search();
  budget -= std::min(budget, searcher.steps());
  return out;
}

}  // namespace lockstep::verify
