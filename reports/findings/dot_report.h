// The wait-for graph of a run in Graphviz's language, with the findings beside it:
//
//   lockstep verify traces/ --output dot=- | dot -Tsvg > waits.svg
//
// https://graphviz.org/doc/info/lang.html
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "reports/filter/filter.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"

namespace lockstep::reports {

// A digraph: a box for each set of ranks that wait alike or are waited for alike (culprits with a
// thick red frame), an arrow to the ranks that they wait for, and for each error or warning a note
// that points to its culprits. If nobody waits, only the notes. `semantics`: as given to verify().
std::string dot_report(const FilteredReport& filtered, const trace::Run& run,
                       std::optional<verify::CallSemantics> semantics = std::nullopt);

// `lines` as one quoted string with centred lines; nothing in it is interpreted.
std::string dot_string(std::string_view lines);

}  // namespace lockstep::reports
