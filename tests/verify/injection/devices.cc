#include "tests/verify/injection/devices.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

namespace lockstep::verify::injection {

namespace {

// The stream of a rank that a call goes through: its group's, or that of one pair within it.
using Lane = std::tuple<std::string, int, int>;
const Lane kWholeDevice = {"", kUnset, kUnset};

struct Kernel {
  std::size_t first = 0, count = 1;  // its calls, as entries of the rank
  std::size_t stream = 0;
  std::size_t gates = 0;  // how many of the rank's gates must be done before
  bool started = false, completing = false, completed = false;
};

struct Stream {
  std::vector<std::size_t> kernels;
  std::size_t head = 0;  // the first that is not done
};

struct Device {
  enum class Host { running, finished, raised, stalled, gone } host = Host::running;
  std::size_t next = 0;  // the action to perform
  bool sleeps = false;   // until something on the device is done
  bool waits_for_gates = false;
  int since_late = kUnset;  // actions since the host was late
  RankOutcome out;
  std::vector<Kernel> kernels;
  std::vector<std::size_t> kernel_of;  // by entry
  std::vector<Stream> streams;
  std::map<Lane, std::size_t> stream_of;
  std::vector<std::size_t> gates;  // kernels that the compute stream waits for
  std::size_t passed_gates = 0;    // of them, done in a row
  std::map<int, std::size_t> entry_of_handle;
  std::map<std::string, std::vector<std::size_t>> collectives;  // entries by group
  std::map<std::string, std::int64_t> messages;                 // counters by group
  // Entries of messages by group, peer and direction.
  std::map<std::tuple<std::string, int, bool>, std::vector<std::size_t>> sides;
  std::size_t open = 0;  // calls that are not done
};

class Devices {
 public:
  Devices(const Job& job, const DeviceBehaviour& behaviour, Random& random)
      : job_(job), behaviour_(behaviour), random_(random), devices_(job.ranks.size()) {}

  DeviceOutcome run() {
    for (int r = 0; r < job_.world(); ++r) schedule_host(r, pick(random_, 1'000, 60'000));
    int left = behaviour_.stop_after;
    while (!events_.empty() && left != 0 && !stopped_) {
      const TimedEvent h = events_.top();
      events_.pop();
      clock_ = h.time;
      if (h.is_host) {
        if (move_host(h.rank) && left > 0) --left;
      } else {
        complete(h.rank, h.kernel);
      }
    }
    return outcome(left == 0 || stopped_);
  }

 private:
  using Host = Device::Host;

  // What happens next: a host moves, or a kernel is done.
  struct TimedEvent {
    std::int64_t time = 0;
    std::int64_t order = 0;  // of those at one time
    int rank = 0;
    bool is_host = false;
    std::size_t kernel = 0;
    bool operator>(const TimedEvent& other) const {
      return std::tie(time, order) > std::tie(other.time, other.order);
    }
  };

  Device& device(int r) { return devices_[static_cast<std::size_t>(r)]; }
  const Actions& actions(int r) const { return job_.ranks[static_cast<std::size_t>(r)]; }

  void schedule_host(int r, std::int64_t after) {
    events_.push({clock_ + after, ++order_, r, true, 0});
  }

  bool can_move(const Device& d) const {
    if (d.waits_for_gates && d.passed_gates < d.gates.size()) return false;
    return d.open < static_cast<std::size_t>(behaviour_.run_ahead);
  }

  // False: the host has to wait.
  bool move_host(int r) {
    Device& d = device(r);
    if (!can_move(d)) {
      d.sleeps = true;
      return false;
    }
    d.waits_for_gates = false;
    if (d.next == actions(r).size()) {
      d.host = Host::finished;
      return true;
    }
    std::int64_t pause = pick(random_, 2'000, 60'000);
    const Action& a = actions(r)[d.next++];
    d.out.events.push_back({&a, clock_, 0});
    switch (a.kind) {
      case Action::Kind::issue:
        enqueue(r, a);
        break;
      case Action::Kind::wait:
        d.out.events.back().entry = d.entry_of_handle.at(a.handle);
        add_gate(r, d.kernel_of[d.out.events.back().entry]);
        break;
      case Action::Kind::step:
        d.waits_for_gates = behaviour_.syncs_steps;
        break;
      case Action::Kind::modality:
        break;
      case Action::Kind::late:
        pause = std::int64_t{1'000'000} * a.n;
        d.since_late = 0;
        break;
      case Action::Kind::raise:  // the recorder's thread lives on and dumps
        d.host = Host::raised;
        return true;
      case Action::Kind::stall:
        d.host = Host::stalled;
        return true;
      case Action::Kind::die:
        d.host = Host::gone;
        return true;
    }
    if (a.kind != Action::Kind::late && d.since_late != kUnset &&
        ++d.since_late == behaviour_.stop_after_late) {
      stopped_ = true;
    }
    schedule_host(r, pause);
    return true;
  }

