// Everything that a trace holds, as text: two traces are equal where their dumps are, however their
// Tables number things. `source` is left out.
#pragma once

#include <string>

#include "trace/run.h"

namespace lockstep {

std::string dump(const trace::RankTrace& trace, const trace::Tables& tables);

// The same without what the text form cannot carry: ids stay, sequence numbers go.
std::string dump_without_seq(const trace::RankTrace& trace, const trace::Tables& tables);

}  // namespace lockstep
