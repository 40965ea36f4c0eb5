// Where the program made the calls of a Flight Recorder dump, from the frames of its entries.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

#include "trace/formats/flight_recorder/data_tree.h"
#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

// Entries share their frames: each distinct list is turned into text once. Keeps references to its
// arguments.
class DumpFrames {
 public:
  struct Location {
    // "train.py:12": the innermost frame of the program; where all are of installed packages, the
    // innermost outside of PyTorch and Python's own library.
    StringId at;
    StringId stack;  // all frames, innermost first, a line each
    // The function of torch.distributed that issued the call ("all_reduce", "isend"), a view into
    // the dump; empty where the frames name none.
    std::string_view function;
  };

  DumpFrames(const DataTree& tree, VisitBudget& visits, Tables& tables)
      : tree_(tree), visits_(visits), tables_(tables) {}

  // `frames`: [{"name": "forward", "filename": "train.py", "line": 12}, …]. Without frames both
  // parts are empty. O(frames).
  Location location(std::span<const DataTree::Value> frames);

 private:
  Location read(std::span<const DataTree::Value> frames);

  const DataTree& tree_;
  VisitBudget& visits_;
  Tables& tables_;
  std::unordered_map<std::uint64_t, Location> known_;  // by a hash of the frames' numbers
};

}  // namespace lockstep::trace
