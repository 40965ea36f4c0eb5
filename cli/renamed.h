// Commands and options that had other names in the release before this one.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

struct Renamed {
  std::vector<std::string> arguments;  // as this release takes them
  std::string note;  // what to write from now on; empty: nothing in them has another name now
};

// `arguments`: what follows the program's name. The old names work until the next release.
Renamed with_new_names(std::vector<std::string> arguments);

}  // namespace lockstep::cli
