#include "runtime/process_groups.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/check.h"
#include "runtime/record/recording_backend.h"

namespace lockstep {
namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
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
  return c10::make_intrusive<c10d::PrefixStore>("lockstep", store);
}

std::string done_key(int rank) { return "done/" + std::to_string(rank); }

}  // namespace

std::vector<std::int32_t> every_nth_rank(int n, int first, int count) {
  std::vector<std::int32_t> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * n);
  return ranks;
}

ProcessGroups::ProcessGroups(const Rendezvous& rendezvous, RankOf who,
                             std::chrono::milliseconds timeout, Recorder& recorder)
    : who_(who),
      timeout_(timeout),
      recorder_(recorder),
      store_(make_store(rendezvous, who, timeout)),
      one_machine_(!rendezvous.file.empty() || is_loopback(rendezvous.host)) {
  store_->setTimeout(timeout_);
}

ProcessGroups::Ptr ProcessGroups::world() {
  if (!world_) world_ = make("world", "all ranks");
  return world_;
}

ProcessGroups::Ptr ProcessGroups::make(const std::string& name, const std::string& description) {
  return make(name, description, every_nth_rank(1, 0, who_.world_size));
}

ProcessGroups::Ptr ProcessGroups::make(const std::string& name, const std::string& description,
                                       const std::vector<std::int32_t>& ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), who_.rank);
  LOCKSTEP_CHECK(place != ranks.end(), "a rank makes a group that it is not in");
  const auto rank = static_cast<int>(place - ranks.begin());
  const auto size = static_cast<int>(ranks.size());
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(name, store_);
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
  // As c10d does for several machines: GLOO_SOCKET_IFNAME's interface, else that of the host's
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
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, rank, size, options);
  const auto recording = c10::make_intrusive<RecordingBackend>(
      gloo, recorder_, RecordingBackend::Group{name, ranks, description});

  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, rank, size);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, recording);
  group->setGroupName(name);
  made_.push_back(group);
  return group;
}

void ProcessGroups::require_same(const std::string& what, const std::string& value) {
  if (who_.rank == 0) return store_->set("same/" + what, value);
  const std::string theirs = store_->get_to_str("same/" + what);
  if (theirs == value) return;
  throw std::runtime_error(what + " is " + value + " on rank " + std::to_string(who_.rank) +
                           ", and " + theirs + " on rank 0");
}

void ProcessGroups::announce_done() {
  try {
    store_->set(done_key(who_.rank), std::vector<std::uint8_t>{1});
  } catch (const std::exception&) {  // rank 0 served the store, and is gone
  }
}

bool ProcessGroups::wait_until_all_are_done(std::chrono::milliseconds patience) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < who_.world_size; ++rank) keys.push_back(done_key(rank));
  try {
    store_->wait(keys, patience);
    return true;
  } catch (const std::exception&) {
    return false;  // a rank is gone or stuck: its own trace says why
  }
}

}  // namespace lockstep
