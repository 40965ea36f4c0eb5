// Timelines in the reader that people open them with: Perfetto's trace processor, as
// ui.perfetto.dev has it, in Node (trace_query.js). Where it or Node is not there, tests say that
// they were skipped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"

namespace lockstep::reports {

// Why no timeline can be read here; empty: they can.
std::string why_no_perfetto();

class Perfetto {
 public:
  // The rows of each query (https://perfetto.dev/docs/analysis/sql-tables) of the trace in `file`,
  // as objects. Nothing: the trace or a query was refused; complaint() says why.
  std::optional<nlohmann::json> ask(const std::string& file,
                                    const std::vector<std::string>& queries);
  const std::string& complaint() const { return complaint_; }

 private:
  TempDir folder_;
  std::string complaint_;
};

// Fails the test unless Perfetto reads the timeline in `file` without a complaint, and finds in it
// what it holds: as many slices, instants, arrows and values as were written, no two slices of a
// track over each other, and arrows that join calls of one group and number of different ranks.
void expect_perfetto_reads(const std::string& file);

}  // namespace lockstep::reports
