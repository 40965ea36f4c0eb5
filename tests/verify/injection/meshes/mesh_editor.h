// MeshEditor: finds calls of a healthy job on a mesh and edits them, for faults (mesh_faults.cc).
// What it finds is drawn at random from all that fits, so a seed decides the fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/verify/injection/job.h"
#include "tests/verify/injection/meshes/mesh_faults.h"

namespace lockstep::verify::injection {

class MeshEditor {
 public:
  // An action of a rank.
  struct Site {
    int rank = 0;
    std::size_t at = 0;  // index in the rank's actions
  };
  using Test = std::function<bool(const CallSpec&)>;

  // Draws the steps of the fault: the first, the last, or those between.
  MeshEditor(Job& job, Random& random);

 protected:
  Actions& actions(int rank) { return job_.ranks[static_cast<std::size_t>(rank)]; }
  CallSpec& call(const Site& s) { return actions(s.rank)[s.at].call; }
  std::size_t size_of(const std::string& group) const { return job_.groups.at(group).size(); }
  template <class List>
  const auto& any(const List& list) {
    return list[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(list.size()) - 1))];
  }

  // A call in the steps of the fault that passes the test, of a group with several members; find():
  // a collective. Nothing: no call passes.
  std::optional<Site> find_call(const Test& test);
  std::optional<Site> find(const Test& test);
  // The call's index among the collectives of its rank and group.
  std::int64_t seq_of(const Site& s);

  // Removes a call and the waits for it.
  void remove(int rank, std::size_t at);
  void insert(int rank, std::size_t at, Action a);
  // An issue of the call, with a handle that no other call has.
  Action added_call(CallSpec c);
  // Sets the modalities of a rank's batch.
  void set_batch(int rank, int step, const std::vector<std::string>& names);
  // Removes the rank's calls of that step that pass the test. Returns where the first one was.
  struct First {
    std::string group;
    std::int64_t seq = kUnset;
  };
  First remove_all(int rank, int step, const Test& test);

  // Group, step and reference of a deviation at a call.
  Deviation at_call(std::vector<int> culprits, const CallSpec& c, std::int64_t seq);
  // The ranks that share a group of one of these dimensions with `rank`, or with one of those: a
  // tensor-parallel group, or one replica.
  std::vector<int> row_of(int rank, const std::set<std::string>& dimensions);
  // How many are more than half of `members`, but not all.
  int pick_most(std::size_t members);

  Job& job_;
  Random& random_;
  int first_ = 0, last_ = 0;  // the steps of the fault

 private:
  int added_ = 0;
};

}  // namespace lockstep::verify::injection
