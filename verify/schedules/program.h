// A run as programs: what each rank posts and where it blocks, without how the recorded run went.
// The search tries other schedules on this form (verify/schedules/search.h).
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

struct ScheduleAction {
  std::uint32_t call;
  bool blocks;  // false: the rank posts the call; true: it waits until the call is done
};

struct ScheduleProgram {
  std::vector<ScheduleAction> actions;
  bool open_end = false;   // what follows the last action is unknown
  std::size_t passed = 0;  // the number of actions that the rank passed by its record
  bool must_hang = false;  // by its record, the rank hung before the end of its actions
};

// One point-to-point call, ready to be compared.
struct Message {
  std::uint32_t rank = 0, call = 0;  // the rank that posted it, and its call
  std::uint32_t dest = 0;            // rank index of the receiver
  std::uint32_t source = 0;          // rank index of the sender; kAnySource
  std::int32_t tag = 0;
  trace::GroupId group;
  static constexpr std::uint32_t kAnySource = UINT32_MAX;

  friend bool operator<(const Message& a, const Message& b) {
    return std::tie(a.rank, a.call) < std::tie(b.rank, b.call);
  }
};

// Whether `receive` (or a probe) may take `send`.
bool takes(const Message& receive, const Message& send);

// A receive from any source and the message that it takes; indices into Run::ranks and its calls.
struct WildcardMatch {
  std::uint32_t receiver, receive, sender, send;
  friend bool operator==(const WildcardMatch&, const WildcardMatch&) = default;
};

class SchedulePrograms {
 public:
  // O(events log ranks). Keeps references to both.
  SchedulePrograms(const trace::Run& run, const std::vector<GroupStreams>& groups,
                   CallSemantics semantics, bool buffered_sends);

  const std::vector<ScheduleProgram>& ranks() const { return programs_; }
  const trace::Run& run() const { return run_; }
  const std::vector<GroupStreams>& groups() const { return groups_; }
  const trace::Call& call(std::uint32_t rank, std::uint32_t c) const {
    return run_.ranks[rank].calls[c];
  }
  trace::Op op(std::uint32_t rank, std::uint32_t c) const { return run_.tables.op(call(rank, c)); }

  // The message of a send, receive or probe.
  Message message(std::uint32_t rank, std::uint32_t c) const;
  // Whether the other side of a point-to-point call left a trace.
  bool has_partner(std::uint32_t rank, std::uint32_t c) const;
  bool returns_at_once(std::uint32_t rank, std::uint32_t c) const {
    return verify::returns_at_once(run_.tables, call(rank, c), buffered_sends_);
  }
  bool is_wildcard(std::uint32_t rank, std::uint32_t c) const {
    return is_any_source(run_.tables, call(rank, c), semantics_);
  }

  // The instance of a collective: the group's index, the member's, and the index in the stream.
  struct Instance {
    std::uint32_t group = UINT32_MAX;  // UINT32_MAX: nothing to wait for is known
    std::uint32_t member = 0;
    std::uint32_t index = 0;
  };
  Instance instance(std::uint32_t rank, std::uint32_t c) const;

  // Whether `sender` posts a message that `receive` takes, from its action `from` on.
  bool may_send(std::uint32_t sender, std::size_t from, const Message& receive) const;
  // The ranks that send anything to the receiver in the receive's group, ascending.
  const std::vector<std::uint32_t>& senders_to(const Message& receive) const;
  // Whether the order of messages for this receive's rank and group makes no difference: the rank
  // receives from any source only, always with one tag, and no sender waits.
  bool indifferent(const Message& receive) const;

  // Whether all messages for this receive's rank and group have one form, and no probe looks at
  // them.
  bool uniform(const Message& receive) const;

  bool has_wildcards() const { return has_wildcards_; }
  // Whether every rank and member left a trace from the start of its program.
  bool whole() const { return whole_; }

 private:
  struct Traffic {  // towards one rank in one group
    std::vector<std::uint32_t> senders;
    std::map<std::uint32_t, std::map<std::int32_t, std::size_t>> last;  // sender, tag: last action
    bool selective = false;  // some receive or probe names a sender
    bool waiting_sender = false;
    bool many_tags_received = false, many_tags_sent = false, probes = false;
    bool received = false, sent = false;
    std::int32_t tag_received = 0, tag_sent = 0;
    trace::SignatureId form_sent;
    bool many_forms = false;
  };

  ScheduleProgram compile(std::uint32_t rank) const;
  void note_record(std::uint32_t rank, ScheduleProgram& program) const;
  void index_traffic(std::uint32_t rank);
  void index_instances();

  const trace::Run& run_;
  const std::vector<GroupStreams>& groups_;
  const CallSemantics semantics_;
  const bool buffered_sends_;
  std::vector<ScheduleProgram> programs_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Traffic> traffic_;  // receiver, group id
  std::vector<std::vector<Instance>> instances_;                        // by rank and call
  bool has_wildcards_ = false;
  bool whole_ = true;
};

}  // namespace lockstep::verify
