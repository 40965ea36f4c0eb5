// tar archives, by libarchive: their regular files, one at a time in memory. Bounded.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// Recognised by the magic of POSIX (ustar) and GNU tar.
bool looks_like_tar(std::string_view bytes);

struct ArchiveMember {
  std::string name;  // as in the archive; never used as a path
  std::string bytes;
  bool truncated = false;  // the archive is cut off or damaged in this member, or right after it
};

// Calls `use` for each regular file in the archive, in its order, with one member in memory at a
// time. `truncated`: the end of the archive is known to be missing, so its last member is
// truncated, too. All members together take no more memory than the archive: sparse files are not
// expanded. Damage is not an error: what came before it is used. Errors: not a tar archive.
Status for_each_member(std::string_view bytes, const std::string& file, bool truncated,
                       const std::function<void(const ArchiveMember&)>& use);

}  // namespace lockstep
