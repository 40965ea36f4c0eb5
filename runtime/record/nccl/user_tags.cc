#include "runtime/record/nccl/user_tags.h"

#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace lockstep {
namespace {

constexpr std::streamoff kLargestFile = 64 << 20;

bool number_of(std::string_view text, std::uint64_t& out) {
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

UserTags::UserTags(const char* file) {
  if (file == nullptr || *file == '\0') return;
  std::ifstream lines(file, std::ios::binary | std::ios::ate);
  if (!lines || lines.tellg() > kLargestFile) {
    std::fprintf(stderr,
                 "liblockstep_nccl_profiler: the tags have no names: LOCKSTEP_RECORD_TAGS names a "
                 "file that cannot be read, or that is larger than 64 MiB\n");
    return;
  }
  lines.seekg(0);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t tag = 0;
    if (!(words >> word) || !number_of(word, tag)) continue;
    std::vector<std::string>& names = names_[tag];
    names.clear();
    while (words >> word) names.push_back(word);
  }
}

CallLabel UserTags::of(RingWriter& ring, std::uint64_t tag) {
  if (tag == 0) return {};
  const std::lock_guard lock(mutex_);
  const std::pair key(static_cast<const RingWriter*>(&ring), tag);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  CallLabel label;
  if (const auto names = names_.find(tag); names != names_.end()) {
    label.what = ring.intern_names(names->second);
  } else if (known_.size() < kMostKnown) {
    label.tag = ring.intern(std::to_string(tag));
  }
  if (known_.size() < kMostKnown) known_.emplace(key, label);
  return label;
}

}  // namespace lockstep
