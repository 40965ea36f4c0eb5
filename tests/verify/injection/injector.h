// Puts one fault into a job: finds a place for it, changes the programs, and says what can be
// found. Used by inject() (faults.h) alone.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "tests/verify/injection/faults.h"

namespace lockstep::verify::injection {

class Injector {
 public:
  Injector(Job& job, const Recording& recording, Behaviour& behaviour, Random& random)
      : job_(job), healthy_(job), recording_(recording), behaviour_(behaviour), random_(random) {}

  // One fault a job: call it once.
  std::optional<Expectation> inject(Fault fault);

 private:
  using Found = std::optional<Expectation>;  // nothing: the job has no place for the fault
  using Rules = std::set<std::string>;
  using Test = std::function<bool(const CallSpec&)>;
  struct Site {
    int rank = 0;
    std::size_t at = 0;  // in the rank's actions
  };

  // Calls that differ, in matching_faults.cc.
  Found skip(bool from_then_on);
  Found modality();
  Found extra();
  Found swapped();
  Found changed(Fault fault);
  Found group_members();
  Found splits();
  // Ranks that do not come, or wait for each other, in blocking_faults.cc.
  Found length(bool longer);
  Found ended(Fault fault);
  Found inverted();
  Found p2p(Fault fault);
  Found never_waited();
  Found device_stall();

  Actions& actions(int r) { return job_.ranks[static_cast<std::size_t>(r)]; }
  CallSpec& call(const Site& s) { return actions(s.rank)[s.at].call; }
  bool flip() { return chance(random_, 0.5); }

  // Any call of any rank that passes the test.
  std::optional<Site> find_site(const Test& test);
  // A collective that others take part in; mostly late enough that the past tells what is usual.
  std::optional<Site> find_collective(const Test& test = [](const CallSpec&) { return true; });
  // Removes a call and its wait.
  void remove(int rank, std::size_t at);
  // Cuts the rank's program before the site and lets it end in that way.
  void end_with(const Site& s, Action::Kind kind, const std::string& text = "");
  // The rank's first action of that step.
  std::size_t start_of_step(int rank, int step);
  // The call's index in its group's sequence.
  std::int64_t seq_of(const Site& s);

  // Where the rank's calls of the group first look other than they did in the healthy job.
  struct Seen {
    std::int64_t seq = 0;
    std::int64_t step = kUnset;
  };
  std::optional<Seen> first_seen(int rank, const std::string& group);
  // The expectation for one rank's deviation in one group that truly happens at (seq, step).
  Found deviation(Rules rules, int rank, const std::string& group, std::int64_t seq, int step);

  Job& job_;
  const Job healthy_;
  const Recording& recording_;
  Behaviour& behaviour_;
  Random& random_;
};

}  // namespace lockstep::verify::injection
