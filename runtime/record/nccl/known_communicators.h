// KnownCommunicators: which recorder belongs to an ncclComm_t, by how it was made.
//
// All processes of a communicator give it one name: a hash of its ncclUniqueId; of one that was
// split off, the parent's name, the count of the parent's splits, and the color, since all ranks of
// the parent make each split. Place and size come from the arguments or, where only NCCL knows them
// (a split, perhaps one that completes later), are asked for at the first call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "runtime/record/nccl/job_record.h"
#include "runtime/record/nccl/nccl_interface.h"

namespace lockstep::runtime {

class KnownCommunicators {
 public:
  struct GroupMember {
    int group_rank = 0, size = 0;
  };
  // What NCCL says of a communicator; nothing: it does not know yet.
  using Ask = std::function<std::optional<GroupMember>(nccl::Comm)>;
  // `job` outlives this.
  KnownCommunicators(NcclJobRecord& job, Ask ask) : job_(job), ask_(std::move(ask)) {}

  // A communicator by its ids, of which all processes give the same.
  static std::string name_of(std::span<const nccl::UniqueId> ids);

  void made(nccl::Comm comm, std::string name, GroupMember group_rank);
  // The name of the next communicator that is made from `parent` by all of its ranks, or all that
  // stay: "split" and the color, or "shrink". Empty: the parent is not known.
  std::string child_name(nccl::Comm parent, const char* how, std::optional<int> color);
  // The place is asked for later.
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
  void open(Known& known, GroupMember group_rank);

  NcclJobRecord& job_;
  const Ask ask_;
  std::shared_mutex mutex_;
  std::unordered_map<nccl::Comm, Known> known_;
};

}  // namespace lockstep::runtime
