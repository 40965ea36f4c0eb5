// tar archives, through libarchive: their regular files, one at a time in memory. Bounded.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// By the magic of POSIX (ustar) and GNU tar.
bool looks_like_tar(std::string_view bytes);

struct ArchiveMember {
  std::string name;  // as in the archive; never used as a path
  std::string bytes;
  bool truncated = false;  // the archive was cut off or is damaged in it, or right behind it
};

// Calls `use` for each regular file in the archive, in its order, with one member in memory at a
// time. `truncated`: the archive's own end is known to be missing; then its last member is, too.
// Members never take more memory than the archive itself, all together: sparse files are not
// expanded. Damage is not an error: what came before it is used.
// Errors: not a tar archive.
Status for_each_member(std::string_view bytes, const std::string& file, bool truncated,
                       const std::function<void(const ArchiveMember&)>& use);

}  // namespace lockstep
