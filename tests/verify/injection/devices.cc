#include "verify/injection/devices.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "verify/injection/executor.h"

namespace lockstep::injection {

namespace {

// The queue of a rank that a call goes through: its group's, or that of one pair within it.
using Lane = std::tuple<std::string, int, int>;

struct Operation {
  const CallSpec* call = nullptr;
  Lane lane;
  std::size_t place = 0;  // in its lane
  std::size_t gates = 0;  // how many of the rank's gates must be done before
  std::int64_t collective_seq = 0, p2p_seq = 0;
  bool started = false, completed = false;
  std::int64_t created_at = 0, started_at = 0, completed_at = 0;
};

struct Device {
  enum class Host { running, finished, gone, stalled } host = Host::running;
  std::size_t next = 0;  // the action to perform
  std::vector<Operation> operations;
  std::map<Lane, std::vector<std::size_t>> lanes;
  std::map<Lane, std::size_t> heads;  // the first of each lane that is not done
  std::vector<std::size_t> gates;     // operations that the compute stream waits for
  std::size_t passed_gates = 0;       // of them, done in a row
  std::map<int, std::size_t> by_handle;
  std::map<std::string, std::int64_t> collectives, messages;  // counters by group
  std::map<std::tuple<std::string, int, bool>, std::vector<std::size_t>> sides;  // by peer, sends
  std::size_t open = 0;  // operations that are not done
  bool waits_for_gates = false;
};

class Devices {
 public:
  Devices(const Job& job, const DeviceBehaviour& behaviour, Random& random)
      : job_(job), behaviour_(behaviour), random_(random), devices_(job.ranks.size()) {}

  DeviceOutcome run() {
    int left = behaviour_.stop_after;
    while (left != 0) {
      std::vector<int> able;
      for (int r = 0; r < job_.world(); ++r) {
        if (can_move(r)) able.push_back(r);
      }
      if (able.empty()) {
        if (!progress()) break;
        continue;
      }
      perform(able[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(able.size()) - 1))]);
      if (chance(random_, 0.5)) progress();
      if (left > 0) --left;
    }
    return outcome(left == 0);
  }

 private:
  Device& device(int r) { return devices_[static_cast<std::size_t>(r)]; }
  const Actions& actions(int r) const { return job_.ranks[static_cast<std::size_t>(r)]; }

  bool can_move(int r) {
    Device& d = device(r);
    if (d.host != Device::Host::running) return false;
    if (d.waits_for_gates && d.passed_gates < d.gates.size()) return false;
    return d.open < static_cast<std::size_t>(behaviour_.run_ahead);
  }

  void perform(int r) {
    Device& d = device(r);
    d.waits_for_gates = false;
    if (d.next == actions(r).size()) {
      d.host = Device::Host::finished;
      return;
    }
    const Action& a = actions(r)[d.next++];
    switch (a.kind) {
      case Action::Kind::issue:
        enqueue(r, a);
        break;
      case Action::Kind::wait:
        add_gate(d, d.by_handle.at(a.handle));
        break;
      case Action::Kind::step:
        d.waits_for_gates = behaviour_.syncs_steps;
        break;
      case Action::Kind::modality:
        break;
      case Action::Kind::raise:  // the recorder's thread lives on and dumps
      case Action::Kind::stall:
        d.host = Device::Host::stalled;
        break;
      case Action::Kind::die:
        d.host = Device::Host::gone;
        break;
    }
  }

  void add_gate(Device& d, std::size_t operation) {
    d.gates.push_back(operation);
    d.waits_for_gates = behaviour_.host_blocks;
    pass_gates(d);
  }

  static void pass_gates(Device& d) {
    while (d.passed_gates < d.gates.size() && d.operations[d.gates[d.passed_gates]].completed) {
      ++d.passed_gates;
    }
  }

