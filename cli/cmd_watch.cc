// lockstep watch DIR: follows a job that somebody else started, and says why it hangs once it does.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/interrupts.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/report_options.h"
#include "reports/live/screen.h"
#include "reports/live/state.h"
#include "runtime/launch/watch.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

constexpr Nanos kSecond = 1'000'000'000;
// A look that took a second is not repeated within twenty: the job needs the machine.
constexpr Nanos kCostFactor = 20;
constexpr auto kSlice = std::chrono::milliseconds(50);
constexpr Nanos kSettle = kSecond / 2;            // between the two looks of --once
constexpr Nanos kProgressInterval = 5 * kSecond;  // of the line that says how far the job is

constexpr const char* kWatchFooter = R"(Examples:
  What do the ranks of this job do, and who waits for whom?
    lockstep watch lockstep-runs/my-job-20260401/
  In a script: wait until it ended or is proven to hang, then send a mail:
    lockstep watch /tmp/job-4711 --exec 'mail -s "$LOCKSTEP_RULE" me < r.txt' \
        --output text=r.txt | tee watch.log
  From cron, or a health check of the scheduler; status 1 means it hangs:
    lockstep watch /tmp/job-4711 --once --quiet || scancel 4711

Reads the ring files of DIR, which the job writes while it runs, and changes
nothing there. Ends when every rank has ended, or once it is proven that the
job can never go on; docs/watch.md has the details.)";

struct WatchCommand {
  std::string folder;
  bool once = false;
  bool ignore_processes = false;
  double interval_s = 1;
  double late_s = 0.1;
  std::string exec;
  ReportOptions report;
};

class Watcher {
 public:
  explicit Watcher(const WatchCommand& command)
      : command_(command),
        taken_(std::any_of(command.report.outputs.begin(), command.report.outputs.end(),
                           [](const std::string& o) { return o.ends_with("=-"); })),
        // Standard output belongs to a report that was sent there.
        said_(taken_ ? std::cerr : std::cout),
        source_({command.folder, !command.ignore_processes}) {}

  ExitStatus run() {
    if (const Status ready = prepare(); !ready) return fail(ready.error());
    Interrupts interrupts;
    began_ = monotonic_nanos();
    return command_.once ? look_once(interrupts) : follow(interrupts);
  }

 private:
  Status prepare() {
    if (const Status outputs = check_outputs(command_.report); !outputs) return outputs;
    Result<Filter> filter = load_filter(command_.report.filter);
    if (!filter) return filter.error();
    filter_ = std::move(*filter);
    std::error_code failed;
    if (!std::filesystem::is_directory(command_.folder, failed)) {
      return Error{"no such folder",
                   {command_.folder},
                   "name the folder into which the job's ranks write their *.ring files"};
    }
    return Status::ok();
  }

  // One look: what the traces show now. Keeps the last one that showed anything.
  Status look() {
    const Nanos begin = monotonic_nanos();
    Result<std::optional<WatchSource::Look>> seen = source_.look();
    const Nanos end = monotonic_nanos();
    cost_ = end - begin;
    if (!seen) {
      state_.problem = seen.error().summary();
      return seen.error();
    }
    state_.problem.clear();
    if (*seen) {
      look_ = std::move(**seen);
      stuck_ = proves_stuck(look_->report);
      report_ = filtered(look_->report, look_->run, filter_, today_utc());
      state_ =
          watch_state(look_->run, report_.report, look_->one_host ? end : kNoTime, !look_->over);
    }
    state_.folder = command_.folder;
    state_.watched_s = static_cast<double>(end - began_) / kSecond;
    return Status::ok();
  }

  // A rank counts as gone where two looks find it so.
  ExitStatus look_once(Interrupts& interrupts) {
    if (const Status first = look(); !first) return fail(first.error());
    if (!look_) {
      return fail({"no ring files in this folder",
                   {command_.folder},
                   "has the job begun? `lockstep verify` judges traces of other forms"});
    }
    if (!look_->over && !stuck_) {
      if (const int signal = pause(kSettle, interrupts); signal != 0) return interrupted_by(signal);
      if (const Status second = look(); !second) return fail(second.error());
    }
    if (!command_.report.quiet) {
      said_ << watch_screen(state_, {.width = width()}, {.on = !taken_ && stdout_wants_color()})
            << std::flush;
    }
    if (const Status told = act_on_findings(interrupts); !told) fail(told.error());
    return conclude(look_->over || stuck_ || !report_.report.findings.empty());
  }

  ExitStatus follow(Interrupts& interrupts) {
    const char* const term = std::getenv("TERM");
    const bool on_terminal = ::isatty(STDOUT_FILENO) == 1 && term != nullptr &&
                             std::string_view(term) != "dumb" && !taken_ && !command_.report.quiet;
    if (on_terminal) screen_.emplace(std::cout);
    while (true) {
      const WatchState before = state_;
      const Status looked = look();
      show(before);
      if (const Status told = act_on_findings(interrupts); !told) {
        screen_.reset();
        fail(told.error());
        if (on_terminal) screen_.emplace(std::cout);
      }
      if (looked && look_ && (look_->over || stuck_)) break;
      const Nanos interval = static_cast<Nanos>(command_.interval_s * kSecond);
      if (const int signal = pause(std::max(interval, kCostFactor * cost_), interrupts);
          signal != 0) {
        screen_.reset();
        return interrupted_by(signal);
      }
    }
    screen_.reset();
    return conclude(true);
  }

  std::size_t width() const { return terminal_size(STDOUT_FILENO).width; }

