// What the targets of the three forms of a data set share.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/manifest.h"

namespace lockstep {

// A folder for one process, with two small pictures in it: a.png, sub/b.png. Removed at the end.
const std::string& fuzz_data_folder();

// Writes a file of that name into the folder; its path.
std::string fuzz_data_file(std::string_view name, std::string_view bytes);

// Opens `source` as a data set. Everything in it can be looked at, each item can be loaded or says
// why not, and every error says something.
void fuzz_manifest(const std::string& source);

}  // namespace lockstep
