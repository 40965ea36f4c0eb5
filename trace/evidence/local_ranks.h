// The numbers that torchrun writes before the lines of its ranks with --tee: "[default3]:", the
// role and the rank's number on its node. They become ranks where other lines of the output tell
// both numbers of one rank: "[default3]:[rank11]: …", or torchrun's summary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/ids.h"

namespace lockstep::trace {

// "[default3]:text": 3; nothing where the line does not begin so.
std::optional<std::int64_t> local_rank_in(std::string_view line);

class LocalRanks {
 public:
  // The rank has that number on its node. A node's ranks have consecutive numbers.
  void learn(std::int64_t local, Rank rank);
  // A note, by its index, is about the rank with that number.
  void remember(std::size_t note, std::int64_t local) { notes_.emplace_back(note, local); }
  // Note and rank of all that were remembered; none where nothing was learnt, or the output is of
  // several nodes, whose numbers are the same.
  std::vector<std::pair<std::size_t, Rank>> ranks() const;

 private:
  std::vector<std::pair<std::size_t, std::int64_t>> notes_;
  std::optional<std::int64_t> first_;  // the rank with number 0 on the node
  bool several_nodes_ = false;
};

}  // namespace lockstep::trace
