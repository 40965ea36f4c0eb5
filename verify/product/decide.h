// Can any assignment of conditions to ranks, in any number of steps, diverge or deadlock?
//
// Decided for all assignments without enumerating them (docs/product.md has the argument):
//   1. In each situation, on each channel, every member's every option must give the same calls.
//      Then every assignment agrees, because each rank's calls do not depend on its choice.
//   2. Where that holds, the order graph over the meetings of the step must have no circle.
//      Steps follow each other, so that what holds in each holds in any number of them.
// Else there is an assignment in which a single rank, or the ranks of a circle, go wrong; it is put
// together from the recorded parts and judged by verify(), whose findings are the proof. What
// verify() does not confirm is not claimed: the verdict is `inconclusive` then.
//
// Cost: near linear in the calls of all sequences, for each kind of step that `allowed` tells
// apart.
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
  diverges,      // some assignment's calls do not fit together
  may_deadlock,  // they do, but some assignment waits in a circle
  raises,        // they do, but a rank may end with an exception
  inconclusive,
};
std::string_view to_string(ProductVerdict verdict);

struct Counterexample {
  enum class Where : std::uint8_t { start, step, end } where = Where::step;
  std::int64_t step = 0;
  Assignment assignment;
  std::vector<trace::Rank>
      differing;  // the ranks that part from the others, or close the circle; sorted
  std::vector<std::string> reason;  // in words; a line each

  // Of a divergence: what two ranks do on the channel, and where they part.
  struct Side {
    trace::Rank rank;
    std::vector<std::string> calls;
  };
  std::string channel;  // "group world", "messages from rank 0 to rank 1"
  std::optional<Side> reference, deviant;
  std::size_t parts_at = 0;       // the first place where they differ
  std::vector<std::string> what;  // parameters that one of them carries and the other does not

  trace::Run run;  // of that assignment
  Report report;   // what verify() says of it
};

struct ProductDecision {
  ProductVerdict verdict = ProductVerdict::inconclusive;
  std::vector<std::string> why;  // of `inconclusive`; of `safe`, what a reader should know
  std::optional<Counterexample> counterexample;
  bool one_order = true;  // false: no order of the meetings suits all assignments (no certificate)
  // What ranks that choose as one exchange among themselves depends on their choice (no
  // certificate).
  bool varying = false;
  std::size_t situations = 0, sequences = 0, meetings = 0;  // looked at
};

ProductDecision decide(const ProductModel& model);

// Whether a report has an error or a warning about matching, blocking or modalities.
bool shows_divergence(const Report& report);

// What a counterexample says: who parts from whom, on which channel, at which call.

// The members of a channel that do the same there.
struct ChannelParty {
  std::uint32_t shared = kNothing;  // kNothing: no call at all
  std::vector<trace::Rank> ranks;   // ascending
};
using ChannelParties = std::vector<ChannelParty>;

// `sequences`: by rank. Ordered by their lowest ranks.
ChannelParties parties_on(const ProductModel& model, std::uint32_t channel,
                          const std::vector<std::uint32_t>& sequences);
// The largest party; of equal ones the first.
std::size_t parties_reference(const ChannelParties& parties);

// Fills in the channel, the two sides, the parameters and the reason.
void describe_divergence(const ProductModel& model, const std::vector<std::uint32_t>& sequences,
                         Counterexample& out);
void describe_circle(const ProductModel& model, const Circle& circle, Counterexample& out);

// "group world", "messages from rank 0 to rank 1".
std::string channel_words(const ProductChannel& channel);

}  // namespace lockstep::verify
