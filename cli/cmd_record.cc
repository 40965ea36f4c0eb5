// lockstep record -- COMMAND…: runs a PyTorch job, records its collectives, watches it, and
// reports.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/files/write_file.h"
#include "base/interrupts.h"
#include "base/launcher.h"
#include "base/text.h"
#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/recorder_library.h"
#include "cli/report_options.h"
#include "reports/judge.h"
#include "runtime/launch/watch.h"
#include "trace/formats/ring/ring_file.h"
#include "trace/formats/ring/writer.h"
#include "verify/context.h"
#include "verify/verify.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct RecordCommand {
  std::vector<std::string> command;
  std::string folder;   // empty: a new one
  std::string python;   // empty: the command's own
  std::string library;  // empty: looked for, else built
  double hung_after_s = 60;
  bool values = false;
  bool keep_running = false;
  reports::ReportOptions report;
};

constexpr const char* kRecordFooter = R"(Examples:
  Record a job of 8 ranks, and say at its end what is wrong with it:
    lockstep record -- torchrun --nproc-per-node 8 train.py --epochs 3
  Keep the traces in a folder, for `lockstep verify` and `lockstep watch`:
    lockstep record --traces /tmp/job-4711 -- torchrun train.py
  What the ranks' models and optimizers hold, too, and which samples they read:
    lockstep record --values -- torchrun train.py
  With a recorder that was built elsewhere, for the same torch:
    lockstep record --library liblockstep_record.so -- torchrun train.py

Finds the Python that the command starts and the torch in it, takes the recorder
that was built for that torch or builds it (once; scripts/build-recorder), and
runs the command with it preloaded. While the job runs, its traces are judged
every few seconds. When it is proven that it can never continue, it is ended,
and the report says why; where a rank failed, its launcher has a minute to do
so, or to start the ranks again. Details: docs/record-any.md.

Exit status: that of the report (0 clean, 1 findings, 3 inconclusive); where the
report is clean, that of the command.)";

// A folder without an earlier job's traces.
Result<std::string> new_folder(const std::string& wanted) {
  std::string folder = wanted;
  if (folder.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    folder =
        fmt::format("lockstep-runs/record-{:04}{:02}{:02}-{:02}{:02}{:02}-{}", utc.tm_year + 1900,
                    utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ::getpid());
  }
  if (const Status made = make_folder(folder); !made) return made.error();
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    // Ranks of two jobs in one folder would be judged as one job, and differ.
    if (it->path().extension() == ".ring")
      return Error{"the folder holds the traces of an earlier job",
                   {folder},
                   "name another folder, or a new one"};
  if (failed) return system_error("cannot read the folder", failed.value(), folder);
  return fs::absolute(folder, failed).string();
}

// The job, which shares our terminal.
class Job {
 public:
  static Result<Job> start(const std::vector<std::string>& command) {
    // In a group of its own, so that its ranks can be ended with it.
    const Result<pid_t> started = spawn(command, {.own_group = true});
    if (!started) return started.error();
    Job job;
    job.pid_ = *started;
    return job;
  }

