// Collectives by (group, number): who has come to each, until everybody has.
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
  std::uint32_t step = 0;  // of its program
};

class Meetings {
 public:
  struct Held {
    std::vector<Arrival> arrivals;
    Picos last;  // when the last of them came
    std::uint32_t call = 0;
  };

  // Both must outlive this.
  Meetings(const ProgramJob& job, const Folding& folding)
      : job_(job), folding_(folding), groups_(folding.group_representatives.size()) {}

  // `arrival` comes to the `number`th meeting of a class of groups with calls[call]. Returns the
  // meeting if it was the last to come and all calls agree; those who disagree wait for ever.
  // O(1), but for what is returned.
  std::optional<Held> arrive(std::uint32_t group_class, std::uint32_t number, Arrival arrival,
                             std::uint32_t call, Picos when) {
    Group& group = groups_[group_class];
    while (group.open.size() <= number - group.first) group.open.push_back(make());
    Meeting& meeting = group.open[number - group.first];
    if (meeting.held.arrivals.empty())
      meeting.held.call = call;
    else if (meeting.held.call != call && !agree(job_.calls[meeting.held.call], job_.calls[call]))
      meeting.disagrees = true;
    meeting.held.arrivals.push_back(arrival);
    meeting.held.last = std::max(meeting.held.last, when);
    if (meeting.held.arrivals.size() < folding_.arrivals[group_class] || meeting.disagrees)
      return std::nullopt;
    meeting.over = true;
    Held out = std::move(meeting.held);
    while (!group.open.empty() && group.open.front().over) {
      group.open.pop_front();
      ++group.first;
    }
    return out;
  }

  // Gives back the room of one that is over.
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
    std::uint32_t first = 0;  // the number of open.front()
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
