// Which thread of the process issued the calls of a Flight Recorder dump, from "thread_name" and
// "thread_id" of its entries, which older versions of PyTorch do not write.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "trace/formats/flight_recorder/names.h"
#include "trace/run.h"

namespace lockstep::trace {

// Keeps a reference to the tree.
class DumpThreads {
 public:
  explicit DumpThreads(const DataTree& tree) : tree_(tree) {}

  // A number for the entry's thread, from 1 on; 0: autograd's, or not recorded. O(1).
  std::uint16_t of(const DumpEntry& entry);

  // Gives the calls that carry those numbers theirs of Call::thread, in which the program's first
  // thread has 0. Names do not tell that thread: another one inherits its creator's. It issues most
  // of the calls. O(calls); nothing to do where all calls are of one thread.
  void finish(RankTrace& trace) const;

 private:
  const DataTree& tree_;
  std::unordered_map<std::string_view, std::uint16_t> numbers_;  // by thread_id
  std::string_view last_id_;
  std::uint16_t last_ = 0;
};

}  // namespace lockstep::trace
