#include "runtime/launch/watch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/interrupts.h"
#include "base/quantities.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "reports/filter/filter.h"
#include "reports/live/screen.h"
#include "reports/live/state.h"
#include "runtime/launch/process.h"
#include "trace/load.h"
#include "verify/rules/rules.h"
#include "verify/verify.h"

namespace lockstep::runtime {

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

// This machine's name as ring files record it.
std::string this_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

// Events that the rank recorded since its start, including those that the ring has overwritten.
std::uint64_t events_of(const trace::RankTrace& trace) {
  return trace.dropped + trace.events.size();
}

}  // namespace

bool has_ended(std::int64_t pid) {
  if (pid <= 0) return false;
  if (kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  const std::string line{std::istreambuf_iterator<char>(stat), {}};
  // "4711 (name) Z 1 …": the name may contain anything, also ")".
  const std::size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end, 3, ") Z") == 0;
}

// Marks ranks whose process has ended as killed.
//
// A rank must be found gone in two polls without new events between them: it may have recorded
// events after the first poll read them and before its end. If a "gone" rank goes on recording in
// two polls, the process ids are from another machine or container; then none of them is used any
// more.
void WatchSource::mark_gone(trace::Run& run) {
  if (!options_.look_for_processes || foreign_processes_) return;
  const std::string host = this_host();
  std::map<trace::Rank, VanishedProcess> gone;
  std::vector<trace::RankTrace*> silent;
  for (trace::RankTrace& trace : run.ranks) {
    if (trace.end != trace::End::cut || (!trace.host.empty() && trace.host != host)) continue;
    if (!has_ended(trace.pid)) continue;
    const auto before = gone_.find(trace.rank);
    VanishedProcess& now =
        gone.emplace(trace.rank, VanishedProcess{events_of(trace), false}).first->second;
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
  for (trace::RankTrace* trace : silent) trace->end = trace::End::killed;
}

Result<std::optional<WatchSource::Poll>> WatchSource::poll() {
  const Result<std::vector<std::string>> files = ring_files(options_.folder);
  if (!files) return files.error();
  if (files->empty()) return std::optional<Poll>();
  trace::LoadOptions reading;
  reading.format = "ring";
  Result<trace::Run> run = trace::load_run(*files, reading);
  if (!run) return run.error();
  mark_gone(*run);
  Poll out;
  const std::string host = this_host();
  out.one_host = std::all_of(
      run->ranks.begin(), run->ranks.end(),
      [&](const trace::RankTrace& trace) { return trace.host.empty() || trace.host == host; });
  const bool all_ended =
      std::none_of(run->ranks.begin(), run->ranks.end(),
                   [](const trace::RankTrace& t) { return t.end == trace::End::cut; });
  const bool all_there = static_cast<std::size_t>(run->world_size) <= run->ranks.size();
  polls_after_end_ = all_ended ? polls_after_end_ + 1 : 0;
  // Absent ranks may still begin, so wait a few polls before the report is final.
  out.over = all_ended && (all_there || polls_after_end_ >= kPollsForAbsent);
  out.report = verify::verify(*run, {.live = !out.over});
  out.run = std::move(*run);
  return std::optional<Poll>(std::move(out));
}

namespace {

constexpr trace::Nanos kSecond = 1'000'000'000;
// Poll at most one twentieth of the time: a poll that took 1 s is followed by 20 s of pause,
// because the job needs the machine.
constexpr trace::Nanos kPollCostFactor = 20;
// Signals and changes of the terminal's size are noticed this fast.
constexpr auto kSlice = std::chrono::milliseconds(50);
constexpr trace::Nanos kSettle = kSecond / 2;            // between the two polls of --once
constexpr trace::Nanos kProgressInterval = 5 * kSecond;  // between two progress lines

// The environment variables of the command of --exec: docs/watch.md. LOCKSTEP_CULPRITS is empty
// where none can be named.
std::vector<std::pair<std::string, std::string>> exec_environment(const std::string& folder,
                                                                  const verify::Finding& worst) {
  std::vector<std::int32_t> culprits;
  for (const trace::Rank rank : worst.culprits) culprits.push_back(rank.value);
  return {{"LOCKSTEP_FOLDER", folder},
          {"LOCKSTEP_RULE", std::string(verify::rule(worst.rule).name)},
          {"LOCKSTEP_SEVERITY", std::string(verify::to_string(worst.severity))},
          {"LOCKSTEP_CERTAINTY", std::string(verify::to_string(worst.certainty))},
          {"LOCKSTEP_CULPRITS", ranges(culprits)},
          {"LOCKSTEP_MESSAGE", printable(worst.message)}};
}

// Runs `command` with /bin/sh and waits for it. Its output goes to standard error. A signal to us
// ends it. Errors: it cannot be started, or exits with an error.
Status run_exec(const std::string& command, const std::string& folder, const verify::Finding& worst,
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
  return Error{fmt::format("the command of --exec {}", to_string(end)),
               {},
               fmt::format("run it by hand: {}", printable(command))};
}

class Watcher {
 public:
  explicit Watcher(const WatchOptions& options)
      : options_(options),
        taken_(reports::takes_stdout(options.report)),
        // A report on standard output ("json=-") must not be mixed with other text.
        stream_(taken_ ? std::cerr : std::cout),
        source_({options.folder, !options.ignore_processes}) {}

  reports::ExitStatus run() {
    if (const Status ready = prepare(); !ready) return reports::fail(ready.error());
    Interrupts interrupts;
    began_ = monotonic_nanos();
    return options_.once ? poll_once(interrupts) : follow(interrupts);
  }

 private:
  Status prepare() {
    if (const Status outputs = reports::check_outputs(options_.report, {options_.folder}); !outputs)
      return outputs;
    Result<reports::Filter> filter = reports::load_filter(options_.report.filter);
    if (!filter) return filter.error();
    filter_ = std::move(*filter);
    std::error_code failed;
    if (fs::is_directory(options_.folder, failed)) return Status::ok();
    const bool is_there = fs::exists(options_.folder, failed);
    // Whoever starts the job and then watches it may be faster than its first rank.
    if (!is_there && !options_.once) return Status::ok();
    return Error{is_there ? "not a folder" : "no such folder",
                 {options_.folder},
                 "name the folder into which the job's ranks write their *.ring files"};
  }

  // The folder is named, and no rank has made it yet.
  bool waits_for_folder() const {
    std::error_code failed;
    return !latest_ && !fs::exists(options_.folder, failed) && !failed;
  }

  // Polls the traces. Keeps the last poll that found ring files.
  Status poll() {
    const trace::Nanos begin = monotonic_nanos();
    if (waits_for_folder()) {
      state_.problem = "there is no such folder yet: waiting for the job's first rank to make it";
      state_.folder = options_.folder;
      state_.watched_s = static_cast<double>(begin - began_) / kSecond;
      return Status::ok();
    }
    Result<std::optional<WatchSource::Poll>> seen = source_.poll();
    const trace::Nanos end = monotonic_nanos();
    cost_ = end - begin;
    if (!seen) {
      state_.problem = seen.error().summary();
      return seen.error();
    }
    state_.problem.clear();
    if (*seen) {
      latest_ = std::move(**seen);
      stuck_ = verify::proves_stuck(latest_->report);
      report_ = reports::filtered(latest_->report, latest_->run, filter_, reports::today_utc());
      state_ = reports::watch_state(latest_->run, report_.report,
                                    latest_->one_host ? end : trace::kNoTime, !latest_->over);
    }
    state_.folder = options_.folder;
    state_.watched_s = static_cast<double>(end - began_) / kSecond;
    return Status::ok();
  }

  // Two polls, because a rank counts as killed only after two.
  reports::ExitStatus poll_once(Interrupts& interrupts) {
    if (const Status first = poll(); !first) return reports::fail(first.error());
    if (!latest_) {
      return reports::fail({"no ring files in this folder",
                            {options_.folder},
                            "has the job begun? `lockstep verify` judges traces of other forms"});
    }
    if (!latest_->over && !stuck_) {
      if (const int signal = pause(kSettle, interrupts); signal != 0)
        return reports::interrupted_by(signal);
      if (const Status second = poll(); !second) return reports::fail(second.error());
    }
    if (!options_.report.quiet) {
      stream_ << reports::watch_screen(state_, {.width = width()},
                                       {.on = !taken_ && stdout_wants_color()})
              << std::flush;
    }
    if (const Status status = act_on_findings(interrupts); !status) reports::fail(status.error());
    return conclude(latest_->over || stuck_ || !report_.report.findings.empty());
  }

  reports::ExitStatus follow(Interrupts& interrupts) {
    const char* const term = std::getenv("TERM");
    const bool on_terminal = ::isatty(STDOUT_FILENO) == 1 && term != nullptr &&
                             std::string_view(term) != "dumb" && !taken_ && !options_.report.quiet;
    if (on_terminal) {
      screen_.emplace(std::cout);
      keyboard_.emplace();
      // Rows keep their places while somebody looks at them.
      view_ = {.sort = reports::WatchView::Sort::rank, .interactive = true};
    }
    while (true) {
      const reports::WatchState before = state_;
      const Status polled = poll();
      measure_speed(before);
      show(before);
      if (const Status status = act_on_findings(interrupts); !status) {
        screen_.reset();
        reports::fail(status.error());
        if (on_terminal) screen_.emplace(std::cout);
      }
      if (polled && latest_ && (latest_->over || stuck_)) break;
      const trace::Nanos interval = static_cast<trace::Nanos>(options_.interval_s * kSecond);
      if (const int signal = pause(std::max(interval, kPollCostFactor * cost_), interrupts);
          signal != 0) {
        leave_screen();
        return reports::interrupted_by(signal);
      }
      if (quit_) {
        leave_screen();
        return latest_ ? conclude(false) : reports::ExitStatus::inconclusive;
      }
    }
    leave_screen();
    return conclude(true);
  }

  void leave_screen() {
    keyboard_.reset();
    screen_.reset();
  }

  // Steps per second since the count last changed: a poll is too short to measure a step by.
  void measure_speed(const reports::WatchState& before) {
    const trace::Nanos now = monotonic_nanos();
    if (state_.ranks.empty()) return;
    if (speed_since_ == 0) {
      speed_since_ = now;
      speed_from_ = state_.steps();
    }
    // Long enough for a rate that does not jump, short enough to follow a job that slows down.
    constexpr trace::Nanos kWindow = 5 * kSecond;
    state_.steps_per_s = before.steps_per_s;
    if (now - speed_since_ < kWindow) return;
    state_.steps_per_s = static_cast<double>(state_.steps() - speed_from_) * kSecond /
                         static_cast<double>(now - speed_since_);
    speed_since_ = now;
    speed_from_ = state_.steps();
  }

  // Takes the keys that were pressed. True: the screen must be drawn again.
  bool take_keys() {
    if (!keyboard_) return false;
    bool changed = false;
    while (const std::optional<KeyPress> pressed = keyboard_->next()) {
      changed = true;
      if (view_.help && pressed->character != 'q')
        view_.help = false;
      else
        act_on(*pressed);
    }
    return changed;
  }

  void act_on(const KeyPress& pressed) {
    const auto page = static_cast<std::ptrdiff_t>(std::max<std::size_t>(shown_size_.height, 8) / 2);
    constexpr std::ptrdiff_t kAll = 1 << 30U;  // more rows than a screen can have
    switch (pressed.key) {
      case Key::up:
        return select(-1);
      case Key::down:
        return select(1);
      case Key::page_up:
        return select(-page);
      case Key::page_down:
        return select(page);
      case Key::home:
        return select(-kAll);
      case Key::end:
        return select(kAll);
      case Key::enter:
      case Key::right:
        if (!view_.selected) select(0);
        view_.detail = view_.selected.has_value();
        return;
      case Key::escape:
      case Key::left:
        if (!view_.detail) view_.selected.reset();
        view_.detail = false;
        return;
      case Key::character:
        break;
    }
    if (pressed.character == 'q') quit_ = true;
    if (pressed.character == '?' || pressed.character == 'h') view_.help = true;
    if (pressed.character == 's') view_.sort = reports::sort_after(view_.sort);
    if (pressed.character == 'k') select(-1);
    if (pressed.character == 'j') select(1);
  }

  void select(std::ptrdiff_t rows) { view_.selected = reports::row_from(state_, view_, rows); }

  std::size_t width() const { return terminal_size(STDOUT_FILENO).width; }

  void draw() {
    shown_size_ = terminal_size(STDOUT_FILENO);
    screen_->draw(reports::watch_screen(state_, shown_size_, {.on = stdout_wants_color()}, view_));
  }

  void show(const reports::WatchState& before) {
    if (options_.report.quiet) return;
    // Without a screen: print what is new since the last poll, and the progress now and then.
    if (screen_) return draw();
    // To a tenth of a second: the first poll comes after microseconds.
    const std::string at =
        fmt::format("{}  ", duration_text(std::round(state_.watched_s * 10) / 10));
    const trace::Nanos late = static_cast<trace::Nanos>(options_.late_s * kSecond);
    for (const std::string& line : reports::watch_news(before, state_, late))
      stream_ << at << line << "\n";
    const trace::Nanos now = monotonic_nanos();
    const std::string progress = reports::progress_text(state_);
    if (progress != last_progress_ &&
        (last_progress_.empty() || now - progress_time_ >= kProgressInterval)) {
      stream_ << at << progress << "\n";
      last_progress_ = progress;
      progress_time_ = now;
    }
    stream_ << std::flush;
  }

  // For findings that are new: writes the reports, then runs the command once, for the worst.
  Status act_on_findings(Interrupts& interrupts) {
    if (options_.exec.empty()) return Status::ok();
    const verify::Finding* worst = nullptr;
    for (const verify::Finding& f : report_.report.findings) {
      verify::Report alone;
      alone.findings = {f};
      const bool counts =
          reports::exit_status(alone, options_.report.fail_on) == reports::ExitStatus::findings;
      if (counts && acted_on_.insert(f.fingerprint).second && worst == nullptr) worst = &f;
    }
    if (worst == nullptr) return Status::ok();
    if (const Status written = reports::write_reports(report_, latest_->run, files_only());
        !written)
      return written;
    const bool on_terminal = screen_.has_value();
    screen_.reset();
    const Status ran = run_exec(options_.exec, options_.folder, *worst, interrupts);
    if (on_terminal) screen_.emplace(std::cout);
    return ran;
  }

  // The report options without output to the terminal.
  reports::ReportOptions files_only() const {
    reports::ReportOptions out = options_.report;
    out.quiet = true;
    std::erase_if(out.outputs, [](const std::string& o) { return o == "-" || o.ends_with("=-"); });
    return out;
  }

  reports::ExitStatus conclude(bool with_report) {
    reports::ReportOptions outputs = options_.report;
    outputs.quiet |= !with_report;
    if (with_report && !outputs.quiet) stream_ << "\n" << std::flush;
    if (const Status written = reports::write_reports(report_, latest_->run, outputs); !written)
      return reports::fail(written.error(), reports::ExitStatus::own_failure);
    const reports::ExitStatus status =
        reports::exit_status(report_.report, options_.report.fail_on);
    return status == reports::ExitStatus::clean && options_.report.fail_on != "never" &&
                   ended_badly()
               ? reports::ExitStatus::inconclusive
               : status;
  }

  // A job that did not complete is never clean, even if its traces show no fault.
  bool ended_badly() const {
    return latest_->over &&
           std::any_of(latest_->run.ranks.begin(), latest_->run.ranks.end(),
                       [](const trace::RankTrace& t) { return t.end != trace::End::clean; });
  }

  // Sleeps for `time`, or until the user quits. Returns the signal that interrupted it, or 0.
  // Redraws when a key was pressed and when the terminal's size changes.
  int pause(trace::Nanos time, Interrupts& interrupts) {
    const trace::Nanos end = monotonic_nanos() + time;
    while (true) {
      if (const int signal = interrupts.poll(); signal != 0) return signal;
      const trace::Nanos left = end - monotonic_nanos();
      if (left <= 0) return 0;
      std::this_thread::sleep_for(
          std::min<std::chrono::nanoseconds>(kSlice, std::chrono::nanoseconds(left)));
      if (!screen_) continue;
      const bool pressed = take_keys();
      if (quit_) return 0;
      const ScreenSize size = terminal_size(STDOUT_FILENO);
      if (pressed || size.width != shown_size_.width || size.height != shown_size_.height) draw();
    }
  }

  const WatchOptions& options_;
  const bool taken_;  // a report goes to standard output
  std::ostream& stream_;
  reports::Filter filter_;
  WatchSource source_;
  std::optional<WatchSource::Poll> latest_;
  reports::FilteredReport report_;
  bool stuck_ = false;
  reports::WatchState state_;
  std::optional<TerminalScreen> screen_;
  std::optional<Keyboard> keyboard_;  // where the screen is
  reports::WatchView view_;
  bool quit_ = false;             // the user pressed q
  trace::Nanos speed_since_ = 0;  // what the speed is measured from: when, and the steps then
  std::int64_t speed_from_ = 0;
  ScreenSize shown_size_;
  std::set<std::string> acted_on_;  // fingerprints
  std::string last_progress_;       // the last progress line, and when it was printed
  trace::Nanos progress_time_ = 0;
  trace::Nanos began_ = 0;
  trace::Nanos cost_ = 0;  // of the last poll
};

}  // namespace

reports::ExitStatus watch_job(const WatchOptions& options) { return Watcher(options).run(); }

}  // namespace lockstep::runtime
