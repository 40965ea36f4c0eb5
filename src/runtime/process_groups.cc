#include "runtime/process_groups.h"

#include <algorithm>
#include <numeric>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/check.h"
#include "runtime/record/recording_backend.h"

namespace lockstep {
namespace {

std::string done_key(int rank) { return "done/" + std::to_string(rank); }

}  // namespace

ProcessGroups::ProcessGroups(const std::string& store_file, RankOf who,
                             std::chrono::milliseconds timeout, Recorder& recorder)
    : who_(who),
      timeout_(timeout),
      recorder_(recorder),
      store_(c10::make_intrusive<c10d::FileStore>(store_file, who.world_size)) {
  store_->setTimeout(timeout_);
}

ProcessGroups::Ptr ProcessGroups::world() {
  if (!world_) world_ = make("world", "all ranks");
  return world_;
}

ProcessGroups::Ptr ProcessGroups::make(const std::string& name, const std::string& description) {
  std::vector<std::int32_t> everyone(static_cast<std::size_t>(who_.world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  return make(name, description, everyone);
}

ProcessGroups::Ptr ProcessGroups::make(const std::string& name, const std::string& description,
                                       const std::vector<std::int32_t>& ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), who_.rank);
  LOCKSTEP_CHECK(place != ranks.end(), "a rank makes a group that it is not in");
  const auto rank = static_cast<int>(place - ranks.begin());
  const auto size = static_cast<int>(ranks.size());
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(name, store_);
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
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

void ProcessGroups::announce_done() {
  store_->set(done_key(who_.rank), std::vector<std::uint8_t>{1});
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