  void add_gate(int r, std::size_t kernel) {
    Device& d = device(r);
    d.gates.push_back(kernel);
    d.waits_for_gates = behaviour_.host_blocks;
    pass_gates(d);
  }

  static void pass_gates(Device& d) {
    while (d.passed_gates < d.gates.size() && d.kernels[d.gates[d.passed_gates]].completed) {
      ++d.passed_gates;
    }
  }

  // Enqueues the call and those that are posted together with it, as one kernel.
  void enqueue(int r, const Action& first) {
    Device& d = device(r);
    Kernel kernel;
    kernel.first = d.out.entries.size();
    kernel.gates = d.gates.size();
    add_entry(r, first);
    const Actions& list = actions(r);
    while (first.call.coalesced != kUnset && d.next < list.size() &&
           list[d.next].kind == Action::Kind::issue &&
           list[d.next].call.coalesced == first.call.coalesced) {
      d.out.events.push_back({&list[d.next], clock_, 0});
      add_entry(r, list[d.next++]);
    }
    kernel.count = d.out.entries.size() - kernel.first;
    d.out.entries.back().ends_batch = first.call.coalesced != kUnset;
    const std::size_t index = d.kernels.size();
    d.kernel_of.resize(d.out.entries.size(), index);
    const auto [lane, is_new] = d.stream_of.try_emplace(lane_of(r, first.call), d.streams.size());
    if (is_new) d.streams.emplace_back();
    kernel.stream = lane->second;
    d.streams[kernel.stream].kernels.push_back(index);
    d.kernels.push_back(kernel);
    if (!first.call.async) add_gate(r, index);
    start_next(r, kernel.stream);
  }

  void add_entry(int r, const Action& a) {
    Device& d = device(r);
    const std::size_t index = d.out.entries.size();
    const std::string& group = a.call.group;
    Entry e;
    e.record = static_cast<std::int64_t>(index);
    e.call = a.call;
    e.point_to_point = is_point_to_point(a.call);
    e.created_at = clock_;
    if (e.point_to_point) {
      auto& count = d.messages[group];
      const bool joins = a.call.coalesced != kUnset && index > 0 &&
                         d.out.entries.back().call.coalesced == a.call.coalesced;
      if (!joins) ++count;
      d.sides[{group, a.call.peer, a.call.op == "send"}].push_back(index);
    } else {
      d.collectives[group].push_back(index);
    }
    e.collective_seq = static_cast<std::int64_t>(d.collectives[group].size());
    e.p2p_seq = d.messages[group];
    d.out.entries.push_back(std::move(e));
    d.out.events.back().entry = index;
    d.entry_of_handle[a.handle] = index;
    ++d.open;
  }

  Lane lane_of(int r, const CallSpec& call) const {
    if (behaviour_.one_at_a_time) return kWholeDevice;
    if (!is_point_to_point(call) || call.coalesced != kUnset) return {call.group, kUnset, kUnset};
    return {call.group, std::min(r, call.peer), std::max(r, call.peer)};
  }

  void start_next(int r, std::size_t stream) {
    Device& d = device(r);
    const Stream& s = d.streams[stream];
    if (s.head == s.kernels.size() || d.host == Host::gone) return;
    Kernel& kernel = d.kernels[s.kernels[s.head]];
    if (kernel.started || kernel.gates > d.passed_gates) return;
    if (d.out.entries[kernel.first].call.stall == Stall::never_starts) return;
    kernel.started = true;
    for (std::size_t i = 0; i < kernel.count; ++i) {
      Entry& e = d.out.entries[kernel.first + i];
      e.started_at = clock_;
      e.state = Entry::State::started;
    }
    if (!finish_if_matched(r, kernel)) return;
    // Those that waited for this one alone.
    for (std::size_t i = 0; i < kernel.count; ++i) {
      const CallSpec& call = d.out.entries[kernel.first + i].call;
      if (is_point_to_point(call)) {
        const Entry* const other = counterpart(r, kernel.first + i);
        if (other != nullptr) finish_if_matched(call.peer, kernel_with(call.peer, *other));
        continue;
      }
      const auto seq = static_cast<std::size_t>(d.out.entries[kernel.first + i].collective_seq - 1);
      for (const int m : job_.groups.at(call.group)) {
        const Entry* const entry = m == r ? nullptr : collective_at(m, call.group, seq);
        if (entry != nullptr) finish_if_matched(m, kernel_with(m, *entry));
      }
    }
  }

