// lockstep record -- COMMAND…: runs a PyTorch job, records its collectives, watches it, and
// reports.
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/interrupts.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/report_options.h"
#include "reports/judge.h"
#include "runtime/launch/watch.h"
#include "trace/formats/ring/writer.h"
#include "verify/verify.h"

extern char** environ;

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct RecordCommand {
  std::vector<std::string> command;
  std::string folder;   // empty: a new one
  std::string python;   // empty: the command's own
  std::string library;  // empty: looked for, else built
  double hung_after_s = 60;
  bool keep_running = false;
  reports::ReportOptions report;
};

constexpr const char* kRecordFooter = R"(Examples:
  Record a job of 8 ranks, and say at its end what is wrong with it:
    lockstep record -- torchrun --nproc-per-node 8 train.py --epochs 3
  Keep the traces in a folder, for `lockstep verify` and `lockstep watch`:
    lockstep record --traces /tmp/job-4711 -- torchrun train.py
  With a recorder that was built elsewhere, for the same torch:
    lockstep record --library liblockstep_record.so -- torchrun train.py

Finds the Python that the command starts and the torch in it, takes the recorder
that was built for that torch or builds it (once; scripts/build-recorder), and
runs the command with it preloaded. While the job runs, its traces are judged
every few seconds. When it is proven that it can never continue, the job is ended
and the report says why. Details: docs/record-any.md.

Exit status: that of the report (0 clean, 1 findings, 3 inconclusive); where the
report is clean, that of the command.)";

bool is_executable(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) && ::access(path.c_str(), X_OK) == 0;
}

// The file that the shell would run.
std::string found_in_path(const std::string& program) {
  // As execvp(3): a name with a slash is a path, any other is looked for.
  if (program.find('/') != std::string::npos) return is_executable(program) ? program : "";
  const char* const variable = std::getenv("PATH");
  std::string_view left = variable == nullptr ? "" : variable;
  while (!left.empty()) {
    const std::size_t end = std::min(left.find(':'), left.size());
    const fs::path candidate = fs::path(left.substr(0, end)) / program;
    if (is_executable(candidate)) return candidate.string();
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return {};
}

// The Python that runs the command: itself, or the one in the first line of a script such as
// torchrun. Empty: neither.
std::string python_of(const std::string& program) {
  // "/opt/conda/bin/python3.11".
  if (fs::path(program).filename().string().starts_with("python")) return program;
  constexpr std::size_t kMost = std::size_t{1} << 24U;  // scripts are small, programs are not read
  const Result<std::string> text = read_file(program, kMost);
  if (!text || !text->starts_with("#!")) return {};
  std::string line = text->substr(2, text->find('\n') - 2);
  std::vector<std::string> words;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t begin = line.find_first_not_of(" \t\r", at);
    if (begin == std::string::npos) break;
    const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    at = end;
  }
  // "#!/usr/bin/env python3" has it in the second word, "#!/opt/conda/bin/python" in the first.
  for (const std::string& word : words)
    if (fs::path(word).filename().string().starts_with("python")) return found_in_path(word);
  return {};
}

