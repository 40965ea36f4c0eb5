// Advance: the first half of the replay. It moves every rank through its trace as far as matching
// allows (replay.h says why the order does not matter). The second half reads where they stand:
// positions.h, wait_points.h, stuck.h.
//
// Ranks are indices into Run::ranks (`r`), calls indices into RankTrace::calls (`c`).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/run.h"
#include "verify/replay/channels.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

// The instance of a collective that a call belongs to.
struct CollectiveInstance {
  static constexpr std::uint32_t kNone = UINT32_MAX;
  std::uint32_t group = kNone;  // into the groups given; kNone: no rank issued a collective in it
  // Index in the group's streams; kNone: a message, or a call so early that some member's recorder
  // dropped it.
  std::uint32_t index = kNone;
  bool is_known() const { return group != kNone && index != kNone; }
};

class Advance {
 public:
  Advance(const trace::Run& run, const std::vector<GroupStreams>& groups, Agreement& agreement,
          const ReplayOptions& options);

  // Advances ranks until none can move. O(events log events) with messages, else O(events).
  void to_the_end();

  // What holds after to_the_end():

  struct RankState {
    std::size_t next = 0;       // the next event
    std::size_t last_host = 0;  // 1 + the last event that the rank itself caused
    std::uint32_t blocked = kNoCall;
    std::uint32_t interrupted = kNoCall;
    std::int32_t step = trace::kNone;
    std::vector<std::uint32_t> batch;  // calls that the rank has to wait for before it goes on
  };

  const trace::Run& run() const { return run_; }
  const std::vector<GroupStreams>& groups() const { return groups_; }
  const ReplayOptions& options() const { return options_; }
  bool was_recorded() const { return was_recorded_; }
  bool follows_record() const { return recorded_; }
  bool queues() const { return queued_; }
  bool dumps_hosts() const { return dumped_hosts_; }
  bool knows_completion() const { return records_completion_; }

  const RankState& state(std::uint32_t r) const { return states_[r]; }
  const trace::Call& call(std::uint32_t r, std::uint32_t c) const { return run_.ranks[r].calls[c]; }
  const trace::Signature& signature(std::uint32_t r, std::uint32_t c) const {
    return run_.tables.signatures[call(r, c).signature];
  }
  bool is_message(std::uint32_t r, std::uint32_t c) const {
    return trace::is_point_to_point(signature(r, c).op);
  }
  CollectiveInstance instance(std::uint32_t r, std::uint32_t c) const {
    return {group_index_[call(r, c).group.value], index_[r][c]};
  }
  // Into groups(); CollectiveInstance::kNone: no rank issued a collective in it.
  std::uint32_t index_of(trace::GroupId group) const { return group_index_[group.value]; }

  // Whether the call can complete by what has been posted so far.
  bool completes(std::uint32_t r, std::uint32_t c) const;
  // Like completes(), or a member recorded that the call completed.
  bool all_issued(std::uint32_t r, std::uint32_t c) const;
  // For a known instance: whether all members issued it, with calls that match or not.
  bool all_arrived(CollectiveInstance instance) const;
  // Whether its calls do not match.
  bool differs(CollectiveInstance instance) const;
  // Whether it cannot complete although all members issued it: it differs, or, where the calls of a
  // communicator run in order, an earlier one does.
  bool mismatched(CollectiveInstance instance) const;
  // Whether some member recorded its completion.
  bool completed_somewhere(CollectiveInstance instance) const;

  // Whether the message has a partner; true also if a recorder dropped that one.
  bool matched(std::uint32_t r, std::uint32_t c) const { return matched_[r][c]; }
  // The other side of a matched message, where calls are queued on devices (queues()).
  std::optional<CallRef> partner(std::uint32_t r, std::uint32_t c) const;
  // The messages without a partner, sorted by channel (source, destination, group).
  std::vector<Mailbox::Posted> unmet() const;
  const std::vector<ReplayResult::PointToPointPair>& size_mismatches() const {
    return size_mismatches_;
  }
  bool has_wildcards() const { return has_wildcards_; }

 private:
  // The instances of one group's collectives, by index in its streams.
  struct Instances {
    std::vector<std::uint32_t> arrived;     // members that issued it
    std::vector<trace::SignatureId> first;  // of the member that issued it first
    std::vector<bool> mismatched;
    std::vector<bool> completed;                  // some member recorded its completion
    std::uint32_t first_mismatched = UINT32_MAX;  // the lowest mismatched index
  };
  // Source, destination and group of a point-to-point call. The mailbox handles the tags.
  using SendChannel = std::tuple<std::int32_t, std::int32_t, std::uint32_t>;
  struct ChannelState {
    Mailbox mailbox;
    std::vector<Mailbox::Posted> probes;  // those that wait for a message
  };
  using Ready = std::vector<std::uint32_t>;  // ranks that may move again

  void prepare();
  void advance(std::uint32_t r, Ready& ready);
  bool blocks_at_issue(std::uint32_t r, std::uint32_t c) const;
  bool pass_batch(std::uint32_t r);
  bool next_is_same_batch(std::uint32_t r) const;
  bool may_pass(std::uint32_t r, std::uint32_t c) const;
  void post(std::uint32_t r, std::uint32_t c, Ready& ready);
  void post_message(std::uint32_t r, std::uint32_t c, Ready& ready);
  bool cannot_match(trace::SignatureId a, trace::SignatureId b);
  std::optional<std::uint32_t> chosen_sender(std::uint32_t r, std::uint32_t c);
  void wake_probes(ChannelState& state, Ready& ready);
  void park(std::uint32_t r, std::uint32_t c);
  void wake(CollectiveInstance instance, Ready& ready);

  const trace::Run& run_;
  const std::vector<GroupStreams>& groups_;
  Agreement& agreement_;
  const ReplayOptions options_;
  const bool was_recorded_;
  const bool recorded_;  // the traces are of a run, and the record is followed
  const bool queued_;    // over NCCL: hosts went on, calls are queued on devices
  // Snapshots of hosts that carry their calls out themselves (Gloo): a host with an open call is
  // taken to wait for it, as it does unless the call is asynchronous and it still computes.
  const bool dumped_hosts_;
  const bool records_completion_;  // some rank's trace says when calls complete
  std::vector<RankState> states_;
  std::vector<std::vector<std::uint32_t>> index_;    // CollectiveInstance::index, by rank and call
  std::vector<std::vector<bool>> matched_;           // messages with a partner, by rank and call
  std::vector<std::uint32_t> group_index_;           // CollectiveInstance::group, by GroupId
  std::vector<Instances> instances_;                 // by CollectiveInstance::group
  std::unordered_map<std::uint64_t, Ready> parked_;  // see park()
  std::map<SendChannel, ChannelState> channels_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, CallRef> partner_;  // by rank and call
  std::vector<ReplayResult::PointToPointPair> size_mismatches_;
  bool has_wildcards_ = false;
};

}  // namespace lockstep::verify
