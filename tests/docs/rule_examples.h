// The examples of the rules' pages (verify/rules/*.md), run: below the lines of a trace stands what
// `lockstep verify` prints for them.
#pragma once

#include <string>

#include "tests/docs/reference.h"

namespace lockstep::docs {

// `page` with every report block made anew from the trace block above it.
std::string with_reports(const std::string& page, const Lockstep& lockstep);

}  // namespace lockstep::docs
