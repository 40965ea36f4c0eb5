// Which calls synchronise a gradient: over which ranks, in which precision, and with which average,
// as far as the program declares it.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "trace/run.h"
#include "verify/context.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

// What a summed gradient is divided by. A program declares it by a word in the calls' tag:
// "average=world" (all ranks), "average=contributors" (ranks that have a gradient) or "average=sum"
// (nothing).
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

// The ranks (indices) that did not synchronise the parameter of `row` in the update before it:
// their traces hold no reduction between the row's step and the previous one that could have done
// so. If reductions name the table's parameters, only those that name this one count; otherwise any
// does. Ranks without any collective are left out: their calls were not recorded. O(events of the
// ranks + names).
std::vector<std::uint32_t> ranks_without_sync(const trace::Run& run, const ValueTable& table,
                                              const SyncCalls& calls, const ValueRow& row);

// A reduction of as many elements as the tensor of `row` has, issued asynchronously after the
// previous row and not waited for before this one, on a rank that waited for others. Nothing where
// there is none, or where waits are not recorded. O(events of the ranks).
std::optional<CallRef> unwaited_reduction(const trace::Run& run, const ValueTable& table,
                                          const ValueRow& row);

// Whether each of these ranks (indices) reduced at least `elements` values inside of the optimizer
// of step n, that is after its learning rate was recorded: the gradients that the optimizer got are
// then a rank's own. O(events of the ranks).
bool reduced_by_optimizer(const trace::Run& run, const std::vector<std::uint32_t>& ranks,
                          std::int64_t n, std::int64_t elements);

}  // namespace lockstep::verify
