// Can any assignment of conditions to ranks, in any number of steps, diverge or deadlock?
//
// Decides for all assignments without enumerating them (docs/product.md has the argument):
//   1. In each situation, on each channel, all options of all members must give the same calls.
//      Then every assignment agrees, because a rank's calls do not depend on its choice.
//   2. Where that holds, the graph of orders between the step's collectives must have no cycle.
//      Steps follow each other, so what holds for each holds for any number of them.
// Otherwise some assignment fails, by a single rank or by the ranks of a cycle. It is composed of
// the recorded parts and judged by verify(), whose findings are the proof. What verify() does not
// confirm is not claimed: then the verdict is `inconclusive`.
//
// Cost: almost linear in the calls of all sequences, for each kind of step that `allowed`
// distinguishes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/product/assignments.h"
#include "verify/product/model.h"
#include "verify/report.h"

namespace lockstep::verify {

enum class ProductVerdict : std::uint8_t {
  safe,
  diverges,      // in some assignment, calls do not match
  may_deadlock,  // calls always match, but in some assignment ranks wait in a cycle
  raises,        // calls always match, but a rank may raise an exception
  inconclusive,
};
std::string_view to_string(ProductVerdict verdict);

struct Counterexample {
  enum class Where : std::uint8_t { start, step, end } where = Where::step;
  std::int64_t step = 0;
  Assignment assignment;
  std::vector<trace::Rank> differing;  // the ranks that deviate, or that form the cycle; sorted
  std::vector<std::string> reason;     // one line each

  // For a divergence: what two ranks do on the channel, and where they differ.
  struct Side {
    trace::Rank rank;
    std::vector<std::string> calls;
  };
  std::string channel;  // "group world", "messages from rank 0 to rank 1"
  std::optional<Side> reference, deviant;
  std::size_t first_difference = 0;  // the first index at which they differ
  std::vector<std::string> what;     // parameters that only one of them carries

  trace::Run run;  // the assignment as a program
  Report report;   // verify()'s report on it
};

struct ProductDecision {
  ProductVerdict verdict = ProductVerdict::inconclusive;
  std::vector<std::string> why;  // for `inconclusive`; for `safe`, what a reader should know
  std::optional<Counterexample> counterexample;
  // There is a certificate only where one_order is true and varying is false.
  bool one_order = true;  // one order of the collectives fits all assignments
  bool varying = false;   // calls within a team depend on its choice
  std::size_t situations = 0, sequences = 0, instances = 0;  // how many were examined
};

// Whether any allowed mix of conditions, in any number of steps, lets ranks diverge, wait for each
// other or raise an exception. docs/product.md says why examining the situations suffices.
ProductDecision decide(const ProductModel& model);

// Whether a report has an error or a warning about matching, blocking or modalities.
bool shows_divergence(const Report& report);

// Who differs on a channel, in words.

// The members of a channel that issue the same calls on it.
struct ChannelParty {
  std::uint32_t shared = kNothing;  // kNothing: no call at all
  std::vector<trace::Rank> ranks;   // ascending
};
using ChannelParties = std::vector<ChannelParty>;

// `sequences`: by rank. Ordered by their lowest ranks.
ChannelParties parties_on(const ProductModel& model, ChannelId channel,
                          const std::vector<SequenceId>& sequences);
// The largest party; of equal ones the first.
std::size_t reference_party(const ChannelParties& parties);

// "group world", "messages from rank 0 to rank 1".
std::string describe_channel(const ProductChannel& channel);

}  // namespace lockstep::verify
