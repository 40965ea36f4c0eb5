#include "cli/simulated_traces.h"

#include <sstream>
#include <utility>

#include "base/files/write_file.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep {

Status write_simulated_traces(const SimulatedProgram& simulated, const Run& run,
                              const std::string& folder) {
  if (const Status made = make_folder(folder); !made) return made;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const RankTrace trace =
        sim::simulated_rank(run, r, simulated.program, simulated.folding, simulated.result);
    std::ostringstream text;
    write_text_trace(text, trace, run.tables);
    const std::string file = folder + "/rank_" + std::to_string(trace.rank.value) + ".trace.jsonl";
    if (const Status written = write_file(file, std::move(text).str()); !written) return written;
  }
  return Status::ok();
}

}  // namespace lockstep