  Kernel& kernel_with(int r, const Entry& e) {
    Device& d = device(r);
    return d.kernels[d.kernel_of[static_cast<std::size_t>(e.record)]];
  }

  // Lets the kernel end soon where nothing keeps it. False: its peers get no further by it.
  bool finish_if_matched(int r, Kernel& kernel) {
    if (!kernel.started || kernel.completing) return false;
    Device& d = device(r);
    for (std::size_t i = 0; i < kernel.count; ++i) {
      if (d.out.entries[kernel.first + i].call.stall == Stall::link) return false;
    }
    for (std::size_t i = 0; i < kernel.count; ++i) {
      // Others of a batch, or who believe in fewer members, may still get through.
      if (!meets(r, kernel.first + i)) return kernel.count > 1 || !job_.beliefs.empty();
    }
    if (d.out.entries[kernel.first].call.stall == Stall::never_completes) return true;
    kernel.completing = true;
    const auto index = static_cast<std::size_t>(&kernel - d.kernels.data());
    events_.push({clock_ + pick(random_, 5'000, 90'000), ++order_, r, false, index});
    return true;
  }

  void complete(int r, std::size_t index) {
    Device& d = device(r);
    Kernel& kernel = d.kernels[index];
    kernel.completed = true;
    for (std::size_t i = 0; i < kernel.count; ++i) {
      Entry& e = d.out.entries[kernel.first + i];
      e.completed_at = clock_;
      e.state = Entry::State::completed;
    }
    d.open -= kernel.count;
    ++d.streams[kernel.stream].head;
    pass_gates(d);
    for (std::size_t s = 0; s < d.streams.size(); ++s) start_next(r, s);
    if (d.sleeps && can_move(d)) {
      d.sleeps = false;
      schedule_host(r, pick(random_, 1'000, 20'000));
    }
  }

  const Entry* collective_at(int r, const std::string& group, std::size_t seq) {
    Device& d = device(r);
    const auto found = d.collectives.find(group);
    if (found == d.collectives.end() || seq >= found->second.size()) return nullptr;
    return &d.out.entries[found->second[seq]];
  }

  // The other side of a message; null: it was not posted yet.
  const Entry* counterpart(int r, std::size_t entry) {
    const CallSpec& call = device(r).out.entries[entry].call;
    const bool sends = call.op == "send";
    const auto& mine = device(r).sides[{call.group, call.peer, sends}];
    const auto& theirs = device(call.peer).sides[{call.group, r, !sends}];
    const auto n =
        static_cast<std::size_t>(std::lower_bound(mine.begin(), mine.end(), entry) - mine.begin());
    return n < theirs.size() ? &device(call.peer).out.entries[theirs[n]] : nullptr;
  }

  static bool has_started(const Entry* e) { return e != nullptr && e->started_at != 0; }

  bool meets(int r, std::size_t entry) {
    const Entry& e = device(r).out.entries[entry];
    const CallSpec& call = e.call;
    if (is_point_to_point(call)) {
      if (call.op == "send" && behaviour_.eager_sends) return true;
      const Entry* const other = counterpart(r, entry);
      return has_started(other) && (behaviour_.silent || messages_fit(call, other->call));
    }
    std::vector<const CallSpec*> calls;
    for (const int m : job_.members(r, call.group)) {
      const Entry* const other =
          collective_at(m, call.group, static_cast<std::size_t>(e.collective_seq - 1));
      if (!has_started(other)) return false;
      calls.push_back(&other->call);
    }
    return behaviour_.silent || all_fit(calls);
  }

  DeviceOutcome outcome(bool stopped) {
    DeviceOutcome out;
    out.stopped = stopped;
    out.ended_at = clock_;
    for (Device& d : devices_) {
      d.out.dumped = d.host != Host::gone;
      // A rank that nobody misses any more holds up nobody.
      const bool stuck = d.open > 0 || d.host == Host::running;
      out.hung |= stuck && !stopped && d.host != Host::gone;
      if (d.host == Host::raised) {
        d.out.end = "exception";
      } else if (d.host != Host::gone && !stopped) {
        d.out.end = stuck || d.host == Host::stalled ? "hung" : "clean";
      }
      out.ranks.push_back(std::move(d.out));
    }
    return out;
  }

  const Job& job_;
  const DeviceBehaviour& behaviour_;
  Random& random_;
  std::vector<Device> devices_;
  std::priority_queue<TimedEvent, std::vector<TimedEvent>, std::greater<>> events_;
  std::int64_t clock_ = 1'000'000, order_ = 0;
  bool stopped_ = false;
};

}  // namespace

DeviceOutcome execute_on_devices(const Job& job, const DeviceBehaviour& behaviour, Random& random) {
  return Devices(job, behaviour, random).run();
}

}  // namespace lockstep::verify::injection
