// tar archives, through libarchive: their regular files, unpacked into memory. Bounded.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

// By the magic of POSIX (ustar) and GNU tar.
bool looks_like_tar(std::string_view bytes);

struct ArchiveMember {
  std::string name;  // as in the archive; never used as a path
  std::string bytes;
};
struct Archive {
  std::vector<ArchiveMember> members;  // regular files, in the archive's order
  bool truncated = false;              // cut off or damaged: what came before is there
};

// Errors: not a tar archive. Members never take more memory than the archive itself: sparse files
// are not expanded.
Result<Archive> read_tar(std::string_view bytes, const std::string& file);

}  // namespace lockstep
