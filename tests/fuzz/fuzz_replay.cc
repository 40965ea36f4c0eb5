// Any bytes as the traces of several ranks, separated by blank lines, of which a replay is made: it
// is refused, or a program that can be written, read and made a program of again, and stays as it
// is.
#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/replay/disputes.h"
#include "runtime/replay/program.h"
#include "runtime/replay/tensors.h"
#include "tests/fuzz/fuzz_derivation.h"
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep {

namespace {

constexpr std::size_t kMaxFuzzedRanks = 8;
constexpr std::int32_t kLargestReplayWorld = 256;  // missing ranks cost time, and nothing else

// As `lockstep convert --to scenario` writes it: the file of each rank, separated by blank lines.
std::string text_of(const trace::Run& program) {
  std::ostringstream out;
  for (const trace::RankTrace& trace : program.ranks) {
    trace::write_text_trace(out, trace, program.tables);
    out << "\n";
  }
  return out.str();
}

void replay(const std::vector<std::string_view>& sections, const runtime::ProgramOptions& options) {
  trace::Run run = run_of_sections(sections);
  if (run.world_size > kLargestReplayWorld) return;
  const Result<trace::Run> program = runtime::replay_program(std::move(run), options);
  if (!program) {
    LOCKSTEP_CHECK(!program.error().message.empty(), "an error says what is wrong");
    return;
  }
  const std::string text = text_of(*program);
  const Result<trace::Run> again = runtime::replay_program(run_of_sections(sections_of(text)));
  LOCKSTEP_CHECK(again, "a program is a program: " + (again ? "" : again.error().message));
  LOCKSTEP_CHECK(text_of(*again) == text, "and stays as it is");
  if (!runtime::check_tensors(*program)) return;
  const auto disputes = runtime::find_disputes(*program);
  const auto groups = runtime::find_disputed_groups(*program);
  for (std::size_t r = 0; r < program->ranks.size(); ++r) {
    LOCKSTEP_CHECK(disputes[r].size() == program->ranks[r].calls.size(), "one for each call");
    LOCKSTEP_CHECK(groups[r].size() == program->ranks[r].groups.size(), "and for each group");
  }
  fuzz_judging(*program);
}

}  // namespace

void fuzz_replay(std::string_view bytes) {
  std::vector<std::string_view> sections = sections_of(bytes);
  sections.resize(std::min(sections.size(), kMaxFuzzedRanks));
  replay(sections, {});
  replay(sections, {.ends_well = true, .last = 3, .max_elements = 64});
}

}  // namespace lockstep
