// What a root broadcasts, kept for the ranks that are looked at after it: programs decide by some
// of it (DDP's buckets are those of rank 0, a batch may come from rank 0).
//
// Only whole numbers are kept: values that are trained decide nothing about the calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

class Broadcasts {
 public:
  // By group and by place among the broadcasts of that group.
  using Key = std::pair<std::string, std::uint64_t>;

  // Errors: the file cannot be read, or is no file of ours.
  static Result<Broadcasts> read(const std::string& file);
  // The file is replaced as a whole. Errors: it cannot be written.
  Status write(const std::string& file) const;

  void keep(Key key, std::string bytes) { kept_[std::move(key)] = std::move(bytes); }
  // Null where that root was not looked at, or sent something else.
  const std::string* find(const Key& key) const;

 private:
  std::map<Key, std::string> kept_;
};

}  // namespace lockstep::runtime
