// Calls that share links: how fast each of them is while others are active.
//
// A call alone takes its own time T, and puts its bytes on its links at an even rate: on link l,
// bytes_l / T. If links cannot carry all calls at once, each call is slowed down as a whole,
// because the messages of a ring wait for each other. Rates are max-min fair in the rate of a port
// (Bertsekas and Gallager, Data Networks, section 6.5.2): all calls rise together until a link is
// full or a call has its full speed; these are settled, and the others rise further. So two calls
// whose rings cross one uplink with one flow each have half of it each, and one with two flows has
// two thirds next to a call with one.
//
// A call that is never slowed down ends exactly T after its begin. Rates change only when a call
// begins or ends. Links that can carry all of their calls at full speed are left out. The others
// connect calls to components, and only the components of a call that began or ended are shared
// again: O(links of the call) if no link is full, else O(u log u), u the links of all calls of its
// component.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "base/quantities.h"
#include "sim/engine/program.h"

namespace lockstep::sim {

// The bytes that calls of one kind in one group put on links, for each byte of the call's buffer
// (or for the whole buffer: SharedLinks::bytes_are_whole).
struct CallTraffic {
  struct Use {
    std::uint32_t link = 0;
    double bytes = 0;
  };
  std::vector<Use> uses;  // each link once
  double port = 0;        // on a port of a rank: the flow whose rate is shared fairly
  // Seconds that its busiest port needs for it. It limits the call's rate, so that a call alone
  // always fits its ports, even if it was measured to be faster than the machine file's links.
  double busiest = 0;
};

// The links of a job. Where equal groups are folded, a use is the sum over the groups of a class.
struct SharedLinks {
  std::vector<double> capacities;  // by link, in bytes per second, above 0
  std::vector<CallTraffic> kinds;
  bool bytes_are_whole = false;  // uses are per call, not per byte of its buffer
  // The kind of a call in a class of groups; empty: it shares no links.
  std::function<std::optional<std::uint32_t>(std::uint32_t group_class, const ProgramCall& call)>
      kind_of;
};

class CallsOnLinks {
 public:
  // `links` is not owned and must outlive this.
  explicit CallsOnLinks(const SharedLinks& links);

  // Adds a call of `kind` that begins at `begin`, which is not before the last advance(). `alone`:
  // its time if no other call is active. `id`: chosen by the caller.
  void begin(Picos begin, Picos alone, std::uint32_t kind, double bytes, std::uint32_t id);

  // The next moment at which a call begins or ends; empty if there is none.
  std::optional<Picos> next();
  struct Ended {
    std::uint32_t id = 0;
    Picos begin, end;
  };
  // Moves to that moment. Returns the calls that end there, in the order of their ids.
  std::vector<Ended> advance();

  // So far: calls that others or their links slowed down, and the most that one was, as a factor.
  std::uint64_t slowed() const { return slowed_; }
  double most_slowed() const { return most_slowed_; }
  // So far: visits to a call's use of a link, which are the cost.
  std::uint64_t visits() const { return visits_; }

 private:
  struct FutureCall {
    Picos begin, alone;
    std::uint32_t kind = 0;
    double bytes = 0;
    std::uint32_t id = 0;
    bool operator>(const FutureCall& other) const {
      return begin != other.begin ? begin > other.begin : id > other.id;
    }
  };
  struct ActiveCall {
    Picos begin, alone;
    Picos updated;     // when `left` held
    Picos end;         // at the present rate
    double left = 0;   // picoseconds of a call alone
    double rate = 1;   // 1: as alone
    double scale = 0;  // bytes per second on a link for each of the kind's bytes, at full speed
    std::uint32_t kind = 0;
    std::uint32_t id = 0;
    std::uint32_t version = 0;  // ends of older versions are stale
    std::uint32_t index = 0;    // in the component that is shared at the moment
    bool is_active = false;
    std::uint64_t round = 0;           // the last round of sharing that visited it
    std::vector<std::uint32_t> slots;  // by use of the kind: its index in the link's users
  };
  struct User {
    std::uint32_t call = 0, use = 0;  // indices of calls_, and of the uses of its kind
  };
  struct End {
    Picos time;
    std::uint32_t call = 0, version = 0;
    bool operator>(const End& other) const {
      return time != other.time ? time > other.time : call > other.call;
    }
  };

  // Full links that calls connect, and these calls.
  struct Component {
    std::vector<std::uint32_t> links, calls;
  };
  class Filling;  // shares a component's links

  bool full(std::uint32_t link) const;
  // Ends the calls that end now, and begins one.
  void end_calls(std::vector<Ended>& out);
  void begin_call(const FutureCall& future);
  // Adds a call to the users of its links, and removes it.
  void enter(std::uint32_t call);
  void leave(std::uint32_t call);
  // Sets the rates of the calls that dirty links connect.
  void share_dirty_links();
  Component component_of(std::uint32_t link);
  void set_rate(std::uint32_t call, double rate);
  void drop_stale_ends();

  const SharedLinks& links_;
  Picos now_;
  std::priority_queue<FutureCall, std::vector<FutureCall>, std::greater<>> future_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<ActiveCall> calls_;
  std::vector<std::uint32_t> unused_;      // entries of calls_ without a call
  std::vector<std::vector<User>> users_;   // by link
  std::vector<double> wanted_;             // by link: bytes per second at full speed
  std::vector<std::uint32_t> dirty_;       // links whose users changed
  std::vector<std::uint64_t> link_round_;  // by link: the last round in which a component had it
  std::vector<std::uint32_t> link_index_;  // by link: its index in that component
  std::uint64_t round_ = 0;
  std::uint64_t slowed_ = 0;
  double most_slowed_ = 1;
  std::uint64_t visits_ = 0;
};

}  // namespace lockstep::sim
