// A derivation: what each rank of a program does under each condition, recorded without the other
// ranks. The input of `lockstep verify`; docs/product.md describes the folder.
//
//   product.json   the conditions, which ranks may be in them at which step, and what was recorded
//   <folder>/      for each history: a trace per rank, in any form that load_run reads
//
// Step 0 of a history ran under its `first` condition, step 1 under its `second` if it has one, and
// the steps that follow under `steps`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

using ConditionId = StrongId<struct ConditionTag, std::uint32_t>;  // into ProductSpec::conditions
using HistoryId = StrongId<struct HistoryTag, std::uint32_t>;      // into ProductSpec::histories

// What product.json says.
struct ProductSpec {
  struct Condition {
    std::string name;
    std::string phase;             // ranks in one step are all in conditions of one phase
    std::vector<std::string> has;  // the modalities in the batch
  };
  struct Allowed {
    std::vector<std::int32_t> ranks;      // ascending; empty: all
    std::vector<std::int64_t> steps;      // ascending; empty: all
    std::vector<ConditionId> conditions;  // ascending
  };
  struct History {
    ConditionId first;   // of step 0
    std::string folder;  // relative to the one of product.json
    // Of step 1, if the program is settled only after it. Then every history has one, and step 1 is
    // a kind of step of its own.
    std::optional<ConditionId> second = {};
  };
  // Ranks that make the same calls under the same condition. Only `rank`, the first of them, has a
  // trace, which is used for all. Where the job is made of copies (`copy_ranks`), they have one
  // index in several copies.
  struct RankClass {
    std::int32_t rank = 0;
    std::vector<std::int32_t> ranks;  // ascending
  };
  enum class Choice : std::uint8_t {
    free,    // each rank has a condition of its own in every step
    agreed,  // all ranks have the same one
  };

  std::string program;
  std::int32_t world_size = 0;
  std::vector<std::string> assumptions;
  std::vector<Condition> conditions;
  Choice choice = Choice::free;
  // What a step calls depends on the condition of the step before, too.
  bool looks_back = false;
  std::vector<Allowed> allowed;    // the first that fits (rank, step) counts; none fits: all
  std::vector<RankClass> classes;  // each rank in one; empty: every rank has a trace of its own
  // That many consecutive ranks are a copy of the model, with groups and messages of their own
  // (trace/spread.h): a pipeline's stages, HSDP's shards. 0: there are none.
  std::int32_t copy_ranks = 0;
  // Ranks that share a batch: in every step all of a list are in the same condition. A rank is in
  // one list or in none; ascending, two or more each. Not used with `agreed`.
  std::vector<std::vector<std::int32_t>> together;
  std::vector<History> histories;
  std::vector<ConditionId> steps;          // of every history, those that follow its own
  std::optional<std::int64_t> only_steps;  // the program has this many steps; nothing: any number

  bool has_seconds() const { return !histories.empty() && histories.front().second.has_value(); }
  // The last step that was recorded.
  std::int64_t last_step() const {
    return static_cast<std::int64_t>(steps.size()) + (has_seconds() ? 1 : 0);
  }
  // The condition under which a step of a history was recorded; 0 <= step <= last_step().
  ConditionId recorded_condition(HistoryId history, std::int64_t step) const {
    const History& own = histories[history.value];
    if (step == 0) return own.first;
    if (step == 1 && own.second) return *own.second;
    return steps[static_cast<std::size_t>(step) - (own.second ? 2 : 1)];
  }
};

struct Derivation {
  ProductSpec spec;
  std::string folder;
  std::vector<Run> runs;  // one for each history
};

// By rank: whose trace says what it does. O(ranks).
std::vector<std::int32_t> traced_ranks(const ProductSpec& spec);

inline constexpr std::size_t kMaxConditions = 256;
inline constexpr std::size_t kMaxConditionsLookingBack = 16;  // with `looks_back`
inline constexpr std::size_t kMaxHistories = 256;
inline constexpr std::size_t kMaxDerivedSteps = 65536;  // in `steps`
inline constexpr std::size_t kMaxAllowed = 4096;

// `file` names the text in errors. Errors: no JSON, a key that is missing or of another type, a
// name that no condition has, a version that this reader does not know, a number out of bounds, a
// history's folder that leads out of the derivation's.
Result<ProductSpec> parse_product(std::string_view text, const std::string& file);

// The text of product.json. Parsing it gives an equal spec.
std::string product_text(const ProductSpec& spec);

// Puts together what was read: `runs`, one for each history. Errors: runs of another world, a rank
// of the world without a trace, a trace that is damaged or was cut off.
Result<Derivation> make_derivation(ProductSpec spec, std::vector<Run> runs,
                                   const std::string& folder);

// Reads product.json and the traces of all histories. Errors: those of parse_product, load_run and
// make_derivation.
Result<Derivation> load_derivation(const std::string& folder);

}  // namespace lockstep::trace
