// A tar archive in memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::runtime {

// An archive of the members (name, bytes), in order, in POSIX pax form.
std::string tar_bytes(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace lockstep::runtime
