// NcclJobRecord: the ring files of a process that uses NCCL, for programs that know nothing of
// Lockstep.
//
//   LOCKSTEP_RECORD_DIR       where the ring files go; not set: nothing is recorded, said once
//   LOCKSTEP_RECORD_EVENTS    how many of the newest events are kept (default 131072, 8 MiB)
//   LOCKSTEP_RECORD_HUNG_AFTER  seconds without any event, while a call is on the device, after
//                             which the end mark says `hung` until something moves (default 60;
//                             0: never); see
//                             trace/formats/ring/hang_watch.h
//
// A process has one rank, that of its launcher (base/launcher.h), and one file. Where no launcher
// says so, or the first communicator is larger than the launcher's number of processes (several
// devices in each), the first communicator is taken for that of all ranks: its group ranks are the
// ranks, each with a file of its own.
//
// Whatever fails is said on standard error, once, and that much is not recorded: the job goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/launcher.h"
#include "runtime/record/nccl/communicator.h"
#include "runtime/record/nccl/nccl_interface.h"
#include "trace/formats/ring/hang_watch.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::runtime {

class NcclJobRecord {
 public:
  // `library`: what messages begin with.
  NcclJobRecord(std::string library, Environment get);

  // The process's: never destroyed, since calls may come until the process is gone. The end mark
  // says whether the program exited with 0; a process that is killed leaves none.
  static NcclJobRecord& of_process(const char* library);
  // The process ends by _exit(), which runs no handlers. Only a good end is marked: others come
  // from whoever ends a hung process, often in the handler of a signal.
  static void at_immediate_exit(int status);

  // The recorder of the communicator that all its processes call `name`, in which this one has
  // `group_rank`. The same name and group rank again give the same recorder. `parent`: what it was
  // split off; null: none, or not known. Null: it is not recorded. The recorder stays valid as long
  // as this.
  struct Opening {
    std::string name, desc;
    std::int64_t group_rank = 0, size = 0;
    const Communicator* parent = nullptr;
    std::optional<int> device = std::nullopt;  // its GPU, by CUDA's index in this process
  };
  Communicator* open(const Opening& opening);

  // Writes the end mark into all files that have none.
  void finish(trace::End end);
  // Looks once whether ranks hang, and marks their files. `now`: ns.
  void look_for_hangs(std::int64_t now);
  // True where at least one file was made.
  bool records();

 private:
  struct Lane : RecordedRank {
    std::optional<trace::HangWatch> hang;
  };

  void warn_once(const char* kind, const std::string& what);
  bool begin(const Opening& first);
  Lane* lane_of(const Opening& opening);
  Lane& make_lane(std::int32_t rank);
  void start_watcher();
  static void at_exit(int status, void* job);

  const std::string library_;
  const Environment get_;
  const double hung_after_;  // seconds; 0: never
  std::mutex mutex_;
  std::set<std::string> warned_;
  bool has_watcher_ = false;  // of hangs: the process's only
  enum class State : std::uint8_t { fresh, recording, refused } state_ = State::fresh;
  std::string folder_;
  std::uint64_t capacity_;
  std::optional<LaunchedRank> launched_;
  std::string world_;  // the first communicator's name, where its group ranks are the ranks
  std::int32_t world_size_ = 0;
  std::map<std::int32_t, Lane> lanes_;  // by rank
  std::map<std::pair<std::string, std::int32_t>, std::unique_ptr<Communicator>> communicators_;
  std::map<const Communicator*, Lane*> lane_of_communicator_;
};

// KnownCommunicators: which recorder belongs to an ncclComm_t, by how it was made.
//
// All processes of a communicator give it one name: a hash of its ncclUniqueId; of one that was
// split off, the parent's name, the count of the parent's splits, and the color, since all ranks of
// the parent make each split. Group rank and size come from the arguments or, where only NCCL knows
// them (a split, perhaps one that completes later), are asked for at the first call.

class KnownCommunicators {
 public:
  struct GroupMember {
    int group_rank = 0, size = 0;
    std::optional<int> device = std::nullopt;  // by CUDA's index
  };
  // What NCCL says of a communicator; nothing: it does not know yet.
  using Ask = std::function<std::optional<GroupMember>(nccl::Comm)>;
  // `job` outlives this.
  KnownCommunicators(NcclJobRecord& job, Ask ask) : job_(job), ask_(std::move(ask)) {}

  // The name of a communicator, from its ids: the same in all its processes.
  static std::string name_of(std::span<const nccl::UniqueId> ids);

  void made(nccl::Comm comm, std::string name, GroupMember member);
  // The name of the next communicator that is made from `parent` by all of its ranks, or all that
  // stay: "split" and the color, or "shrink". Empty: the parent is not known.
  std::string child_name(nccl::Comm parent, const char* how, std::optional<int> color);
  // The group rank is asked for later.
  void made_from(nccl::Comm comm, std::string name, nccl::Comm parent);
  void gone(nccl::Comm comm);

  // Null: it is not recorded.
  Communicator* find(nccl::Comm comm);

 private:
  struct Known {
    std::string name;
    Communicator* recorder = nullptr;
    Communicator* parent = nullptr;
    bool tried = false;                   // to open the recorder
    std::map<std::string, int> children;  // how often, by `how`
  };
  void open(Known& known, GroupMember member);

  NcclJobRecord& job_;
  const Ask ask_;
  std::shared_mutex mutex_;
  std::unordered_map<nccl::Comm, Known> known_;
};

}  // namespace lockstep::runtime
