// ProcessGroups: this rank's process groups, each behind a RecordingBackend, and the store through
// which the ranks find each other.
//
// A group carries host tensors by Gloo. For tensors of a device, the device decides (device.h): by
// Gloo as well, in the same sequence of calls; or by NCCL. Then NCCL's sequence is the group's in
// the trace, and the host's is recorded as the group "<name>.host".
#pragma once

#include <chrono>
#include <functional>
#include <memory>
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

// The rendezvous of the ranks.
struct Rendezvous {
  Rendezvous(std::string store_file)
      : file(std::move(store_file)) {}  // not explicit: most have one
  Rendezvous(std::string master, int master_port, bool is_served, int which_attempt)
      : host(std::move(master)), port(master_port), served(is_served), attempt(which_attempt) {}

  std::string file;  // empty: a TCPStore at host:port
  std::string host;
  int port = 0;
  bool served = false;  // by somebody else; otherwise rank 0 serves it
  int attempt = 0;      // number of restarts of the ranks with the same store
};

class ProcessGroups {
 public:
  using Ptr = c10::intrusive_ptr<c10d::ProcessGroup>;

  // Groups of a rank that runs alone: calls complete at once
  // (runtime/derive/torch/instant_backend.h), and are recorded like any others. On the CPU, or on
  // the meta device.
  ProcessGroups(Others others, RankOf who, Recorder& recorder, bool on_meta = false);

  // `timeout`: for the rendezvous and for every collective. `recorder` must outlive the groups.
  // `device` null: the CPU. Throws what c10d throws if the store cannot be reached.
  ProcessGroups(const Rendezvous& rendezvous, RankOf who, std::chrono::milliseconds timeout,
                Recorder& recorder, std::unique_ptr<Device> device = nullptr);

  // The group "world" of all ranks. The first call creates it: collective.
  Ptr world();
  // Creates a group with its own connections: collective over its members, which must create their
  // groups in the same order. Throws what c10d throws if the others do not come.
  Ptr make(const std::string& name, const std::string& description);  // of all ranks
  // The same for `ranks` (ascending, distinct), which must include this one.
  Ptr make(const std::string& name, const std::string& description,
           const std::vector<std::int32_t>& ranks);

  // Connects the members of the group that is being created, with the transport for this device's
  // tensors. `name`: of the connection; a group may have several. Collective over the members.
  using Connect = std::function<c10::intrusive_ptr<c10d::Backend>(const std::string& name)>;
  // Creates the backend behind the recorder, if it is not simply one connection.
  using Transport = std::function<c10::intrusive_ptr<c10d::Backend>(const Connect&)>;
  // The group carries only this device's tensors.
  Ptr make(const std::string& name, const std::string& description,
           const std::vector<std::int32_t>& ranks, const Transport& transport);

  // Compares a value with rank 0's, through the store, not by a collective. Throws
  // std::runtime_error with both values if they differ (but not on rank 0), and what c10d throws if
  // rank 0 is gone.
  void require_same(const std::string& what, const std::string& value);

  // Announces to the others, through the store, that this rank has reached `what`.
  void announce(const std::string& what);
  // Waits until all of `ranks` have announced it. Not a collective, so it does not interfere with
  // the ranks' calls. False if `timeout` ran out.
  bool wait_until_announced(const std::string& what, const std::vector<std::int32_t>& ranks,
                            std::chrono::milliseconds timeout);

  // The same for the end of a rank's program.
  void announce_done();
  bool wait_until_all_are_done(std::chrono::milliseconds timeout);

  // Shuts down the groups, the last one first. Call it when everything that this rank called is
  // complete and the others are done (wait_until_all_are_done). The groups must not be used
  // afterwards; completions are not recorded any more.
  void shut_down();
  // Aborts what is in flight on a device (ncclCommAbort), so that a blocked thread may continue.
  // From any thread; may block if the device does not answer. A wait for an aborted call may throw.
  void abort_all();

  RankOf who() const { return who_; }
  bool alone() const { return others_.has_value(); }
  const Device& device() const { return *device_; }
  // Computing time of a device that queues calls; time spent in the groups' calls is left out.
  // Other devices have none.
  DeviceTime& device_time() { return device_time_; }

 private:
  // A group that is being created.
  struct Members {
    std::string name;
    c10::intrusive_ptr<c10d::Store> store;  // its own
    int rank = 0, size = 0;                 // in it
  };
  Ptr make(const Members& members, const std::string& description,
           const std::vector<std::int32_t>& ranks, c10::intrusive_ptr<c10d::Backend> host,
           c10::intrusive_ptr<c10d::Backend> own);
  // The transport for the device's tensors; null: Gloo carries them.
  c10::intrusive_ptr<c10d::Backend> make_own_transport(const Members& members,
                                                       const std::string& connection);
  // The transport for host tensors of the group `group`.
  c10::intrusive_ptr<c10d::Backend> make_host_transport(
      const std::string& group, const c10::intrusive_ptr<c10d::Store>& store, int rank,
      int size) const;

  RankOf who_;
  std::optional<Others> others_;  // set if this rank runs alone
  std::chrono::milliseconds timeout_{};
  Recorder& recorder_;
  std::unique_ptr<Device> device_;
  c10::intrusive_ptr<c10d::Store> store_;
  bool one_machine_ = false;  // all ranks are on it: connections use its loopback
  // Kept until the process ends. If a group's last reference were dropped, its connections would
  // close, and ranks that wait for this one would fail on them instead of being seen to wait.
  std::vector<Ptr> made_;
  std::mutex transports_mutex_;  // guards what follows: abort_all comes from another thread
  std::vector<c10::intrusive_ptr<c10d::Backend>> transports_;  // of the device, as they were made
  Ptr world_;
  DeviceTime device_time_{[this] { return device_->mark(); }};
  std::unique_ptr<WorkWatch> watch_;  // of the device's transport; null without one
};

}  // namespace lockstep::runtime
