// What ranks do, as sequences of calls and waits: the form of a trace that all of product/ works
// on.
//
// Equal sequences have one id, so the cost of the analysis follows the number of different ones.
//   channel     where calls match: a process group, or the messages from one rank to another with
//               one tag
//   shared key  what the peers of a call must agree on: operation, sizes (as far as the operation
//               demands it), type, reduce operation, root, identity
//   own key     what differs between peers, but must not depend on a rank's condition: the splits
//               of an all-to-all
//   projection  of a sequence on a channel: the list of its calls there
// Ids are indices in SequenceTable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::verify {

inline constexpr std::uint32_t kNothing = UINT32_MAX;

using ChannelId = StrongId<struct ChannelTag, std::uint32_t>;    // into SequenceTable::channels
using SequenceId = StrongId<struct SequenceTag, std::uint32_t>;  // into SequenceTable::sequences
inline constexpr SequenceId kNoSequence{kNothing};               // not recorded

struct ProductChannel {
  std::string name;         // of the group
  bool message = false;     // members are the sender and the receiver; `tag` counts
  trace::RankList members;  // in group order
  std::int32_t tag = trace::kNoPeerTag;
  // Within one copy of the model (ProductSpec::copy_ranks). The other copies have equal channels of
  // their own, which need no analysis.
  bool of_copy = false;

  // Whether the rank's calls here are examined.
  bool counts(std::int32_t rank) const { return !of_copy || members.contains(trace::Rank(rank)); }

  // A group of one rank: nobody else can keep it waiting.
  bool has_one_member() const { return !message && members.size() < 2; }
};

// The sizes of an all-to-all, one for each member; empty where it was cut evenly.
struct ExchangeSplits {
  std::vector<std::int64_t> in, out;
  friend bool operator==(const ExchangeSplits&, const ExchangeSplits&) = default;
};

struct ProductItem {
  enum class Kind : std::uint32_t {
    issue,     // blocks nobody
    blocking,  // blocks until all members issued the call
    in_batch,  // the same, but blocks after the last call of its batch
    wait,      // blocks until all members issued call `index` of `channel`
  } kind = Kind::issue;
  ChannelId channel;
  std::uint32_t index = 0;   // among the sequence's calls of that channel
  std::uint32_t shared = 0;  // of a call
  std::uint32_t own = 0;
  friend bool operator==(const ProductItem&, const ProductItem&) = default;
};

struct Projection {
  ChannelId channel;
  std::uint32_t shared = 0;  // id of the list of shared keys
  std::uint32_t own = 0;
  std::uint32_t size = 0;
};

struct ProductSequence {
  std::vector<ProductItem> items;
  std::vector<Projection> projections;  // by channel; no empty ones
};

struct SequenceTable {
  std::vector<ProductChannel> channels;
  std::vector<std::vector<std::uint32_t>> shared_lists, own_lists;  // what a projection's ids mean
  std::vector<std::string> shared_keys;                             // JSON lists: shared_key()
  std::vector<std::string> shown;                 // by shared key, for people: "all_reduce(w)"
  std::vector<std::string> signatures;            // the same: "all_reduce of 8 float32 (sum)"
  std::vector<std::vector<std::string>> carried;  // by shared key: the parameters
  std::vector<ExchangeSplits> exchanges;          // by own key; 0: none
  std::vector<ProductSequence> sequences;
  std::vector<std::string> inconclusive;  // why nothing can be decided; empty: it can
  // Groups to which ranks give different members, by name.
  std::vector<std::string> disputed_groups;
};

}  // namespace lockstep::verify
