#include "runtime/replay/replay_scenario.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/text.h"
#include "runtime/replay/program.h"
#include "runtime/replay/refusals.h"
#include "runtime/replay/tensors.h"
#include "trace/load.h"

namespace lockstep::runtime {

namespace fs = std::filesystem;

Result<trace::Run> load_replay_program(const Scenario& scenario) {
  const std::string folder = (fs::path(scenario.file).parent_path() / scenario.replay).string();
  std::error_code failed;
  std::uint64_t bytes = 0;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code unknown;
    const std::uintmax_t size = it->is_regular_file(unknown) ? it->file_size(unknown) : 0;
    if (!unknown) bytes += size;
  }
  if (failed) {
    return Error{fmt::format("cannot read the calls to be replayed in {}: {}", printable(folder),
                             failed.message()),
                 location_in(scenario, "/replay"),
                 "\"replay\" is a folder, as seen from the folder of the scenario"};
  }
  if (bytes > kMaxReplayFolderBytes) {
    return Error{fmt::format("the calls to be replayed take more than {}",
                             bytes_text(kMaxReplayFolderBytes)),
                 {folder},
                 "keep the last ones: `lockstep convert --to scenario --last 1000`"};
  }
  Result<trace::Run> run = trace::load_run({folder});
  if (!run) return run;
  if (!run->unreadable.empty()) return run->unreadable.front().error;
  Result<trace::Run> program = replay_program(std::move(*run));
  if (!program) return program;
  if (program->world_size != scenario.ranks) {
    const auto ranks = [](int n) { return plural(n, "rank"); };
    return Error{
        fmt::format("the scenario says \"ranks: {}\", and the calls to be replayed are those of {}",
                    scenario.ranks, ranks(program->world_size)),
        location_in(scenario, "/ranks"), fmt::format("write \"ranks: {}\"", program->world_size)};
  }
  if (const Status fits = check_tensors(*program); !fits) return fits.error();
  if (scenario.backend == Scenario::Backend::nccl) {
    if (auto refused = find_nccl_refusal(*program)) return *refused;
  }
  return program;
}

namespace {

// A JSON string is a YAML string, whatever it contains.
std::string quoted(const std::string& text) { return nlohmann::json(printable(text)).dump(); }

std::string expectation(const Scenario::Expect& expect) {
  std::string out = fmt::format("{{verdict: {}", expect.verdict);
  if (!expect.rules.empty()) out += fmt::format(", rules: [{}]", fmt::join(expect.rules, ", "));
  if (expect.culprits) out += fmt::format(", culprits: [{}]", fmt::join(*expect.culprits, ", "));
  if (expect.step) out += fmt::format(", step: {}", *expect.step);
  return out + "}";
}

}  // namespace

std::string replay_scenario_text(const ReplayScenario& scenario) {
  std::string out =
      "# The calls of a recorded run, made again by real processes: lockstep run --check FILE.\n"
      "# Written by `lockstep convert --to scenario`; the calls are in the folder \"replay\" "
      "names.\n"
      "lockstep: 1\n";
  out += fmt::format("name: {}\n", quoted(scenario.name));
  if (!scenario.description.empty()) {
    out += fmt::format("description: {}\n", quoted(scenario.description));
  }
  out += fmt::format("ranks: {}\n", scenario.ranks);
  out += fmt::format("replay: {}\n", quoted(scenario.trace));
  out += fmt::format("expect: {}\n", expectation(scenario.expect));
  return out;
}

}  // namespace lockstep::runtime