// What the program prints on standard output; nothing if it fails.
std::optional<std::string> output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addclose(&actions, ends[0]);
  ::posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int failed =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string out;
  std::array<char, 4096> buffer{};
  // Until the child closes its end: waiting for it first would block both where it prints more than
  // a pipe holds.
  for (ssize_t n = 0; failed == 0 && (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    out.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  if (failed != 0 || ::waitpid(pid, &status, 0) != pid || status != 0) return std::nullopt;
  while (!out.empty() && (out.back() == '\n' || out.back() == '\r')) out.pop_back();
  return out;
}

// Where the torch of a Python is, and its version as the recorder knows it ("2.15.0"). torch is not
// imported: that takes seconds.
struct Torch {
  std::string folder, version;
};

Result<Torch> torch_of(const std::string& python) {
  constexpr const char* kAsk =
      "import importlib.util as u, pathlib, re\n"
      "s = u.find_spec('torch')\n"
      "f = pathlib.Path(s.origin).parent if s and s.origin else None\n"
      "v = re.search(r\"__version__ = '([0-9.]+)\", (f / 'version.py').read_text()) if f else "
      "None\n"
      "print(f'{f}\\n{v.group(1)}' if v else '')\n";
  const std::optional<std::string> said = output_of({python, "-c", kAsk});
  // Two lines, the folder and "2.15.0"; of "2.15.0+cu130" the part after the digits is left out, as
  // the recorder is the same.
  const std::size_t end = said ? said->find('\n') : std::string::npos;
  if (end == std::string::npos) {
    return Error{"there is no torch in the Python that the command starts",
                 {python},
                 "--python names the Python, where it is another one"};
  }
  return Torch{said->substr(0, end), said->substr(end + 1)};
}

constexpr const char* kLibrary = "liblockstep_record.so";

// The version of torch that a recorder was built for, which is a text in it. Empty: none.
std::string version_of_recorder(const fs::path& library) {
  constexpr std::size_t kMost = std::size_t{1} << 28U;
  constexpr std::string_view kKey = "LOCKSTEP_RECORDS_TORCH=";
  const Result<std::string> bytes = read_file(library.string(), kMost);
  if (!bytes) return {};
  const std::size_t at = bytes->find(kKey);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + kKey.size();
  return bytes->substr(begin, bytes->find_first_not_of("0123456789.", begin) - begin);
}

// Folders in which a recorder may be: beside this program as it was built, installed, or put there
// by whoever has several.
std::vector<fs::path> recorder_folders(const std::string& version) {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  std::vector<fs::path> out = {here, here / "../recorder", here / "../lib", here / "../lib64",
                               here / "../lib/x86_64-linux-gnu"};
  // Whoever has several torches has a folder for each, in those of libraries.
  for (const std::size_t i : {2U, 3U, 4U}) out.push_back(out[i] / fmt::format("torch-{}", version));
  return out;
}

// The script that builds a recorder, where this program lies in its source tree.
fs::path build_script() {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  const fs::path script = here / "../../scripts/build-recorder";
  return is_executable(script) ? fs::weakly_canonical(script, none) : fs::path();
}

Result<std::string> recorder_for(const RecordCommand& command, const std::string& python,
                                 const Torch& torch) {
  std::error_code none;
  if (!command.library.empty()) {
    const std::string version = version_of_recorder(command.library);
    if (version == torch.version) return fs::absolute(command.library, none).string();
    return Error{version.empty() ? "this is no recorder"
                                 : fmt::format("this recorder is for torch {}, and the job has {}",
                                               version, printable(torch.version)),
                 {command.library},
                 "leave --library out, or build it: scripts/build-recorder --python PYTHON"};
  }
  for (const fs::path& folder : recorder_folders(torch.version)) {
    const fs::path library = folder / kLibrary;
    // Only of exactly that version: LibTorch promises no binary interface between releases.
    if (version_of_recorder(library) == torch.version)
      return fs::weakly_canonical(library, none).string();
  }
  const fs::path script = build_script();
  if (script.empty()) {
    return Error{fmt::format("no recorder for torch {} is installed", printable(torch.version)),
                 {python},
                 "build it in Lockstep's source tree, and name it with --library: "
                 "scripts/build-recorder --python PYTHON"};
  }
  std::cerr << "lockstep: building the recorder for torch " << printable(torch.version)
            << ", which takes some minutes the first time\n";
  const std::optional<std::string> built = output_of({script.string(), "--python", python});
  if (!built || version_of_recorder(*built) != torch.version)
    return Error{"the recorder could not be built", {script.string()}, "run it by hand"};
  return *built;
}

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
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    // Ours blocks what Interrupts polls; the job must hear Ctrl-C.
    ::posix_spawnattr_setsigmask(&attributes, &none);
    // A group of its own, so that its ranks can be ended with it.
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes,
                               static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP));
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    Job job;
    const int failed =
        ::posix_spawnp(&job.pid_, arguments[0], nullptr, &attributes, arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    if (failed != 0) return system_error("cannot start the command", failed, command[0]);
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
  // Behind the program's own, so that `from lockstep_watch import watch` works without a copy.
  if (const std::string watch = folder_of_watch(); !watch.empty()) {
    const char* const path = std::getenv("PYTHONPATH");
    ::setenv("PYTHONPATH",
             (path == nullptr || *path == '\0' ? watch : fmt::format("{}:{}", path, watch)).c_str(),
             1);
  }
  const char* const before = std::getenv("LD_PRELOAD");
  const std::string preload =
      // Before others, so that their wrappers see the calls that ours passes on.
      before == nullptr || *before == '\0' ? library : fmt::format("{}:{}", library, before);
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  ::setenv("LOCKSTEP_RECORD_DIR", folder.c_str(), 1);
  ::setenv("LOCKSTEP_RECORD_HUNG_AFTER", fmt::format("{}", command.hung_after_s).c_str(), 1);
}

