// A job on a machine's network (Machine::network): which links each of its calls uses, and which of
// its ranks, groups and links are alike.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sim/engine/program.h"
#include "sim/engine/shared_links.h"
#include "sim/machine/machine.h"
#include "sim/network/topology.h"
#include "sim/network/traffic.h"

namespace lockstep::sim {

class JobNetwork {
 public:
  // `machine` has a network; `layouts`: of the job's groups. Errors: a network that is too small;
  // all-to-alls beyond kMaxVisits; price()'s. O(different calls of ranks + the traffic of each
  // group).
  static Result<JobNetwork> of(const Machine& machine, const ProgramJob& job,
                               const std::vector<GroupLayout>& layouts);

  // fold(), where groups that use links differently are not equivalent. `job`: that of of().
  Folding fold(const ProgramJob& job) const;

  // For execute(): with `folding` of fold() or unfolded(). `job` may have moved since, but its
  // calls not; both must outlive the result.
  SharedLinks links(const ProgramJob& job, const Folding& folding) const;

 private:
  explicit JobNetwork(Network network) : network_(std::move(network)) {}

  Status add(const Machine& machine, const ProgramJob& job,
             const std::vector<GroupLayout>& layouts);
  Status add_traffic(const ProgramJob& job, std::uint32_t group, std::uint32_t way,
                     std::int64_t nodes);

  Network network_;
  double visits_ = 0;                 // of traffic(), so far
  std::vector<std::uint32_t> kinds_;  // of groups, by their layouts
  // An operation and its pattern: (op << 8) | pattern. By kind of group and call.
  std::unordered_map<std::uint64_t, std::uint32_t> ways_;
  struct Traffic {
    std::uint32_t way = 0;
    PortLoad ports;
    std::vector<LinkLoad> loads;  // links by their index in used_
  };
  std::vector<std::vector<Traffic>> of_group_;
  std::vector<std::uint32_t> used_;  // links of the network
};

}  // namespace lockstep::sim
