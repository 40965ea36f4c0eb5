// Programs in short: what a rank does, a word for each of its events.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/replay/program.h"
#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"

namespace lockstep::runtime {

// Two ranks or more from their bodies: the lines after the header, separated by blanks or lines.
inline trace::Run recorded(const std::vector<std::string>& bodies) {
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < bodies.size(); ++r) {
    texts.push_back(header_line(static_cast<int>(r), bodies.size()) + bodies[r]);
  }
  return run_from_text(texts);
}

// "issue 0 all_reduce world [4] async", "wait 0", "step 2", "raise oops", "end hung".
inline std::vector<std::string> words(const trace::Run& run, std::size_t rank) {
  const trace::RankTrace& trace = run.ranks[rank];
  std::vector<std::string> out;
  for (const trace::Event& event : trace.events) {
    switch (event.kind) {
      case trace::EventKind::issue: {
        const trace::Call& call = trace.calls[event.index];
        const trace::Signature& s = run.tables.signatures[call.signature];
        std::string word = fmt::format("issue {} {} {}", call.id, trace::op_name(s.op),
                                       run.tables.str(call.group));
        const trace::IntListId side = s.in != trace::IntListId{} ? s.in : s.out;
        if (side != trace::IntListId{}) {
          for (const auto& shape : trace::unflatten_shapes(run.tables.int_lists[side])) {
            word += fmt::format(" [{}]", fmt::join(shape, ","));
          }
        }
        out.push_back(word + (call.has(trace::kAsync) ? " async" : ""));
        break;
      }
      case trace::EventKind::wait:
        out.push_back(fmt::format("wait {}", trace.calls[event.index].id));
        break;
      case trace::EventKind::step:
        out.push_back(fmt::format("step {}", trace.steps[event.index].n));
        break;
      case trace::EventKind::modality:
        out.push_back(fmt::format("modality {}", trace.modalities[event.index].n));
        break;
      case trace::EventKind::exception:
        out.push_back("raise " + trace.exceptions[event.index].what);
        break;
      default:
        out.push_back("other");
    }
  }
  const char* const ends[] = {"cut", "clean", "hung", "exception", "killed"};
  out.push_back(std::string("end ") + ends[static_cast<int>(trace.end)]);
  return out;
}

}  // namespace lockstep::runtime
