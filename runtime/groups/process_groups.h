// ProcessGroups: this rank's groups, each behind a RecordingBackend, and the store through which
// the ranks find each other.
//
// A group carries the host's tensors by Gloo, and a device's by what the device says (device.h): by
// Gloo as well, in one sequence; or by NCCL, whose sequence is that of the trace's group, while the
// host's is recorded as the group "<name>.host".
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "runtime/derive/torch/instant_backend.h"
#include "runtime/device/device.h"
#include "runtime/record/c10d/work_watch.h"
#include "runtime/record/device_time.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

struct RankOf {
  int rank = 0;
  int world_size = 1;
};

// `count` ranks: first, first + n, first + 2 n, …
std::vector<std::int32_t> every_nth_rank(int n, int first, int count);

// Where the ranks find each other.
struct Rendezvous {
  Rendezvous(std::string store_file)
      : file(std::move(store_file)) {}  // not explicit: most have one
  Rendezvous(std::string master, int master_port, bool is_served, int which_attempt)
      : host(std::move(master)), port(master_port), served(is_served), attempt(which_attempt) {}

  std::string file;  // empty: a TCPStore at host:port
  std::string host;
  int port = 0;
  bool served = false;  // by somebody else; else rank 0 serves it
  int attempt = 0;      // how often the ranks were started anew beside one store
};

class ProcessGroups {
 public:
  using Ptr = c10::intrusive_ptr<c10d::ProcessGroup>;

  // Groups of a world in which there is nobody else: what is called completes at once
  // (runtime/derive/torch/instant_backend.h), and is recorded like any other. On the CPU, or on the
  // meta device.
  ProcessGroups(Others others, RankOf who, Recorder& recorder, bool on_meta = false);

  // `timeout`: for finding each other and for every collective. `recorder` must outlive the groups.
  // `device` null: the CPU.
  // Throws what c10d throws when the store cannot be reached.
  ProcessGroups(const Rendezvous& rendezvous, RankOf who, std::chrono::milliseconds timeout,
                Recorder& recorder, std::unique_ptr<Device> device = nullptr);

  // The group "world" of all ranks, made by the first call: collective.
  Ptr world();
  // Makes a group over connections of its own: collective over its members, which make their groups
  // in the same order. Throws what c10d throws when the others do not come.
  Ptr make(const std::string& name, const std::string& description);  // of all ranks
  // Of `ranks` (ascending, without repetition), of which this one must be one.
  Ptr make(const std::string& name, const std::string& description,
           const std::vector<std::int32_t>& ranks);

  // Connects the members of the group that is being made, by what carries this device's tensors;
  // `name`: of the connection, of which a group may have several. Collective over the members.
  using Connect = std::function<c10::intrusive_ptr<c10d::Backend>(const std::string& name)>;
  // What stands behind the recorder, where that is not one connection as it is.
  using Transport = std::function<c10::intrusive_ptr<c10d::Backend>(const Connect&)>;
  // The group carries this device's tensors alone.
  Ptr make(const std::string& name, const std::string& description,
           const std::vector<std::int32_t>& ranks, const Transport& transport);

  // Compares a value with rank 0's, through the store: no collective. Throws std::runtime_error
  // with both where they differ (rank 0 cannot tell), and what c10d throws when rank 0 is gone.
  void require_same(const std::string& what, const std::string& value);

  // Tells the others through the store that this rank has come to `what`.
  void announce(const std::string& what);
  // Waits until all of `ranks` have announced it. No collective, so it neither disturbs nor needs
  // what the ranks are doing. False when `patience` ran out first.
  bool wait_until_announced(const std::string& what, const std::vector<std::int32_t>& ranks,
                            std::chrono::milliseconds patience);

  // The same of the end of a rank's program.
  void announce_done();
  bool wait_until_all_are_done(std::chrono::milliseconds patience);

  // Ends the groups in order, the last one first: once everything that this rank called is complete
  // and the others are through (wait_until_all_are_done), after which nobody uses them. Tells no
  // more of the calls.
  void shut_down();
  // Gives up what is in flight on a device (ncclCommAbort), so that a thread that is blocked there
  // may go on. From any thread; may block where the device does not answer. What waits for a call
  // that was given up may throw.
  void abort_all();

  RankOf who() const { return who_; }
  bool alone() const { return others_.has_value(); }
  const Device& device() const { return *device_; }
  // Of a device that queues (else there is nothing to take): leaves out what the groups' calls
  // take.
  DeviceTime& device_time() { return device_time_; }

 private:
  // A group that is being made.
  struct Members {
    std::string name;
    c10::intrusive_ptr<c10d::Store> store;  // its own
    int rank = 0, size = 0;                 // in it
  };
  Ptr make(const Members& members, const std::string& description,
           const std::vector<std::int32_t>& ranks, c10::intrusive_ptr<c10d::Backend> host,
           c10::intrusive_ptr<c10d::Backend> own);
  // What carries the device's tensors; null: Gloo does.
  c10::intrusive_ptr<c10d::Backend> make_own_transport(const Members& members,
                                                       const std::string& connection);
  // What carries the host's tensors of the group `group`.
  c10::intrusive_ptr<c10d::Backend> make_host_transport(
      const std::string& group, const c10::intrusive_ptr<c10d::Store>& store, int rank,
      int size) const;

  RankOf who_;
  std::optional<Others> others_;  // of a rank that is alone
  std::chrono::milliseconds timeout_{};
  Recorder& recorder_;
  std::unique_ptr<Device> device_;
  c10::intrusive_ptr<c10d::Store> store_;
  bool one_machine_ = false;  // all ranks are on it: connections stay on its loopback
  // Kept until the process ends: a group whose last user is gone would close its connections, and
  // ranks that wait for this one would fail on them instead of being seen to wait.
  std::vector<Ptr> made_;
  std::mutex transports_mutex_;  // guards what follows: abort_all comes from another thread
  std::vector<c10::intrusive_ptr<c10d::Backend>> transports_;  // of the device, as they were made
  Ptr world_;
  DeviceTime device_time_{[this] { return device_->mark(); }};
  std::unique_ptr<WorkWatch> watch_;  // of the device's transport; null without one
};

}  // namespace lockstep::runtime
