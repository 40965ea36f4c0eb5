// One schedule of a run as programs (verify/schedules/program.h), played: what happens without a
// choice happens, and what a state at rest leaves open is listed. The search over the choices,
// and why this is all that there is to choose: verify/schedules/search.h.
//
// Every elementary step is counted as work, and the machine stops at a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "verify/schedules/program.h"

namespace lockstep::verify {

// How far everybody is, and what has not met.
struct ScheduleState {
  std::vector<std::uint32_t> next;                 // by rank: the action to take
  std::vector<std::vector<std::uint32_t>> issued;  // by group and member: its collectives so far
  struct Frontier {                                // the members that have issued fewest
    std::uint32_t least = 0, members = 0;
  };
  std::vector<Frontier> frontiers;             // by group
  std::vector<std::vector<Message>> sends;     // by receiver, ascending
  std::vector<std::vector<Message>> receives;  // by receiver, ascending: in the order of posting

  std::size_t bytes() const;
};

// A match that a state at rest leaves open, and whether the receive had others.
struct ScheduleChoice {
  WildcardMatch match;
  bool contested = false;
};

class ScheduleMachine {
 public:
  // Keeps a reference to `programs`.
  ScheduleMachine(const SchedulePrograms& programs, std::uint64_t work_limit)
      : p_(programs), work_limit_(work_limit) {}

  ScheduleState start() const;

  // Lets everything happen that no choice decides.
  void settle(ScheduleState& s, std::vector<std::uint32_t> ready);

  // Makes a choice, and lets those matches happen that then are forced; who may go on becomes
  // ready.
  void take(ScheduleState& s, const WildcardMatch& m, std::vector<std::uint32_t>& ready);

  // The choices to try in a state at rest; empty where it is an end.
  // `allowed(match)` filters what may be chosen at all.
  using Allowed = std::function<bool(const WildcardMatch&)>;
  std::vector<ScheduleChoice> choices(const ScheduleState& s, const Allowed& allowed);

  // Whether some rank can never go on, whatever follows behind the ends that are not known: the
  // complement of the least fixpoint of "may still be let go".
  bool has_stuck(const ScheduleState& s);

  // Whether everybody passed what its record shows it passed, and hangs where it hung.
  bool fits_record(const ScheduleState& s) const;
  bool exhausted() const { return work_ > work_limit_; }
  void charge(std::uint64_t work) { work_ += work; }

  // The first match in which the message does not fit, since the last call of this.
  std::optional<WildcardMatch> take_misfit() { return std::exchange(misfit_, std::nullopt); }

 private:
  bool at_end(const ScheduleState& s, std::uint32_t r) const;
  void advance(ScheduleState& s, std::uint32_t r, std::vector<std::uint32_t>& ready);
  bool passes(const ScheduleState& s, std::uint32_t r, std::uint32_t c);

  // Whether a message waits for the probe that no posted receive would take.
  bool sees_message(const ScheduleState& s, const Message& probe);
  void post(ScheduleState& s, std::uint32_t r, std::uint32_t c, std::vector<std::uint32_t>& ready);
  void arrive(ScheduleState& s, const SchedulePrograms::Meeting& m,
              std::vector<std::uint32_t>& ready);

  // The receive that takes the message as soon as it is free to.
  const Message* first_receive_for(const ScheduleState& s, const Message& send);

  // The first message from this sender that the receive takes.
  const Message* first_send_for(const ScheduleState& s, const Message& receive,
                                std::uint32_t sender);

  // Receives that name their sender take its first message for them, unless a receive posted
  // earlier takes that one.
  void match_forced(ScheduleState& s, std::uint32_t dest, std::vector<std::uint32_t>& ready);
  void meet(ScheduleState& s, const Message& receive, const Message& send,
            std::vector<std::uint32_t>& ready);

  // `closed`: no other message can ever become one of the choices.
  std::vector<ScheduleChoice> choices_of_receive(const ScheduleState& s, std::uint32_t dest,
                                                 std::size_t index, bool& closed);

  // Whether the receive begins a run in which its rank does nothing but take messages from anybody,
  // at least as many as can come during the run: then all of them are taken, in whatever order.
  bool absorbs_all(const ScheduleState& s, std::uint32_t dest, const Message& receive);

  // The messages for the receive that the sender has there, or may send before it has to wait for
  // the receiver in a collective. Stops behind `enough`.
  std::size_t messages_of(const ScheduleState& s, std::uint32_t sender, const Message& receive,
                          std::size_t enough);

  // Whether the meeting lacks that rank.
  bool waits_for(const ScheduleState& s, const SchedulePrograms::Meeting& m, std::uint32_t rank);
  bool may_be_let_go(const ScheduleState& s, std::uint32_t r, const std::vector<bool>& may_move);

  const SchedulePrograms& p_;
  const std::uint64_t work_limit_;
  std::uint64_t work_ = 0;
  std::optional<WildcardMatch> misfit_;
};

}  // namespace lockstep::verify
