#include "runtime/launch/shared_segments.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/files/read_file.h"

namespace lockstep::runtime {

namespace {

namespace fs = std::filesystem;

// A process that creates a segment maps it at once. One that was looked for this often and never
// seen in a process of ours belongs to another job.
constexpr int kMaxLooks = 40;
constexpr std::size_t kMaxMaps = std::size_t{64} << 20U;

bool is_of_a_rank(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kBeginnings = {"nccl-", "torch_", "gloo",
                                                                  "cuda.shm."};
  return std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
}

// The files of the folder that the process has mapped or open.
//   /proc/PID/maps: "7f12…-7f13… rw-s 00000000 00:19 42  /dev/shm/nccl-AbCdEf"
std::set<std::string> held_by(pid_t process, const std::string& folder) {
  std::set<std::string> out;
  const std::string proc = fmt::format("/proc/{}", process);
  const std::string prefix = folder + "/";
  const auto maps = read_file(proc + "/maps", kMaxMaps);
  const std::string_view text = maps ? std::string_view(*maps) : std::string_view();
  for (std::size_t at = text.find(prefix); at != std::string_view::npos;
       at = text.find(prefix, at + 1)) {
    const std::size_t begin = at + prefix.size();
    out.emplace(text.substr(begin, text.find('\n', begin) - begin));
  }
  std::error_code failed;
  for (fs::directory_iterator it(proc + "/fd", failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code unreadable;
    const std::string file = fs::read_symlink(it->path(), unreadable).string();
    if (!unreadable && file.starts_with(prefix)) out.insert(file.substr(prefix.size()));
  }
  return out;
}

}  // namespace

SharedSegments::SharedSegments(std::string folder) : folder_(std::move(folder)) {
  for (const auto& [name, segment] : listed()) before_.insert(name);
}

std::map<std::string, SharedSegments::Segment> SharedSegments::listed() const {
  std::map<std::string, Segment> out;
  std::error_code failed;
  for (fs::directory_iterator it(folder_, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    struct stat file {};
    if (!is_of_a_rank(name) || lstat(it->path().c_str(), &file) != 0) continue;
    if (S_ISREG(file.st_mode) && file.st_uid == geteuid()) {
      out[name] = {file.st_dev, file.st_ino, 0, false};
    }
  }
  return out;
}

void SharedSegments::look(const std::vector<pid_t>& processes, bool closely) {
  std::vector<std::pair<const std::string, Segment>*> unknown;
  for (const auto& [name, segment] : listed()) {
    if (before_.count(name) != 0) continue;
    Segment& known = known_.try_emplace(name, segment).first->second;
    // A new segment under an old name.
    if (known.inode != segment.inode || known.device != segment.device) known = segment;
    if (known.ours || (known.looks++ >= kMaxLooks && !closely)) continue;
    unknown.push_back(&*known_.find(name));
  }
  if (unknown.empty()) return;
  for (const pid_t process : processes) {
    const std::set<std::string> held = held_by(process, folder_);
    for (auto* segment : unknown) {
      if (held.count(segment->first) != 0) segment->second.ours = true;
    }
  }
}

std::vector<std::string> SharedSegments::remove() {
  std::vector<std::string> out;
  for (const auto& [name, segment] : listed()) {
    const auto known = known_.find(name);
    // Remove a segment only if it is still the file that our process had.
    if (known == known_.end() || !known->second.ours || known->second.inode != segment.inode ||
        known->second.device != segment.device)
      continue;
    if (unlink(fmt::format("{}/{}", folder_, name).c_str()) == 0) out.push_back(name);
  }
  return out;
}

}  // namespace lockstep::runtime
