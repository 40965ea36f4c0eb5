#include "runtime/launch/watch_exec.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/text.h"
#include "runtime/launch/process.h"
#include "verify/rules.h"

namespace lockstep {

std::vector<std::pair<std::string, std::string>> exec_environment(const std::string& folder,
                                                                  const Finding& worst) {
  std::vector<std::int32_t> culprits;
  for (const Rank rank : worst.culprits) culprits.push_back(rank.value);
  return {{"LOCKSTEP_FOLDER", folder},
          {"LOCKSTEP_RULE", std::string(rule(worst.rule).name)},
          {"LOCKSTEP_SEVERITY", std::string(to_string(worst.severity))},
          {"LOCKSTEP_CERTAINTY", std::string(to_string(worst.certainty))},
          {"LOCKSTEP_CULPRITS", ranges(culprits)},
          {"LOCKSTEP_MESSAGE", printable(worst.message)}};
}

Status run_exec(const std::string& command, const std::string& folder, const Finding& worst,
                Interrupts& interrupts) {
  for (const auto& [name, value] : exec_environment(folder, worst))
    setenv(name.c_str(), value.c_str(), 1);  // only this thread reads the environment
  std::vector<Process> started;
  Result<Process> process = Process::spawn({"/bin/sh", "-c", command}, "/dev/stderr");
  if (!process) return process.error();
  started.push_back(std::move(*process));
  while (started[0].running()) {
    if (interrupts.poll() != 0) {
      end_all(started, std::chrono::milliseconds(500));
      return Status::ok();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const ProcessEnd& end = *started[0].poll();
  if (end.success()) return Status::ok();
  return Error{
      "the command of --exec " + to_string(end), {}, "run it by hand: " + printable(command)};
}

}  // namespace lockstep
