// Runs from inline text: a test shows its whole input.
// (Inside a TEST body write lockstep::Run or auto: testing::Test has a member Run.)
//
//   Run run = run_from_text({R"({"header":1,"rank":0,"world_size":2}
//                               {"ev":"issue","id":0,"g":"world","op":"barrier"})",
//                            R"({"header":1,"rank":1,"world_size":2})"});
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trace/formats/text/text_trace.h"
#include "trace/load.h"

namespace lockstep {

// The run that load_run would make of files with these contents, named "trace 0", "trace 1", …
// A text without a usable header fails the test and is left out.
inline trace::Run run_from_text(const std::vector<std::string>& texts) {
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (const std::string& text : texts) {
    Result<trace::RankTrace> trace =
        trace::read_text_trace(text, "trace " + std::to_string(traces.size()), tables);
    if (trace) {
      traces.push_back(std::move(*trace));
    } else {
      ADD_FAILURE() << trace.error().str();
    }
  }
  return trace::assemble_run(std::move(tables), std::move(traces));
}

}  // namespace lockstep
