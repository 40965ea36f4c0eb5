// Whether somebody writes a ring file at this moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// The process of this machine that writes the ring file: the one that its header names, where the
// kernel says that it has the file mapped. So a number that another process has got since is not
// taken for it. Nothing: nobody does, it is no ring file, or the system does not tell.
std::optional<std::int64_t> ring_file_writer(const std::string& path);

}  // namespace lockstep
