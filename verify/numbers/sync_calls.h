// Which calls synchronise a gradient: over whom, in what precision, and how the program says that
// it averages.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "trace/run.h"
#include "verify/context.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

// Over whom a gradient is averaged. A program declares it by a word in the calls' tag:
// "average=world", "average=contributors" (ranks that have a gradient) or "average=sum".
enum class Average : std::uint8_t { undeclared, world, contributors, sum };

struct SyncCall {
  std::vector<std::uint32_t> ranks;  // rank indices of the group's members
  bool whole = true;                 // every member left a trace
  Average average = Average::undeclared;
  std::optional<double> roundoff;  // of the type that is sent; nothing: not recorded
};

class SyncCalls {
 public:
  // Goes through the reductions that name what they carry; O(calls + names).
  explicit SyncCalls(const Context& context);

  // The widest of the reductions that carry `name`; nullptr: none is recorded.
  const SyncCall* of(trace::StringId name) const;
  // What all reductions that declare an average declare; undeclared where they differ.
  Average declared() const { return declared_; }

 private:
  std::unordered_map<std::uint32_t, SyncCall> by_name_;
  Average declared_ = Average::undeclared;
};

// Updates between which a rank synchronised nothing, by its calls: rank indices whose traces hold
// no reduction that could have synchronised the parameter between `row` and the one before it,
// although they hold calls: other reductions, or at least some collective. Where reductions name
// parameters of the table, those of this one count, else all. O(events of the ranks + names).
std::vector<std::uint32_t> ranks_without_sync(const trace::Run& run, const ValueTable& table,
                                              const SyncCalls& calls, const ValueRow& row);

}  // namespace lockstep::verify
