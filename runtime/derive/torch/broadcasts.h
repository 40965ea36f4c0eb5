// The broadcasts of a root, stored for the ranks that run after it. Programs branch on some of
// them: DDP's buckets are rank 0's, and a batch may come from rank 0. So are its overflows.
//
// Only integers are stored: other trained values do not decide which calls follow.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/result.h"

namespace lockstep::runtime {

class Broadcasts {
 public:
  // Group, and index among the broadcasts of that group.
  using Key = std::pair<std::string, std::uint64_t>;

  // Errors: the file cannot be read, or was not written by us.
  static Result<Broadcasts> read(const std::string& file);
  // Replaces the file atomically. Errors: it cannot be written.
  Status write(const std::string& file) const;

  void keep(Key key, std::string bytes) { kept_[std::move(key)] = std::move(bytes); }
  // Null if that root was not recorded, or sent something else.
  const std::string* find(const Key& key) const;

 private:
  std::map<Key, std::string> kept_;
};

}  // namespace lockstep::runtime
