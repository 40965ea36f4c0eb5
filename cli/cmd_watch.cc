// lockstep watch DIR: follows a job that somebody else started, and says why it hangs once it does.
#include <memory>

#include "cli/commands.h"
#include "cli/report_options.h"
#include "runtime/launch/watch.h"

namespace lockstep::cli {
namespace {

constexpr const char* kWatchFooter = R"(Examples:
  What are the ranks of this job doing, and who waits for whom?
    lockstep watch lockstep-runs/my-job-20260401/
  In a script: wait until the job ends or a hang is proven, then send a mail:
    lockstep watch /tmp/job-4711 --exec 'mail -s "$LOCKSTEP_RULE" me < r.txt' \
        --output text=r.txt | tee watch.log
  From cron, or a health check of the scheduler; status 1 means it hangs:
    lockstep watch /tmp/job-4711 --once --quiet || scancel 4711

Reads the ring files in DIR, which the job writes while it runs, and changes
nothing there. Ends when every rank has ended, or when it is proven that the job
can never continue. Details: docs/watch.md.

Exit status: 0 clean, 1 findings, 2 bad usage, 3 inconclusive.)";

}  // namespace

void add_watch(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("watch", "Follow a running job: who waits, and is it stuck?");
  const auto options = std::make_shared<runtime::WatchOptions>();
  command->add_option("DIR", options->folder, "The folder of the job's ring files")
      ->type_name("")
      ->required();
  command->add_flag("--once", options->once, "Print the current state and exit; for cron");
  command
      ->add_option("--interval", options->interval_s,
                   "Seconds between two polls; more if one takes long")
      ->type_name("S")
      ->check(CLI::Range(0.05, 3600.0).description(""))
      ->capture_default_str();
  command
      ->add_option(
          "--late", options->late_s,
          "Print a line for each rank that is this many\nseconds behind the median of its group")
      ->type_name("S")
      ->check(CLI::Range(0.001, 86400.0).description(""))
      ->capture_default_str();
  command
      ->add_option("--exec", options->exec,
                   "Run this with /bin/sh for new findings at or\n"
                   "above --fail-on; $LOCKSTEP_RULE, _MESSAGE,\n"
                   "_CULPRITS and others describe the finding")
      ->type_name("CMD");
  command->add_flag("--ignore-processes", options->ignore_processes,
                    "The ranks run in another container: do not count\n"
                    "a rank as killed because its process is not here");
  add_report_options(*command, options->report);
  command->footer(kWatchFooter);
  command->callback([options, &status] { status = runtime::watch_job(*options); });
}

}  // namespace lockstep::cli
