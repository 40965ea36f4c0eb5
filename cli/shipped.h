// The files that come with the program: examples, scenarios, machines and plans. They lie beside
// it, in the repository, in an installed prefix or in a wheel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

// The folder "examples", "scenarios", "machines" or "plans"; nothing where there is none.
// `program`: the path of this program, /proc/self/exe.
std::optional<std::string> shipped_folder(const std::string& kind, const std::string& program);
std::optional<std::string> shipped_folder(const std::string& kind);

// The names of the YAML files in such a folder, without their ending, sorted: "dgx-h100".
std::vector<std::string> shipped_names(const std::string& kind);

// `given`, or the shipped file of that name where there is no such file: "dgx-h100" is
// …/machines/dgx-h100.yaml. Errors: a name, not a path, that is neither.
Result<std::string> shipped_or_own(const std::string& kind, const std::string& given);

}  // namespace lockstep::cli
