#include "runtime/derive/lone_run.h"

#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "runtime/launch/run_folder.h"
#include "runtime/launch/this_machine.h"

namespace lockstep::runtime {

namespace {

constexpr std::chrono::milliseconds kPoll(5);  // so that a short derivation ends when it is over
constexpr int kPollsALook = 20;                // at the log
constexpr std::size_t kShownLogLines = 3;
constexpr std::size_t kLogBytes = std::size_t{1} << 26U;

// How many ranks the worker has finished, from the last "alone: 12" line of its log; other lines
// may follow it.
std::size_t finished_in(const std::string& log) {
  constexpr std::string_view kMark = "alone: ";
  for (const std::string& line : last_lines(log, kShownLogLines)) {
    if (!line.starts_with(kMark)) continue;
    std::size_t count = 0;
    std::from_chars(line.data() + kMark.size(), line.data() + line.size(), count);
    return count;
  }
  return 0;
}

bool refused(const ProcessEnd& end) { return end.signal == 0 && end.exit_status == kWorkerRefusal; }

Status outcome_of(const ProcessEnd& end, const std::string& log) {
  if (end.success()) return Status::ok();
  if (const auto error = refused(end) ? last_error(log) : std::nullopt) return *error;
  std::string lines;
  for (const std::string& line : last_lines(log, kShownLogLines))
    lines += fmt::format("\n  {}", line);
  return Error{fmt::format("the worker that looks at each rank alone {}{}", to_string(end),
                           lines.empty() ? "" : fmt::format("; its log ends with:{}", lines)),
               {log},
               ""};
}

}  // namespace

Result<LoneRun> LoneRun::start(const std::vector<LoneRanks>& ranks, const LoneOptions& options) {
  const std::string list = options.folder + "/ranks.json";
  std::string log = options.folder + "/worker.log";
  if (const Status ok = write_file(list, lone_ranks_text(ranks)); !ok) return ok.error();
  std::vector<std::string> command = {options.worker, "alone", list};
  if (options.on_meta) command.emplace_back("--meta");
  Result<Process> process = Process::spawn(command, log);
  if (!process) return process.error();
  return LoneRun(std::move(*process), std::move(log));
}

std::size_t LoneRun::finished() const { return finished_in(log_); }

std::optional<Result<std::string>> LoneRun::poll() {
  const std::optional<ProcessEnd>& end = process_.poll();
  if (!end) return std::nullopt;
  refused_ = runtime::refused(*end);
  if (const Status ok = outcome_of(*end, log_); !ok) return ok.error();
  const Result<std::string> log = read_file(log_, kLogBytes);
  if (!log) return log.error();
  return log->substr(0, log->find('\n'));
}

namespace {

std::string draws_file(const std::string& folder) { return folder + "/draws.json"; }

}  // namespace

Result<DrawnAlike> ask_who_draws_alike(const Scenario& scenario, const LoneOptions& options,
                                       Interrupts& interrupts) {
  const std::string file = draws_file(options.folder);
  Result<Process> process = Process::spawn({options.worker, "draws", scenario.file}, file);
  if (!process) return process.error();
  // Of 65,536 ranks it draws for many seconds.
  while (process->running()) {
    if (interrupts.poll() != 0) return Error{"interrupted", {}, ""};
    std::this_thread::sleep_for(kPoll);
  }
  if (const Status ok = outcome_of(*process->poll(), file); !ok) return ok.error();
  return known_to_draw_alike(scenario, options.folder);
}

Result<DrawnAlike> known_to_draw_alike(const Scenario& scenario, const std::string& folder) {
  return read_drawn_alike(draws_file(folder), scenario.ranks);
}

Result<std::string> run_alone(const std::vector<LoneRanks>& ranks, const LoneOptions& options,
                              Interrupts& interrupts,
                              const std::function<void(std::size_t)>& on_finished) {
  Result<LoneRun> run = LoneRun::start(ranks, options);
  if (!run) return run.error();
  for (int polls = 0;; ++polls) {
    if (auto end = run->poll()) return std::move(*end);
    if (interrupts.poll() != 0) return Error{"interrupted", {}, ""};
    if (polls % kPollsALook == kPollsALook - 1) on_finished(run->finished());
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace lockstep::runtime
