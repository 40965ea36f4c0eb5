#include "launch/derivation.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/text.h"
#include "launch/process.h"
#include "launch/run_folder.h"

namespace lockstep {

namespace {

constexpr std::size_t kAtOnce = 2;
constexpr int kExitException = 1;  // training raised: the trace ends so (runtime/worker.h)
constexpr std::size_t kLogLines = 3;

std::vector<std::string> command_line(const Scenario& scenario, const LoneRank& rank,
                                      const LoneOptions& options) {
  std::vector<std::string> out = {options.worker, "train",
                                  scenario.file,  "--alone",
                                  "--rank",       std::to_string(rank.rank),
                                  "--world-size", std::to_string(scenario.ranks),
                                  "--trace",      options.folder,
                                  "--broadcasts", options.broadcasts};
  if (rank.dissent.empty()) return out;
  std::vector<std::string> steps;
  for (const std::int64_t step : rank.dissent) steps.push_back(std::to_string(step));
  std::string list;
  for (const std::string& step : steps) list += (list.empty() ? "" : ",") + step;
  out.insert(out.end(), {"--dissent", list});
  return out;
}

Status outcome_of(const ProcessEnd& end, const std::string& log) {
  if (end.signal == 0 && (end.exit_status == 0 || end.exit_status == kExitException)) {
    return Status::ok();
  }
  std::string said;
  for (const std::string& line : last_lines(log, kLogLines)) said += "\n  " + line;
  return Error{
      "a rank alone " + to_string(end) + (said.empty() ? "" : "; its log ends with:" + said),
      {log},
      ""};
}

struct Running {
  Process process;
  std::string log;
};

}  // namespace

Status run_alone(const Scenario& scenario, const std::vector<LoneRank>& ranks,
                 const LoneOptions& options, Interrupts& interrupts,
                 const std::function<void()>& on_finished) {
  std::vector<Running> running;
  std::size_t next = 0;
  bool root_runs = false;
  while (next < ranks.size() || !running.empty()) {
    if (interrupts.poll() != 0) return Error{"interrupted", {}, ""};
    for (std::size_t i = 0; i < running.size();) {
      const std::optional<ProcessEnd> end = running[i].process.poll();
      if (!end) {
        ++i;
        continue;
      }
      if (const Status ok = outcome_of(*end, running[i].log); !ok) return ok;
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      root_runs = false;
      on_finished();
    }
    if (next < ranks.size() && running.size() < kAtOnce && !root_runs) {
      const std::string log = log_file(options.folder, ranks[next].rank);
      Result<Process> process = Process::spawn(command_line(scenario, ranks[next], options), log);
      if (!process) return process.error();
      running.push_back({std::move(*process), log});
      root_runs = ranks[next].rank == 0;
      ++next;
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Status::ok();
}

}  // namespace lockstep
