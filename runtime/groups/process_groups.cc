#include "runtime/groups/process_groups.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <utility>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/check.h"
#include "base/text.h"
#include "runtime/derive/torch/meta_tensors.h"
#include "runtime/record/c10d/recording_backend.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kMissingNamed = 8;

// Identifies the loopback interface: machine boot and network namespace (each container has its
// own). Processes with the same value can connect over it. Empty: unknown.
std::string loopback_of_this_process() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code unknown;
  const std::string network = std::filesystem::read_symlink("/proc/self/ns/net", unknown).string();
  return boot.empty() || network.empty() ? std::string() : boot + " " + network;
}

c10::intrusive_ptr<c10d::Store> make_store(const Rendezvous& rendezvous, RankOf who,
                                           std::chrono::milliseconds timeout) {
  if (!rendezvous.file.empty()) {
    return c10::make_intrusive<c10d::FileStore>(rendezvous.file, who.world_size);
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.port);
  options.isServer = who.rank == 0 && !rendezvous.served;
  options.numWorkers = static_cast<std::size_t>(who.world_size);
  options.waitWorkers = false;  // an agent's store counts other clients, too
  options.timeout = timeout;
  auto store = c10::make_intrusive<c10d::TCPStore>(rendezvous.host, options);
  // An agent's store still holds keys of an earlier attempt, so each attempt has its own prefix.
  return c10::make_intrusive<c10d::PrefixStore>(c10::str("lockstep/", rendezvous.attempt), store);
}

std::string key_of(const std::string& what, int rank) { return c10::str(what, "/", rank); }

std::vector<std::string> keys_of(const std::string& what, int ranks) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < ranks; ++rank) keys.push_back(key_of(what, rank));
  return keys;
}

// Waits until every rank has come, so that a missing rank is named here, instead of causing some
// later failure. Returns whether all ranks share one loopback.
bool wait_for_all(c10d::Store& store, RankOf who, std::chrono::milliseconds timeout) {
  const std::vector<std::string> keys = keys_of("here", who.world_size);
  const std::string own = loopback_of_this_process();
  store.set(key_of("here", who.rank), own.empty() ? "unknown" : own);
  try {
    store.wait(keys, timeout);
  } catch (const std::exception&) {
    std::vector<std::string> missing;
    for (int rank = 0; rank < who.world_size; ++rank) {
      if (!store.check({key_of("here", rank)})) missing.push_back(std::to_string(rank));
    }
    if (missing.empty()) throw;
    throw std::runtime_error(c10::str(missing.size() == 1 ? "rank " : "ranks ",
                                      join_and(missing, kMissingNamed), " did not come within ",
                                      timeout.count() / 1000, " s"));
  }
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& of_rank) { return store.get_to_str(of_rank) == own; });
}

// Waits until every member of a group has all its connections, as c10d's init_process_group does.
// A rank that went on and ended before would close connections that others are still making: they
// would report that instead of being seen to wait for this rank's calls.
void wait_until_connected(c10d::Store& store, int rank, int size,
                          std::chrono::milliseconds timeout) {
  store.set(key_of("connected", rank), std::vector<std::uint8_t>{1});
  store.wait(keys_of("connected", size), timeout);
}

std::unique_ptr<Device> open_cpu() {
  auto cpu = open_device({});
  LOCKSTEP_CHECK(static_cast<bool>(cpu), "the CPU is always there");
  return std::move(*cpu);
}

}  // namespace

std::vector<std::int32_t> every_nth_rank(int n, int first, int count) {
  std::vector<std::int32_t> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * n);
  return ranks;
}

ProcessGroups::ProcessGroups(const Rendezvous& rendezvous, RankOf who,
                             std::chrono::milliseconds timeout, Recorder& recorder,
                             std::unique_ptr<Device> device)
    : who_(who),
      timeout_(timeout),
      recorder_(recorder),
      device_(std::move(device)),
      store_(make_store(rendezvous, who, timeout)) {
  store_->setTimeout(timeout_);
  one_machine_ = wait_for_all(*store_, who_, timeout_);
  if (!device_) device_ = open_cpu();
  if (!device_->queues()) return;
  recorder_.follow_calls();
  device_->when_host_blocks([&recorder] { return std::make_shared<Recorder::HostWait>(recorder); });
}

ProcessGroups::ProcessGroups(Others others, RankOf who, Recorder& recorder, bool on_meta)
    : who_(who),
      others_(std::move(others)),
      recorder_(recorder),
      device_(on_meta ? meta_device() : open_cpu()),
      store_(c10::make_intrusive<c10d::HashStore>()) {}

ProcessGroups::Ptr ProcessGroups::world() {
  if (!world_) world_ = make("world", "all ranks");
  return world_;
}

ProcessGroups::Ptr ProcessGroups::make(const std::string& name, const std::string& description) {
  return make(name, description, every_nth_rank(1, 0, who_.world_size));
}

ProcessGroups::Ptr ProcessGroups::make(const std::string& name, const std::string& description,
                                       const std::vector<std::int32_t>& ranks) {
  return make(name, description, ranks, Transport());
}

