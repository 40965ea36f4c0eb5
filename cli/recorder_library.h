// Which recorder a job needs: the Python that its command starts, the torch in it, and the
// liblockstep_record.so that was built for that torch.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep::cli {

// The file that the shell would run. Empty: none.
std::string found_in_path(const std::string& program);

// The Python that runs `program`: itself, or the one in the first line of a script such as
// torchrun. Empty: neither.
std::string python_of(const std::string& program);

// The version of the torch that a Python has, as the recorder knows it ("2.15.0"). torch is not
// imported: that takes seconds. Errors: there is none.
Result<std::string> torch_version_of(const std::string& python);

// The recorder's path: the one that the user named (`named`; empty: none), one that is next to
// this program, or one that is built now, which takes minutes. `torch`: its version. Errors: none
// is for that torch.
Result<std::string> recorder_for(const std::string& named, const std::string& python,
                                 const std::string& torch);

}  // namespace lockstep::cli