  void enqueue(int r, const Action& a) {
    Device& d = device(r);
    Operation op;
    op.call = &a.call;
    op.gates = d.gates.size();
    const std::size_t index = d.operations.size();
    if (is_point_to_point(a.call)) {
      op.lane = {a.call.group, std::min(r, a.call.peer), std::max(r, a.call.peer)};
      ++d.messages[a.call.group];
      d.sides[{a.call.group, a.call.peer, a.call.op == "send"}].push_back(index);
    } else {
      op.lane = {a.call.group, kUnset, kUnset};
      ++d.collectives[a.call.group];
    }
    op.created_at = ++clock_;
    op.collective_seq = d.collectives[a.call.group];
    op.p2p_seq = d.messages[a.call.group];
    auto& lane = d.lanes[op.lane];
    d.heads.try_emplace(op.lane, 0);
    op.place = lane.size();
    lane.push_back(index);
    d.operations.push_back(op);
    d.by_handle[a.handle] = index;
    ++d.open;
    if (!a.call.async) add_gate(d, index);
  }

  Operation* operation_at(int r, const Lane& lane, std::size_t place) {
    auto& indices = device(r).lanes[lane];
    return place < indices.size() ? &device(r).operations[indices[place]] : nullptr;
  }

  // Everything that the devices can do now; whether anything was done.
  bool progress() {
    bool any = false;
    for (bool again = true; again;) {
      again = false;
      for (int r = 0; r < job_.world(); ++r) {
        for (auto& [lane, head] : device(r).heads) again |= advance(r, lane, head);
      }
      any |= again;
    }
    return any;
  }

  bool advance(int r, const Lane& lane, std::size_t& head) {
    Device& d = device(r);
    Operation* const op = operation_at(r, lane, head);
    if (op == nullptr) return false;
    if (!op->started) {
      if (op->gates > d.passed_gates || d.host == Device::Host::gone) return false;
      op->started = true;
      op->started_at = ++clock_;
      return true;
    }
    if (op->call->device_stalls || !meets(r, *op)) return false;
    op->completed = true;
    op->completed_at = ++clock_;
    ++head;
    --d.open;
    pass_gates(d);
    return true;
  }

  bool meets(int r, const Operation& op) {
    const CallSpec& call = *op.call;
    if (is_point_to_point(call)) return meets_peer(r, op);
    std::vector<const CallSpec*> calls;
    for (const int m : job_.members(r, call.group)) {
      const Operation* const other = operation_at(m, op.lane, op.place);
      if (other == nullptr || !other->started) return false;
      calls.push_back(other->call);
    }
    return behaviour_.silent || all_fit(calls);
  }

  bool meets_peer(int r, const Operation& op) {
    const CallSpec& call = *op.call;
    const bool sends = call.op == "send";
    if (sends && behaviour_.eager_sends) return true;
    const auto& mine = device(r).sides[{call.group, call.peer, sends}];
    const auto& theirs = device(call.peer).sides[{call.group, r, !sends}];
    const std::size_t self = device(r).lanes[op.lane][op.place];
    const auto n =
        static_cast<std::size_t>(std::find(mine.begin(), mine.end(), self) - mine.begin());
    if (n >= theirs.size()) return false;
    const Operation& other = device(call.peer).operations[theirs[n]];
    if (!other.started) return false;
    return behaviour_.silent || messages_fit(call, *other.call);
  }

  DeviceOutcome outcome(bool stopped) {
    DeviceOutcome out;
    for (Device& d : devices_) {
      std::vector<Entry> entries;
      for (const Operation& op : d.operations) {
        Entry e;
        e.record = static_cast<std::int64_t>(entries.size());
        e.call = *op.call;
        e.point_to_point = is_point_to_point(*op.call);
        e.collective_seq = op.collective_seq;
        e.p2p_seq = op.p2p_seq;
        e.state = op.completed ? Entry::State::completed
                  : op.started ? Entry::State::started
                               : Entry::State::scheduled;
        e.created_at = op.created_at;
        e.started_at = op.started_at;
        e.completed_at = op.completed_at;
        entries.push_back(std::move(e));
      }
      out.entries.push_back(std::move(entries));
      out.dumped.push_back(d.host != Device::Host::gone);
      // A rank that nobody misses any more holds up nobody.
      const bool stuck = d.open > 0 || d.host == Device::Host::running;
      out.hung |= stuck && !stopped && d.host != Device::Host::gone;
    }
    return out;
  }

  const Job& job_;
  const DeviceBehaviour& behaviour_;
  Random& random_;
  std::vector<Device> devices_;
  std::int64_t clock_ = 0;
};

}  // namespace

DeviceOutcome execute_on_devices(const Job& job, const DeviceBehaviour& behaviour, Random& random) {
  return Devices(job, behaviour, random).run();
}

}  // namespace lockstep::injection
