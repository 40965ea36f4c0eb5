// Open collectives by (group, sequence number): which members have arrived at each, until all have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/engine/fifo.h"
#include "sim/engine/program.h"

namespace lockstep::sim {

struct Arrival {
  std::uint32_t rank = 0;  // a class of the folding
  std::uint32_t step = 0;  // index in its program
};

class OpenCollectives {
 public:
  // A collective that is complete.
  struct Held {
    std::vector<Arrival> arrivals;
    Picos last;              // when the last member arrived
    std::uint32_t call = 0;  // that of the first to arrive
  };

  // Both are not owned and must outlive this.
  OpenCollectives(const ProgramJob& job, const Folding& folding)
      : job_(job), folding_(folding), groups_(folding.group_representatives.size()) {}

  // `arrival` reaches the collective with sequence number `number` of a class of groups, with
  // calls[call]. Returns the collective if this was its last member and all calls agree; members
  // that disagree wait forever. O(1) apart from what is returned.
  std::optional<Held> arrive(std::uint32_t group_class, std::uint32_t number, Arrival arrival,
                             std::uint32_t call, Picos when) {
    Group& group = groups_[group_class];
    // A rank may use several streams for one group and reach a later number first, so several
    // collectives of a group can be open at once.
    while (group.open.size() <= number - group.first) group.open.push_back(make());
    OpenCollective& collective = group.open[number - group.first];
    // Compared with the first call only, one comparison per arrival. As agree() is not transitive,
    // two calls that differ may both agree with a first one that leaves the value unknown.
    if (collective.held.arrivals.empty())
      collective.held.call = call;
    else if (collective.held.call != call &&
             !agree(job_.calls[collective.held.call], job_.calls[call]))
      collective.disagrees = true;
    collective.held.arrivals.push_back(arrival);
    collective.held.last = std::max(collective.held.last, when);
    if (collective.held.arrivals.size() < folding_.arrivals[group_class] || collective.disagrees)
      return std::nullopt;
    // Collectives may complete out of order; the queue shrinks only at its front, so that `first`
    // stays the number of open.front().
    collective.over = true;
    Held out = std::move(collective.held);
    while (!group.open.empty() && group.open.front().over) {
      group.open.pop_front();
      ++group.first;
    }
    return out;
  }

  // Takes back the buffer of a collective that is over, to use it for a later one.
  void reuse(std::vector<Arrival> arrivals) {
    arrivals.clear();
    spare_.push_back(std::move(arrivals));
  }

 private:
  struct OpenCollective {
    Held held;
    bool disagrees = false;
    bool over = false;
  };
  struct Group {
    Fifo<OpenCollective> open;
    std::uint32_t first = 0;  // the sequence number of open.front()
  };

  OpenCollective make() {
    OpenCollective collective;
    if (!spare_.empty()) {
      collective.held.arrivals = std::move(spare_.back());
      spare_.pop_back();
    }
    return collective;
  }

  const ProgramJob& job_;
  const Folding& folding_;
  std::vector<Group> groups_;
  std::vector<std::vector<Arrival>> spare_;
};

}  // namespace lockstep::sim
