// The programs of ranks of one kind: which of their groups, peers and calls correspond.
//
// Ranks are of one kind if their groups have the same sizes and, where they exchange messages, they
// are the same stage. They run one program, each in groups of its own and with peers of its own:
//
//   rank 0   reduce in [0, 2]   send to 1      rank 0 and rank 2 make the same calls: their peers
//   rank 2   reduce in [0, 2]   send to 3      are one rank further on in their pipelines
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trace/rank_list.h"
#include "trace/run.h"
#include "verify/streams/agreement.h"

namespace lockstep::verify {

// A group in which a rank calls.
struct OwnGroup {
  // In place of an index in a group.
  static constexpr std::uint32_t kNotKnown = UINT32_MAX;

  trace::GroupId id;
  std::uint32_t role = 0;   // that ranks of one kind have in common: size, purpose, and which of
                            // several of one purpose by their first calls
  trace::RankList members;  // empty: not known
  std::uint32_t index = kNotKnown;  // of the rank in it

  std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
  std::uint32_t index_of(trace::Rank rank) const {
    return static_cast<std::uint32_t>(members.index_of(rank).value_or(kNotKnown));
  }
};

// The groups of a rank, in the order of its first calls in them.
struct OwnGroups {
  std::vector<OwnGroup> list;
  std::vector<std::uint32_t> of_call;  // the index in the list of each call's group
};

class RankPrograms {
 public:
  // O(calls), and for messages O(log members) more each. Keeps references to both.
  RankPrograms(const trace::Run& run, Agreement& agreement);

  // What ranks of one kind have in common: the sizes of their groups, and their stage in groups in
  // which they exchange messages.
  using RankKind =
      std::pair<std::vector<std::size_t>, std::vector<std::pair<std::uint32_t, std::uint32_t>>>;
  RankKind kind_of(std::uint32_t rank) const;

  const trace::Run& run() const { return run_; }
  Agreement& agreement() { return agreement_; }
  const std::vector<trace::Call>& calls(std::uint32_t r) const { return run_.ranks[r].calls; }
  std::uint32_t size(std::uint32_t r) const { return static_cast<std::uint32_t>(calls(r).size()); }
  const std::vector<OwnGroup>& groups_of(std::uint32_t r) const { return groups_[r].list; }
  const OwnGroup& group_of(std::uint32_t r, std::uint32_t call) const {
    return groups_[r].list[groups_[r].of_call[call]];
  }
  bool is_message(const trace::Call& call) const { return message_[call.signature.value]; }
  bool has_messages(trace::GroupId group) const { return sizes_.contains(group.value); }
  // Groups whose members, but at most one, send and receive over the same distances, also from the
  // last to the first. The first and the last stage of a pipeline lack a side.
  bool is_ring(trace::GroupId group) const { return rings_.contains(group.value); }
  // How many ranks a group has in which messages were sent.
  std::uint32_t size_of(trace::GroupId group) const { return sizes_.at(group.value); }

  // Whether two ranks of one kind made the same call (indices in their programs), each in its own
  // group and with its own peer.
  bool same(std::uint32_t a, std::uint32_t i, std::uint32_t b, std::uint32_t j);

  // The index of the first call from `from` on that differs, or the end of the shorter program;
  // stops at `enough`. Two messages in a row in the other order agree: in a ring every second rank
  // receives first.
  std::uint32_t agree_until(std::uint32_t a, std::uint32_t b, std::uint32_t from,
                            std::uint32_t enough = UINT32_MAX);

 private:
  void find_peers();
  std::uint32_t distance(std::uint32_t r, std::uint32_t message) const;
  void find_rings();
  void find_pairs();
  bool peers_correspond(std::uint32_t a, std::uint32_t i, std::uint32_t b, std::uint32_t j) const;
  bool posts_later(std::uint32_t a, std::uint32_t b, std::uint32_t i);

  const trace::Run& run_;
  Agreement& agreement_;
  std::vector<OwnGroups> groups_;                  // by rank index
  std::vector<bool> message_;                      // by signature: whether its calls are messages
  std::vector<std::vector<std::uint32_t>> peers_;  // by rank index and call
  std::map<std::uint32_t, std::uint32_t> sizes_;   // of groups with messages
  std::set<std::uint32_t> rings_;                  // groups
};

// The group of `rank` that corresponds to one in which `other`, a rank of its kind, made a call:
// both lists of groups, in the order of their first calls. Nothing where it has none.
std::optional<trace::GroupId> corresponding_group(const trace::Run& run, std::uint32_t rank,
                                                  std::uint32_t other, trace::GroupId of_other);

// The peer of `rank` that corresponds to that of the message, which another rank of its kind
// posted: as far from it in its own group.
std::optional<trace::Rank> corresponding_peer(const trace::Run& run, std::uint32_t rank,
                                              std::uint32_t other, const trace::Call& of_other);

}  // namespace lockstep::verify
