// What a rank does in one part of a program (its start, step 0, a later step under a condition, its
// end), as a sequence of calls and waits, cut from the traces of a derivation.
//
// Equal sequences have one id, so that what follows costs what the number of different ones costs.
// A call is reduced to what its peers must agree on (its *shared* key: operation, sizes by the
// operation's own rule, type, reduce operation, root, identity) and what a rank must do the same
// under all conditions although its peers do something else (its *own* key: splits of an
// all-to-all). Calls meet on a *channel*: a process group, or the messages from one rank to another
// with one tag. A sequence's *projection* on a channel is the list of its calls there.
//
// Waits are part of a sequence where they wait for a call of the same step. One that waits for a
// call of an earlier step orders nothing within a step and closes no circle (docs/product.md).
//
// O(events of all traces).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/derivation.h"

namespace lockstep {

inline constexpr std::uint32_t kNothing = UINT32_MAX;

struct ProductChannel {
  std::string name;      // of the group
  bool message = false;  // members are the sender and the receiver; `tag` counts
  RankList members;      // in group order
  std::int32_t tag = kNoPeerTag;

  // Nobody else can keep a rank waiting there.
  bool lonely() const { return !message && members.size() < 2; }
};

// The sizes of an all-to-all, one for each member; empty where it was cut evenly.
struct ExchangeSplits {
  std::vector<std::int64_t> in, out;
  friend bool operator==(const ExchangeSplits&, const ExchangeSplits&) = default;
};

struct ProductItem {
  enum class Kind : std::uint32_t {
    issue,     // blocks nobody
    blocking,  // blocks until the call is met
    in_batch,  // the same, behind the last call of its batch
    wait,      // blocks until `place` on `channel` is met
  } kind = Kind::issue;
  std::uint32_t channel = 0;
  std::uint32_t place = 0;   // among the sequence's calls of that channel
  std::uint32_t shared = 0;  // of a call
  std::uint32_t own = 0;
  friend bool operator==(const ProductItem&, const ProductItem&) = default;
};

struct Projection {
  std::uint32_t channel = 0;
  std::uint32_t shared = 0;  // id of the list of shared keys
  std::uint32_t own = 0;
  std::uint32_t size = 0;
};

struct ProductSequence {
  std::vector<ProductItem> items;
  std::vector<Projection> projections;  // by channel; no empty ones
};

// Where a sequence was recorded: the events [begin, end) of that rank's trace.
struct RecordedPart {
  std::uint32_t sequence = kNothing;
  std::uint32_t begin = 0, end = 0;  // into RankTrace::events
};

// A rank's trace ended with an exception.
struct RecordedRaise {
  std::int64_t step = 0;             // in which it was raised
  std::uint32_t begin = 0, end = 0;  // the events of that step, up to the exception
  std::string what;
};

class ProductSequences {
 public:
  enum Part : std::uint32_t { kStart, kFirst, kEnd, kFirstCondition };  // then a part a condition

  std::vector<ProductChannel> channels;
  std::vector<std::vector<std::uint32_t>> shared_lists, own_lists;  // what a projection's ids mean
  std::vector<std::string> shared_keys;           // "all_reduce in=8 float32 sum what=w"
  std::vector<std::string> shown;                 // by shared key, for people: "all_reduce(w)"
  std::vector<std::vector<std::string>> carried;  // by shared key: the parameters
  std::vector<ExchangeSplits> exchanges;          // by own key; 0: none
  std::vector<ProductSequence> sequences;
  std::vector<std::string> inconclusive;  // why nothing can be decided; empty: it can
  // Groups to which ranks give different members, by name.
  std::vector<std::string> disputed_groups;

  // `history`, `rank` and a Part, or kFirstCondition + condition.
  const RecordedPart& part(std::uint32_t history, std::int32_t rank, std::uint32_t part) const {
    return parts_[(std::size_t{history} * ranks_ + static_cast<std::size_t>(rank)) * width_ + part];
  }
  const std::optional<RecordedRaise>& raise(std::uint32_t history, std::int32_t rank) const {
    return raises_[std::size_t{history} * ranks_ + static_cast<std::size_t>(rank)];
  }

 private:
  friend class SequenceCutter;
  std::size_t ranks_ = 0, width_ = 0;
  std::vector<RecordedPart> parts_;
  std::vector<std::optional<RecordedRaise>> raises_;
};

// Cuts all traces. What cannot be decided is listed in `inconclusive`, with rank and folder.
ProductSequences cut_sequences(const Derivation& derivation);

}  // namespace lockstep
