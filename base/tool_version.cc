#include "base/tool_version.h"

namespace lockstep {

std::string_view tool_version() { return "lockstep " LOCKSTEP_VERSION; }

}  // namespace lockstep