  void draw() {
    shown_size_ = terminal_size(STDOUT_FILENO);
    screen_->draw(watch_screen(state_, shown_size_, {.on = stdout_wants_color()}));
  }

  void show(const WatchState& before) {
    if (command_.report.quiet) return;
    if (screen_) return draw();
    const std::string at = duration_words(state_.watched_s) + "  ";
    const Nanos late = static_cast<Nanos>(command_.late_s * kSecond);
    for (const std::string& line : watch_news(before, state_, late)) said_ << at << line << "\n";
    const Nanos now = monotonic_nanos();
    const std::string progress = progress_words(state_);
    if (progress != told_ && (told_.empty() || now - told_at_ >= kProgressInterval)) {
      said_ << at << progress << "\n";
      told_ = progress;
      told_at_ = now;
    }
    said_ << std::flush;
  }

  // Findings that were not there before: the reports are written, then the command runs.
  Status act_on_findings(Interrupts& interrupts) {
    if (command_.exec.empty()) return Status::ok();
    const Finding* worst = nullptr;
    for (const Finding& f : report_.report.findings) {
      Report alone;
      alone.findings = {f};
      const bool counts = exit_status(alone, command_.report.fail_on) == ExitStatus::findings;
      if (counts && acted_on_.insert(f.fingerprint).second && worst == nullptr) worst = &f;
    }
    if (worst == nullptr) return Status::ok();
    if (const Status written = write_reports(report_, look_->run, files_only()); !written)
      return written;
    const bool on_terminal = screen_.has_value();
    screen_.reset();
    const Status ran = run_exec(command_.exec, command_.folder, *worst, interrupts);
    if (on_terminal) screen_.emplace(std::cout);
    return ran;
  }

  // The report's options without what is written to standard output.
  ReportOptions files_only() const {
    ReportOptions out = command_.report;
    out.quiet = true;
    std::erase_if(out.outputs, [](const std::string& o) { return o.ends_with("=-"); });
    return out;
  }

  ExitStatus conclude(bool with_report) {
    ReportOptions options = command_.report;
    options.quiet |= !with_report;
    if (with_report && !options.quiet) said_ << "\n" << std::flush;
    if (const Status written = write_reports(report_, look_->run, options); !written)
      return fail(written.error(), ExitStatus::own_failure);
    const ExitStatus status = exit_status(report_.report, command_.report.fail_on);
    return status == ExitStatus::clean && command_.report.fail_on != "never" && ended_badly()
               ? ExitStatus::inconclusive
               : status;
  }

  // A job that did not complete is never clean, even if its traces show no fault.
  bool ended_badly() const {
    return look_->over && std::any_of(look_->run.ranks.begin(), look_->run.ranks.end(),
                                      [](const RankTrace& t) { return t.end != End::clean; });
  }

  // Waits; the signal that ended it, or 0. Draws anew where the terminal's size changes meanwhile.
  int pause(Nanos time, Interrupts& interrupts) {
    const Nanos end = monotonic_nanos() + time;
    while (true) {
      if (const int signal = interrupts.poll(); signal != 0) return signal;
      const Nanos left = end - monotonic_nanos();
      if (left <= 0) return 0;
      std::this_thread::sleep_for(
          std::min<std::chrono::nanoseconds>(kSlice, std::chrono::nanoseconds(left)));
      if (!screen_) continue;
      const ScreenSize size = terminal_size(STDOUT_FILENO);
      if (size.width != shown_size_.width || size.height != shown_size_.height) draw();
    }
  }

  const WatchCommand& command_;
  const bool taken_;  // standard output, by a report
  std::ostream& said_;
  Filter filter_;
  WatchSource source_;
  std::optional<WatchSource::Look> look_;
  FilteredReport report_;
  bool stuck_ = false;
  WatchState state_;
  std::optional<TerminalScreen> screen_;
  ScreenSize shown_size_;
  std::set<std::string> acted_on_;  // fingerprints
  std::string told_;                // the last line of progress, and when it was told
  Nanos told_at_ = 0;
  Nanos began_ = 0;
  Nanos cost_ = 0;  // of the last look
};

}  // namespace

void add_watch(CLI::App& app, ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("watch", "Follow a running job: who waits, and is it stuck?");
  const auto options = std::make_shared<WatchCommand>();
  command->add_option("DIR", options->folder, "The folder of the job's ring files")
      ->type_name("")
      ->required();
  command->add_flag("--once", options->once, "Say how it stands now, and end; for cron");
  command
      ->add_option("--interval", options->interval_s,
                   "Seconds between two looks; more where a look\ntakes long")
      ->type_name("S")
      ->check(CLI::Range(0.05, 3600.0).description(""))
      ->capture_default_str();
  command
      ->add_option("--late", options->late_s,
                   "Tell of ranks so many seconds behind the median\nof their group, in lines")
      ->type_name("S")
      ->check(CLI::Range(0.001, 86400.0).description(""))
      ->capture_default_str();
  command
      ->add_option("--exec", options->exec,
                   "Run this with /bin/sh for what is newly found\n"
                   "at or above --fail-on; $LOCKSTEP_RULE, _MESSAGE,\n"
                   "_CULPRITS and others tell it what")
      ->type_name("CMD");
  command->add_flag("--ignore-processes", options->ignore_processes,
                    "The ranks run in another container: do not take\n"
                    "one whose process is not here for killed");
  add_report_options(*command, options->report);
  command->footer(kWatchFooter);
  command->callback([options, &status] { status = Watcher(*options).run(); });
}

}  // namespace lockstep
