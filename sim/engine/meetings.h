// Open collectives by (group, sequence number): which members have arrived at each, until all have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "sim/engine/program.h"

namespace lockstep::sim {

struct Arrival {
  std::uint32_t rank = 0;  // a class of the folding
  std::uint32_t step = 0;  // index in its program
};

class Meetings {
 public:
  // A collective that is complete.
  struct Held {
    std::vector<Arrival> arrivals;
    Picos last;              // when the last member arrived
    std::uint32_t call = 0;  // that of the first to arrive
  };

  // Both are not owned and must outlive this.
  Meetings(const ProgramJob& job, const Folding& folding)
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
    Meeting& meeting = group.open[number - group.first];
    // Compared with the first call only, one comparison per arrival. As agree() is not transitive,
    // two calls that differ may both agree with a first one that leaves the value unknown.
    if (meeting.held.arrivals.empty())
      meeting.held.call = call;
    else if (meeting.held.call != call && !agree(job_.calls[meeting.held.call], job_.calls[call]))
      meeting.disagrees = true;
    meeting.held.arrivals.push_back(arrival);
    meeting.held.last = std::max(meeting.held.last, when);
    if (meeting.held.arrivals.size() < folding_.arrivals[group_class] || meeting.disagrees)
      return std::nullopt;
    // Collectives may complete out of order; the deque shrinks only at its front, so that `first`
    // stays the number of open.front().
    meeting.over = true;
    Held out = std::move(meeting.held);
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
  struct Meeting {
    Held held;
    bool disagrees = false;
    bool over = false;
  };
  struct Group {
    std::deque<Meeting> open;
    std::uint32_t first = 0;  // the sequence number of open.front()
  };

  Meeting make() {
    Meeting meeting;
    if (!spare_.empty()) {
      meeting.held.arrivals = std::move(spare_.back());
      spare_.pop_back();
    }
    return meeting;
  }

  const ProgramJob& job_;
  const Folding& folding_;
  std::vector<Group> groups_;
  std::vector<std::vector<Arrival>> spare_;
};

}  // namespace lockstep::sim
