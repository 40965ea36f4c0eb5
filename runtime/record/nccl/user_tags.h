// UserTags: what the tags stand for that a program gives its calls (NCCL 2.31, 64 bits each), so
// that the names of parameters come through an unmodified NCCL.
//
// The file is the program's, written before its first communicator: lines of a number, decimal or
// 0x…, and behind it the names of the parameters that a call with this tag carries, all separated
// by blanks:
//
//   17 image.conv1.weight image.conv1.bias
//
// Other lines are passed by. A tag that is not in the file is recorded as the call's tag, by its
// number.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/record/nccl/communicator.h"

namespace lockstep {

class UserTags {
 public:
  // `file` null, or one that cannot be read: no tag has names; the latter is said on standard
  // error.
  explicit UserTags(const char* file);
  UserTags(UserTags&& other) noexcept : names_(std::move(other.names_)) {}

  // What is recorded for the tag in that ring file; 0: nothing. From any thread.
  CallLabel of(RingWriter& ring, std::uint64_t tag);

 private:
  static constexpr std::size_t kMostKnown =
      65'536;  // labels; of more tags, names alone are looked up
  std::unordered_map<std::uint64_t, std::vector<std::string>> names_;
  std::mutex mutex_;
  std::map<std::pair<const RingWriter*, std::uint64_t>, CallLabel> known_;
};

}  // namespace lockstep