ProcessGroups::Ptr ProcessGroups::make(const std::string& name, const std::string& description,
                                       const std::vector<std::int32_t>& ranks,
                                       const Transport& transport) {
  const auto position = std::find(ranks.begin(), ranks.end(), who_.rank);
  LOCKSTEP_CHECK(position != ranks.end(), "a rank makes a group that it is not in");
  const Recorder::Blocked connecting(recorder_, "the connections of a group");
  const Members members{name, c10::make_intrusive<c10d::PrefixStore>(name, store_),
                        static_cast<int>(position - ranks.begin()), static_cast<int>(ranks.size())};
  const auto make_host = [&](const std::string& connection) {
    c10::intrusive_ptr<c10d::Store> store = members.store;
    if (!connection.empty()) store = c10::make_intrusive<c10d::PrefixStore>(connection, store);
    const std::string group = name + connection;
    return device_->around_gloo(make_host_transport(group, store, members.rank, members.size),
                                group);
  };
  if (!transport) {
    auto host = make_host({});
    return make(members, description, ranks, std::move(host), make_own_transport(members, {}));
  }
  auto carrier = transport([&](const std::string& connection) {
    auto own = make_own_transport(members, connection);
    return own ? own : make_host(connection);
  });
  if (device_->torch_device().is_cpu())
    return make(members, description, ranks, std::move(carrier), {});
  return make(members, description, ranks, {}, std::move(carrier));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroups::make_own_transport(const Members& members,
                                                                    const std::string& connection) {
  const auto store = c10::make_intrusive<c10d::PrefixStore>("device" + connection, members.store);
  auto own = device_->make_transport(store, members.rank, members.size, timeout_);
  if (own) {
    const std::lock_guard lock(transports_mutex_);
    transports_.push_back(own);
  }
  return own;
}

ProcessGroups::Ptr ProcessGroups::make(const Members& members, const std::string& description,
                                       const std::vector<std::int32_t>& ranks,
                                       c10::intrusive_ptr<c10d::Backend> host,
                                       c10::intrusive_ptr<c10d::Backend> own) {
  using Type = c10d::ProcessGroup::BackendType;
  const auto kind = device_->torch_device().type();
  auto group =
      kind == c10::DeviceType::Meta
          ? Ptr(c10::make_intrusive<DirectGroup>(members.store, members.rank, members.size))
          : c10::make_intrusive<c10d::ProcessGroup>(members.store, members.rank, members.size);
  group->setDefaultBackend(own ? Type::NCCL : Type::GLOO);
  // On a device that queues calls, completions are polled (WorkWatch).
  std::optional<RecordingBackend::OnDevice> on_device;
  if (device_->queues()) {
    if (!watch_) watch_ = std::make_unique<WorkWatch>(recorder_, device_->begun());
    on_device.emplace(
        RecordingBackend::OnDevice{*watch_, device_time_, [this] { return device_->mark(); }});
  }
  // Gloo: for tensors on the host; beside NCCL under a name of its own, because the two backends
  // count their calls apart. Without NCCL, also for tensors on a GPU.
  if (host) {
    const auto recorded = c10::make_intrusive<RecordingBackend>(
        std::move(host), recorder_,
        RecordingBackend::Group{own ? members.name + ".host" : members.name, ranks, description},
        own ? std::nullopt : on_device);
    group->setBackend(c10::DeviceType::CPU, Type::GLOO, recorded);
    if (!own && kind == c10::DeviceType::CUDA) group->setBackend(kind, Type::GLOO, recorded);
  }
  if (own) {
    const auto recorded = c10::make_intrusive<RecordingBackend>(
        std::move(own), recorder_, RecordingBackend::Group{members.name, ranks, description},
        on_device);
    recorded->setBoundDeviceId(device_->torch_device());
    group->setBackend(kind, Type::NCCL, recorded);
  }
  group->setGroupName(members.name);
  made_.push_back(group);
  return group;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroups::make_host_transport(
    const std::string& group, const c10::intrusive_ptr<c10d::Store>& store, int rank,
    int size) const {
  if (others_) return c10::make_intrusive<InstantBackend>(group, rank, size, *others_);
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
  // As c10d does for several machines: the interface of GLOO_SOCKET_IFNAME, else that of the host
  // name.
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  } else if (one_machine_) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  }
  options->threads = 1;
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  wait_until_connected(*store, rank, size, timeout_);
  return gloo;
}

void ProcessGroups::require_same(const std::string& what, const std::string& value) {
  if (others_) return;
  if (who_.rank == 0) return store_->set("same/" + what, value);
  const Recorder::Blocked asking(recorder_, "rank 0, in the store");
  const std::string theirs = store_->get_to_str("same/" + what);
  if (theirs == value) return;
  throw std::runtime_error(
      c10::str(what, " is ", value, " on rank ", who_.rank, ", and ", theirs, " on rank 0"));
}

void ProcessGroups::announce(const std::string& what) {
  try {
    store_->set(key_of(what, who_.rank), std::vector<std::uint8_t>{1});
  } catch (const std::exception&) {  // rank 0 served the store and is gone
  }
}

bool ProcessGroups::wait_until_announced(const std::string& what,
                                         const std::vector<std::int32_t>& ranks,
                                         std::chrono::milliseconds timeout) {
  if (others_) return true;
  std::vector<std::string> keys;
  for (const std::int32_t rank : ranks) keys.push_back(key_of(what, rank));
  try {
    store_->wait(keys, timeout);
    return true;
  } catch (const std::exception&) {
    return false;  // a rank is gone or stuck; its own trace says why
  }
}

void ProcessGroups::shut_down() {
  watch_.reset();
  std::unique_lock lock(transports_mutex_);
  const auto transports = std::exchange(transports_, {});
  lock.unlock();
  for (auto it = transports.rbegin(); it != transports.rend(); ++it) (*it)->shutdown();
}

void ProcessGroups::abort_all() {
  std::unique_lock lock(transports_mutex_);
  const auto transports = transports_;
  lock.unlock();
  for (auto it = transports.rbegin(); it != transports.rend(); ++it) (*it)->abort();
}

void ProcessGroups::announce_done() { announce("done"); }

bool ProcessGroups::wait_until_all_are_done(std::chrono::milliseconds timeout) {
  return wait_until_announced("done", every_nth_rank(1, 0, who_.world_size), timeout);
}

}  // namespace lockstep::runtime
