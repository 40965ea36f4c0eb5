// What one run left on disk, and its way back through the project's own readers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify::injection {

using Files = std::map<std::string, std::string>;  // content by name

// Trace texts, of the ranks 0, 1, ….
Files trace_files(const std::vector<std::string>& texts);

// Reads text traces or dumps as load_run does, without a disk. A file that cannot be read is a
// defect of whoever wrote it here: it is left out and named in Run::unreadable.
// `written`: when the files of dumps were, in nanoseconds since 1970.
trace::Run read_files(const Files& files, trace::Nanos written = trace::kNoTime);

}  // namespace lockstep::verify::injection
