#include "runtime/record/nccl/known_communicators.h"

#include <array>
#include <charconv>
#include <mutex>
#include <utility>

namespace lockstep::runtime {

std::string KnownCommunicators::name_of(std::span<const nccl::UniqueId> ids) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const nccl::UniqueId& id : ids) {
    for (const char c : id.internal) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16).ptr;
  return "comm 0x" + std::string(digits.data(), end);
}

void KnownCommunicators::open(Known& known, GroupMember group_rank) {
  known.tried = true;
  known.recorder =
      job_.open({known.name, {}, group_rank.group_rank, group_rank.size, known.parent});
}

void KnownCommunicators::made(nccl::Comm comm, std::string name, GroupMember group_rank) {
  const std::unique_lock lock(mutex_);
  Known& known = known_[comm] = {};
  known.name = std::move(name);
  open(known, group_rank);
}

std::string KnownCommunicators::child_name(nccl::Comm parent, const char* how,
                                           std::optional<int> color) {
  const std::unique_lock lock(mutex_);
  const auto known = known_.find(parent);
  if (known == known_.end() || known->second.name.empty()) return {};
  std::string name =
      known->second.name + "/" + how + " " + std::to_string(known->second.children[how]++);
  if (color) name += "." + std::to_string(*color);
  return name;
}

void KnownCommunicators::made_from(nccl::Comm comm, std::string name, nccl::Comm parent) {
  const std::unique_lock lock(mutex_);
  const auto from = known_.find(parent);
  Communicator* const recorder = from != known_.end() ? from->second.recorder : nullptr;
  Known& known = known_[comm] = {};
  known.name = std::move(name);
  known.parent = recorder;
}

void KnownCommunicators::gone(nccl::Comm comm) {
  const std::unique_lock lock(mutex_);
  const auto known = known_.find(comm);
  if (known == known_.end()) return;
  if (known->second.recorder != nullptr) known->second.recorder->close();
  known_.erase(known);
}

Communicator* KnownCommunicators::find(nccl::Comm comm) {
  {
    const std::shared_lock lock(mutex_);
    const auto known = known_.find(comm);
    if (known == known_.end()) return nullptr;
    if (known->second.tried) return known->second.recorder;
  }
  const std::optional<GroupMember> group_rank = ask_(comm);
  const std::unique_lock lock(mutex_);
  const auto known = known_.find(comm);
  if (known == known_.end()) return nullptr;
  if (!known->second.tried && group_rank) open(known->second, *group_rank);
  return known->second.recorder;
}

}  // namespace lockstep::runtime
