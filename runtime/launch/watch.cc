
#include "runtime/launch/watch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "runtime/launch/process.h"
#include "trace/load.h"
#include "verify/rules.h"
#include "verify/verify.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

Result<std::vector<std::string>> ring_files(const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> out;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    if (it->path().extension() == ".ring") out.push_back(it->path().string());
  }
  if (failed) return system_error("cannot read the folder", failed.value(), folder);
  std::sort(out.begin(), out.end());
  return out;
}

// Events that the rank recorded since its start, whether or not the ring still holds them.
std::uint64_t events_of(const RankTrace& trace) { return trace.dropped + trace.events.size(); }

}  // namespace

bool has_ended(std::int64_t pid) {
  if (pid <= 0) return false;
  if (kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(stat), {}};
  const std::size_t name_end = line.rfind(')');  // the name may hold anything
  return name_end != std::string::npos && line.compare(name_end, 3, ") Z") == 0;
}

std::string this_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

// What a process recorded between the reading and its end is seen by the next look only. One that
// records after that, too, is not the one of that number here: then none of the numbers mean
// anything.
void WatchSource::mark_gone(Run& run) {
  if (!options_.look_for_processes || foreign_processes_) return;
  const std::string host = this_host();
  std::map<Rank, Gone> gone;
  std::vector<RankTrace*> silent;
  for (RankTrace& trace : run.ranks) {
    if (trace.end != End::cut || (!trace.host.empty() && trace.host != host)) continue;
    if (!has_ended(trace.pid)) continue;
    const auto before = gone_.find(trace.rank);
    Gone& now = gone.emplace(trace.rank, Gone{events_of(trace), false}).first->second;
    if (before == gone_.end()) continue;
    const bool moved = before->second.events != now.events;
    if (moved && before->second.moved) {
      foreign_processes_ = true;
      return;
    }
    now.moved = moved || before->second.moved;
    if (!moved) silent.push_back(&trace);
  }
  gone_ = std::move(gone);
  for (RankTrace* trace : silent) trace->end = End::killed;
}

Result<std::optional<WatchSource::Look>> WatchSource::look() {
  const Result<std::vector<std::string>> files = ring_files(options_.folder);
  if (!files) return files.error();
  if (files->empty()) return std::optional<Look>();
  LoadOptions reading;
  reading.format = "ring";
  Result<Run> run = load_run(*files, reading);
  if (!run) return run.error();
  mark_gone(*run);
  Look out;
  const std::string host = this_host();
  out.one_host = std::all_of(run->ranks.begin(), run->ranks.end(), [&](const RankTrace& trace) {
    return trace.host.empty() || trace.host == host;
  });
  const bool all_ended = std::none_of(run->ranks.begin(), run->ranks.end(),
                                      [](const RankTrace& t) { return t.end == End::cut; });
  const bool all_there = static_cast<std::size_t>(run->world_size) <= run->ranks.size();
  looks_after_end_ = all_ended ? looks_after_end_ + 1 : 0;
  out.over = all_ended && (all_there || looks_after_end_ >= kLooksForAbsent);
  out.report = verify(*run, {.live = !out.over});
  out.run = std::move(*run);
  return std::optional<Look>(std::move(out));
}

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
