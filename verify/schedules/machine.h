// Executes a run's programs (verify/schedules/program.h) under one schedule: everything that needs
// no choice happens, and the choices that remain in a state at rest are listed.
// verify/schedules/search.h searches over these choices, and explains why there are no others.
//
// Every elementary step counts as work, and the machine stops at a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "verify/schedules/program.h"

namespace lockstep::verify {

// Each rank's position, and the messages and receives without a partner.
struct ScheduleState {
  std::vector<std::uint32_t> next;                 // by rank: the next action
  std::vector<std::vector<std::uint32_t>> issued;  // by group and member: its collectives so far
  struct Frontier {  // the lowest number of issued collectives, and how many members have it
    std::uint32_t least = 0, members = 0;
  };
  std::vector<Frontier> frontiers;             // by group
  std::vector<std::vector<Message>> sends;     // by receiver, ascending
  std::vector<std::vector<Message>> receives;  // by receiver, ascending: in the order of posting

  std::size_t bytes() const;
};

// A possible match in a state at rest, and whether the receive has others.
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

  // Makes a choice and the matches that it forces. Ranks that may continue become ready.
  void take(ScheduleState& s, const WildcardMatch& m, std::vector<std::uint32_t>& ready);

  // The choices to try in a state at rest; empty where the state is an end. `allowed` filters the
  // matches that may be chosen.
  using Allowed = std::function<bool(const WildcardMatch&)>;
  std::vector<ScheduleChoice> choices(const ScheduleState& s, const Allowed& allowed);

  // Whether some rank can never continue, whatever ranks with an unknown continuation do: it is
  // outside the least fixpoint of "may move" (as in verify/replay/replay.cc).
  bool has_stuck(const ScheduleState& s);

  // Whether each rank passed what its record shows it passed, and hangs where it hung.
  bool fits_record(const ScheduleState& s) const;
  bool exhausted() const { return work_ > work_limit_; }
  void charge(std::uint64_t work) { work_ += work; }

  // The first match since the previous call in which the message does not fit the receive.
  std::optional<WildcardMatch> take_misfit() { return std::exchange(misfit_, std::nullopt); }

 private:
  bool at_end(const ScheduleState& s, std::uint32_t r) const;
  void advance(ScheduleState& s, std::uint32_t r, std::vector<std::uint32_t>& ready);
  bool passes(const ScheduleState& s, std::uint32_t r, std::uint32_t c);

  // Whether a message waits for the probe that no posted receive would take.
  bool sees_message(const ScheduleState& s, const Message& probe);
  void post(ScheduleState& s, std::uint32_t r, std::uint32_t c, std::vector<std::uint32_t>& ready);
  void arrive(ScheduleState& s, const SchedulePrograms::Instance& m,
              std::vector<std::uint32_t>& ready);

  // The first posted receive that may take the message.
  const Message* first_receive_for(const ScheduleState& s, const Message& send);

  // The first message from this sender that the receive takes.
  const Message* first_send_for(const ScheduleState& s, const Message& receive,
                                std::uint32_t sender);

  // Receives that name their sender take its first message for them, unless a receive posted
  // earlier takes that one.
  void match_forced(ScheduleState& s, std::uint32_t dest, std::vector<std::uint32_t>& ready);
  void pair(ScheduleState& s, const Message& receive, const Message& send,
            std::vector<std::uint32_t>& ready);

  // The choices of one receive. `closed`: no further message can ever become one of them.
  std::vector<ScheduleChoice> choices_of_receive(const ScheduleState& s, std::uint32_t dest,
                                                 std::size_t index, bool& closed);

  // Whether the rank now does nothing but receive from any source, at least as many messages as can
  // come meanwhile. Then all of them are taken, in whatever order.
  bool absorbs_all(const ScheduleState& s, std::uint32_t dest, const Message& receive);

  // The number of messages for the receive that the sender has posted, or may post before it has to
  // wait for the receiver in a collective. Stops counting above `enough`.
  std::size_t messages_of(const ScheduleState& s, std::uint32_t sender, const Message& receive,
                          std::size_t enough);

  // Whether the instance of a collective lacks that rank.
  bool waits_for(const ScheduleState& s, const SchedulePrograms::Instance& m, std::uint32_t rank);
  bool may_be_let_go(const ScheduleState& s, std::uint32_t r, const std::vector<bool>& may_move);

  const SchedulePrograms& p_;
  const std::uint64_t work_limit_;
  std::uint64_t work_ = 0;
  std::optional<WildcardMatch> misfit_;
};

}  // namespace lockstep::verify