// Waits for the job's end. True: it was proven that it can never continue.
bool watch_until_end(Job& job, const std::string& folder, Interrupts& interrupts) {
  using Clock = std::chrono::steady_clock;
  runtime::WatchSource source({folder, true});
  // Before that the ranks are starting, and there is nothing to judge.
  Clock::time_point next = Clock::now() + std::chrono::seconds(2);
  while (job.running()) {
    if (const int signal = interrupts.poll(); signal != 0) job.signal(signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (Clock::now() < next) continue;
    const Clock::time_point begin = Clock::now();
    const Result<std::optional<runtime::WatchSource::Look>> look = source.look();
    // A twentieth of the time at most, as `watch`.
    next = Clock::now() +
           std::max<Clock::duration>(std::chrono::seconds(2), 20 * (Clock::now() - begin));
    if (look && *look && !(*look)->over && verify::proves_stuck((*look)->report)) return true;
  }
  return false;
}

reports::ExitStatus record(const RecordCommand& command) {
  if (const Status outputs = reports::check_outputs(command.report); !outputs)
    return reports::fail(outputs.error());
  const std::string program = found_in_path(command.command[0]);
  if (program.empty())
    return reports::fail({"no such program", {command.command[0]}, "see `lockstep record --help`"});
  const std::string python = command.python.empty() ? python_of(program) : command.python;
  if (python.empty())
    return reports::fail({"this is neither Python nor a script of Python's",
                          {program},
                          "--python names the Python that the job runs in"});
  const Result<Torch> torch = torch_of(python);
  if (!torch) return reports::fail(torch.error());
  const Result<std::string> library = recorder_for(command, python, *torch);
  if (!library) return reports::fail(library.error());
  const Result<std::string> folder = new_folder(command.folder);
  if (!folder) return reports::fail(folder.error());
  std::cerr << "lockstep: recording into " << printable(*folder) << "\n";

  set_variables(command, *library, *folder);
  Interrupts interrupts;
  Result<Job> job = Job::start(command.command);
  if (!job) return reports::fail(job.error());
  if (watch_until_end(*job, *folder, interrupts)) {
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
  std::error_code none;
  if (fs::is_empty(*folder, none)) {
    std::cerr << "lockstep: no rank made a collective call, so nothing was recorded\n";
    return job->exit_status() == 0 ? reports::ExitStatus::inconclusive
                                   : static_cast<reports::ExitStatus>(job->exit_status());
  }
  reports::TracesToJudge traces;
  traces.paths = {*folder};
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
  command->add_flag("--keep-running", options->keep_running,
                    "Do not end a job that can never continue");
  add_report_options(*command, options->report);
  command->footer(kRecordFooter);
  command->callback([options, &status] { status = record(*options); });
}

}  // namespace lockstep::cli