  bool running() {
    if (ended_) return false;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
    ended_ = true;
    // As shells say it: 137 for SIGKILL.
    exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return false;
  }
  void signal(int number) {
    if (!ended_) ::kill(-pid_, number);
  }
  // Ranks that wait in a collective hear no other signal, and torchrun gives each a session of its
  // own: they are found by their ring files. The launcher then ends by itself, or is asked to.
  void end(const std::string& folder) {
    std::error_code none;
    for (fs::directory_iterator it(folder, none), last; !none && it != last; it.increment(none)) {
      if (it->path().extension() != ".ring") continue;
      if (const auto pid = trace::ring_file_writer(it->path().string()))
        ::kill(static_cast<pid_t>(*pid), SIGKILL);
    }
    // Ten seconds: a launcher collects the ends of its ranks, and may write their errors.
    const auto wait = [this] {
      for (int i = 0; i < 100 && running(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    };
    wait();
    signal(SIGTERM);
    wait();
    signal(SIGKILL);
    while (running()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  int exit_status() const { return exit_status_; }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_status_ = 0;
};

// Where lockstep_watch.py is: in the source tree, in an installed prefix or in a wheel. Empty:
// nowhere.
std::string folder_of_watch() {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* const folder : {"../../runtime/record/python", "../share/lockstep/python"}) {
    if (fs::is_regular_file(here / folder / "lockstep_watch.py", none))
      return fs::weakly_canonical(here / folder, none).string();
  }
  return {};
}

void set_variables(const RecordCommand& command, const std::string& library,
                   const std::string& folder) {
  if (command.values) ::setenv("LOCKSTEP_RECORD_VALUES", "1", 1);
  // After the program's own folders, so that `from lockstep_watch import watch` works without a
  // copy.
  if (const std::string watch = folder_of_watch(); !watch.empty()) {
    const std::string path = environment_variable("PYTHONPATH");
    ::setenv("PYTHONPATH", (path.empty() ? watch : fmt::format("{}:{}", path, watch)).c_str(), 1);
  }
  // Before others, so that their wrappers see the calls that ours passes on.
  const std::string others = environment_variable("LD_PRELOAD");
  const std::string preload = others.empty() ? library : fmt::format("{}:{}", library, others);
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  ::setenv("LOCKSTEP_RECORD_DIR", folder.c_str(), 1);
  ::setenv("LOCKSTEP_RECORD_HUNG_AFTER", fmt::format("{}", command.hung_after_s).c_str(), 1);
}

// Whether a rank's program failed. Launchers notice that: they end the other ranks, and may start
// all of them again (torchrun --max-restarts).
bool any_failed(const trace::Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [](const trace::RankTrace& rank) {
    return rank.end == trace::End::exception || rank.end == trace::End::killed ||
           !rank.exceptions.empty();
  });
}

// Waits for the job's end. True: it was proven that it can never continue. Where a rank failed, its
// launcher has a minute to act: torchrun lets ranks 30 seconds to end.
bool watch_until_end(Job& job, const std::string& folder, Interrupts& interrupts) {
  using Clock = std::chrono::steady_clock;
  runtime::WatchSource source({folder, true});
  // Before that the ranks are starting, and there is nothing to judge.
  Clock::time_point next = Clock::now() + std::chrono::seconds(2);
  constexpr std::chrono::seconds kLauncherTakes(60);
  std::optional<Clock::time_point> stuck_since;
  while (job.running()) {
    if (const int signal = interrupts.poll(); signal != 0) job.signal(signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (Clock::now() < next) continue;
    const Clock::time_point begin = Clock::now();
    const Result<std::optional<runtime::WatchSource::Poll>> poll = source.poll();
    // A twentieth of the time at most, as `watch`.
    next = Clock::now() +
           std::max<Clock::duration>(std::chrono::seconds(2), 20 * (Clock::now() - begin));
    if (!poll || !*poll || (*poll)->over || !verify::proves_stuck((*poll)->report)) {
      stuck_since.reset();
      continue;
    }
    if (!stuck_since) stuck_since = begin;
    if (!any_failed((*poll)->run) || begin - *stuck_since > kLauncherTakes) return true;
  }
  return false;
}

// Says which ranks the launcher started again without a new trace: what there is of them is of an
// earlier attempt.
void tell_lost_attempts(const std::string& folder) {
  std::vector<trace::Rank> lost;
  bool others = false;  // of the last attempt
  std::error_code none;
  for (fs::directory_iterator it(folder, none), last; !none && it != last; it.increment(none)) {
    if (it->path().extension() != ".ring") continue;
    fs::path started = it->path();
    started.replace_extension(trace::ring::kStartedAgain);
    const std::string stem = it->path().stem().string();  // rank_3
    const auto rank = launcher_number(stem.substr(std::min(stem.size(), stem.find('_') + 1)));
    if (fs::exists(started, none) && rank) {
      lost.emplace_back(*rank);
    } else {
      others = true;
    }
  }
  if (lost.empty()) return;
  std::sort(lost.begin(), lost.end());
  std::cerr << fmt::format(
      "lockstep: {} {} started again, and ended before {} first process group without an "
      "exception{}\n",
      verify::describe_ranks(lost), lost.size() == 1 ? "was" : "were",
      lost.size() == 1 ? "its" : "their", others ? "" : "; the report is of the attempt before");
}

reports::ExitStatus record(const RecordCommand& command) {
  if (const Status outputs = reports::check_outputs(command.report, {command.folder}); !outputs)
    return reports::fail(outputs.error());
  const std::string program = found_in_path(command.command[0]);
  std::error_code none;
  if (program.empty() && fs::is_regular_file(command.command[0], none)) {
    return reports::fail({"this is a file, and no program that can be started",
                          {command.command[0]},
                          "write how the job is started: lockstep record -- torchrun "
                          "--nproc-per-node 2 " +
                              command.command[0]});
  }
  if (program.empty())
    return reports::fail({"no such program",
                          {command.command[0]},
                          "check how it is written, and that its environment is active"});
  const std::string python = command.python.empty() ? python_of(program) : command.python;
  if (python.empty())
    return reports::fail({"this is neither Python nor a Python script",
                          {program},
                          "name the Python that the job runs in with --python"});
  const Result<std::string> torch = torch_version_of(python);
  if (!torch) return reports::fail(torch.error());
  const Result<std::string> library = recorder_for(command.library, python, *torch);
  if (!library) return reports::fail(library.error());
  const Result<std::string> folder = new_folder(command.folder);
  if (!folder) return reports::fail(folder.error());
  std::cerr << "lockstep: recording into " << printable(*folder) << "\n";

  set_variables(command, *library, *folder);
  Interrupts interrupts;
  Result<Job> job = Job::start(command.command);
  if (!job) return reports::fail(job.error());
  const bool hung = watch_until_end(*job, *folder, interrupts);
  if (hung) {
    std::cerr << "lockstep: it is proven that the job can never continue"
              << (command.keep_running ? "; `lockstep verify` says why\n" : "; ending it\n");
    if (!command.keep_running) {
      job->end(*folder);
    } else {
      while (job->running()) {
        if (const int signal = interrupts.poll(); signal != 0) job->signal(signal);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }
  // The recorder makes a rank's file with its first call.
  if (fs::is_empty(*folder, none)) {
    std::cerr << "lockstep: no rank made a collective call, so nothing was recorded\n";
    if (job->exit_status() != 0)
      std::cerr
          << "  fix: where ranks hung, a rank did not come to init_process_group, or the store "
             "cannot be reached:\n       look at the stack of each (py-spy dump --pid PID), "
             "and at WORLD_SIZE, MASTER_ADDR\n       and MASTER_PORT; else the job's output "
             "says why it ended\n";
    return job->exit_status() == 0 ? reports::ExitStatus::inconclusive
                                   : static_cast<reports::ExitStatus>(job->exit_status());
  }
  tell_lost_attempts(*folder);
  reports::TracesToJudge traces;
  traces.paths = {*folder};
  traces.hung = hung;
  const reports::ExitStatus judged = reports::judge_traces(traces, command.report);
  return judged == reports::ExitStatus::clean ? static_cast<reports::ExitStatus>(job->exit_status())
                                              : judged;
}

}  // namespace

void add_record(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("record", "Run a PyTorch job, record it, say what is wrong");
  const auto options = std::make_shared<RecordCommand>();
  command->add_option("COMMAND", options->command, "The job, after --: torchrun … train.py …")
      ->type_name("")
      ->required();
  command
      ->add_option("--traces", options->folder,
                   "Where the traces go; default: a new folder in\nlockstep-runs/")
      ->type_name("DIR");
  command
      ->add_option("--python", options->python,
                   "The Python that the job runs in; default: the\none that the command starts")
      ->type_name("FILE");
  command
      ->add_option("--library", options->library,
                   "The recorder; default: one that was built for\nthe job's torch, or a new one")
      ->type_name("FILE");
  command
      ->add_option("--hung-after", options->hung_after_s,
                   "Seconds without any event after which a rank's\nfile says that it hangs")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86400.0).description(""))
      ->capture_default_str();
  command->add_flag("--values", options->values,
                    "Watch every model that an optimizer trains, as\nlockstep_watch.watch(model, "
                    "optimizer) would");
  command->add_flag("--keep-running", options->keep_running,
                    "Do not end a job that can never continue");
  add_report_options(*command, options->report);
  command->footer(kRecordFooter);
  command->callback([options, &status] { status = record(*options); });
}

}  // namespace lockstep::cli
