#include "runtime/launch/run_summary.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/table.h"
#include "runtime/launch/run_folder.h"
#include "verify/rules/rules.h"

namespace lockstep::runtime {

namespace {

std::string numbers_text(const std::vector<int>& sorted) {
  return sorted.empty() ? "none" : ranges(std::vector<std::int32_t>(sorted.begin(), sorted.end()));
}

// An end as a value of the key "expect: ends", which has none for an interrupted job.
std::string ends(JobEnd end) {
  switch (end) {
    case JobEnd::completed:
      return "completed";
    case JobEnd::stopped:
      return "stopped";
    case JobEnd::failed:
    case JobEnd::timed_out:
      return "failed";
    case JobEnd::interrupted:
      return "interrupted";
  }
  return "";
}

std::string ends(Scenario::Expect::Ends end) {
  switch (end) {
    case Scenario::Expect::Ends::completed:
      return "completed";
    case Scenario::Expect::Ends::stopped:
      return "stopped";
    case Scenario::Expect::Ends::failed:
      return "failed";
  }
  return "";
}

void compare(std::vector<std::string>& out, const std::string& what, const std::string& expected,
             const std::string& found) {
  if (expected != found)
    out.push_back(fmt::format("expected {} {}, found {}", what, expected, found));
}

// Whether a rank failed by itself, and we ended the others when their hang was proven. With Gloo a
// failure closes everybody's connections, so all fail; with NCCL ranks that wait on their devices
// do not notice. Both count as "failed".
bool was_stopped_after_a_failure(const JobOutcome& outcome) {
  return outcome.end == JobEnd::stopped &&
         std::any_of(outcome.workers.begin(), outcome.workers.end(),
                     [](const WorkerOutcome& w) { return !w.ended_by_us && !w.end.success(); });
}

void compare_finding(std::vector<std::string>& out, const Scenario::Expect& expected,
                     const verify::Finding& leading) {
  const std::string name(verify::rule(leading.rule).name);
  const auto& rules = expected.rules;
  if (!rules.empty() && std::find(rules.begin(), rules.end(), name) == rules.end())
    out.push_back(fmt::format("expected rule {}, found {}", join_and(rules), name));
  if (expected.culprits) {
    std::vector<int> culprits;
    for (const trace::Rank rank : leading.culprits) culprits.push_back(rank.value);
    compare(out, "culprits", numbers_text(*expected.culprits), numbers_text(culprits));
  }
  if (expected.step)
    compare(out, "step", std::to_string(*expected.step),
            leading.step ? std::to_string(*leading.step) : "none");
}

}  // namespace

std::vector<std::string> differences(const Scenario::Expect& expected, const JobOutcome& outcome) {
  std::vector<std::string> out;
  const verify::Report& report = outcome.report;
  compare(out, "verdict", expected.verdict, std::string(verify::to_string(report.verdict)));
  if (expected.ends &&
      !(*expected.ends == Scenario::Expect::Ends::failed && was_stopped_after_a_failure(outcome))) {
    compare(out, "the job to be", ends(*expected.ends), ends(outcome.end));
  }
  if (!report.findings.empty())
    compare_finding(out, expected, report.findings.front());
  else if (!expected.rules.empty())
    out.push_back(fmt::format("expected rule {}, found none", join_and(expected.rules)));
  return out;
}

namespace {

// Widths and lengths, so that lines fit a terminal of 80 columns.
constexpr std::size_t kRanksColumns = 9;
constexpr std::size_t kLogLines = 3;
constexpr std::size_t kLogColumns = 300;

// "at step 7 of 200": the steps that every rank had finished.
std::string how_far(const JobOutcome& outcome) {
  std::string out = fmt::format("at step {}", outcome.steps);
  if (outcome.planned_steps > 0) out += fmt::format(" of {}", outcome.planned_steps);
  return out;
}

// For a job that we ended before its end: whether it moved, and whether anything was found.
std::string until_then(const JobOutcome& outcome) {
  constexpr double kLongQuietS = 2;  // a shorter silence is ordinary: ranks compute
  std::string out;
  if (outcome.quiet_s > kLongQuietS)
    out += fmt::format("nothing had moved for {}\n", duration_text(outcome.quiet_s));
  if (outcome.report.verdict != verify::Verdict::findings)
    out += "nothing was found wrong until then\n";
  return out;
}

std::string how_it_ended(const JobOutcome& outcome) {
  const std::string wall = duration_text(outcome.wall_s);
  switch (outcome.end) {
    case JobEnd::completed:
      return fmt::format("all {} finished in {}\n", plural(outcome.workers.size(), "rank"), wall);
    case JobEnd::stopped:
      return fmt::format("hang proven {} after the last movement; the job was ended after {}\n",
                         duration_text(outcome.proof_s.value_or(0)), wall);
    case JobEnd::failed:
      return fmt::format("the job failed after {}\n", wall);
    case JobEnd::timed_out:
      return fmt::format("ended {}, after {}, the limit of the scenario (limits.total_s)\n{}",
                         how_far(outcome), wall, until_then(outcome));
    case JobEnd::interrupted:
      return fmt::format("interrupted {}, after {}\n{}", how_far(outcome), wall,
                         until_then(outcome));
  }
  return "";
}

// Gloo throws in its own thread, where nobody can catch it: the process aborts, and the log names
// Gloo.
std::string end_in_words(const WorkerOutcome& worker, const std::vector<std::string>& log) {
  const bool names_gloo = std::any_of(log.begin(), log.end(), [](const std::string& line) {
    return line.find("gloo") != std::string::npos;
  });
  return worker.end.signal == SIGABRT && names_gloo ? "aborted inside Gloo (SIGABRT)"
                                                    : to_string(worker.end);
}

// Workers that failed. Exceptions are in the report already. For a worker that a signal killed, the
// end of its log is all there is.
std::string deaths(const JobOutcome& outcome) {
  std::string out;
  std::map<std::string, std::vector<std::int32_t>> exited;  // by how
  for (const WorkerOutcome& worker : outcome.workers) {
    if (worker.end.success() || (worker.ended_by_us && !worker.end.immortal)) continue;
    const std::vector<std::string> lines = last_lines(worker.log, kLogLines);
    const std::string how = end_in_words(worker, lines);
    if (worker.end.signal == 0) {
      exited[how].push_back(worker.rank);
      continue;
    }
    out += fmt::format("rank {} {}", worker.rank, how);
    out += lines.empty() ? "\n" : "; its log ends with:\n";
    for (const std::string& line : lines)
      out += fmt::format("  {}\n", wrap(line.substr(0, kLogColumns), 76, 2));
  }
  for (const auto& [how, ranks] : exited) {
    out += fmt::format("{}{} {}; see rank_{}.log\n", ranks.size() == 1 ? "rank " : "ranks ",
                       ranges(ranks), how, ranks.front());
    const WorkerOutcome& first = outcome.workers[static_cast<std::size_t>(ranks.front())];
    if (const auto error = last_error(first.log)) {
      out += fmt::format("  {}\n", wrap(error->message, 76, 2));
      if (!error->fix.empty()) out += fmt::format("  fix: {}\n", wrap(error->fix, 76, 7));
    }
  }
  return out;
}

// Where ranks hung, from their stacks: "ranks 0, 2 hung in poll < …".
std::string hanging_locations(const JobOutcome& outcome) {
  std::map<std::string, std::vector<std::int32_t>> ranks;  // by location
  for (const WorkerOutcome& worker : outcome.workers) {
    if (!worker.hung_in.empty()) ranks[worker.hung_in].push_back(worker.rank);
  }
  std::string out;
  for (const auto& [location, of] : ranks) {
    out += fmt::format("{}{} hung in\n  {}\n", of.size() == 1 ? "rank " : "ranks ", ranges(of),
                       wrap(location.substr(0, kLogColumns), 76, 2));
  }
  return out;
}

std::string balance_in_words(const WorkerNumbers::Balance& balance) {
  const auto phase = [](double idle, std::int64_t steps, const char* how) {
    return fmt::format("{} in {}{}", percent(idle), plural(steps, "step"), how);
  };
  std::string out = "idle while the slowest rank computes: ";
  out += phase(balance.fixed_idle_share, balance.fixed_steps, " as dealt");
  if (balance.balanced_steps > 0) {
    out += fmt::format(
        ",\n  {} (an image {}, a text {})",
        phase(balance.balanced_idle_share, balance.balanced_steps, " distributed by cost"),
        duration_text(balance.image_ms * 1e-3), duration_text(balance.text_ms * 1e-3));
  }
  return out + "\n";
}

std::string numbers_text(const JobOutcome& outcome) {
  const auto first = std::find_if(outcome.workers.begin(), outcome.workers.end(),
                                  [](const WorkerOutcome& w) { return w.numbers.has_value(); });
  if (first == outcome.workers.end()) return "";
  const WorkerNumbers& n = *first->numbers;
  std::string out;
  if (n.first_loss && n.last_loss && n.steps > 0)
    out += fmt::format("loss {} -> {} over {} (rank {}){}\n", fixed(*n.first_loss, 3),
                       fixed(*n.last_loss, 3), plural(n.steps, "step"), first->rank,
                       outcome.times_mean_nothing
                           ? ""
                           : fmt::format(", {} per step", duration_text(n.step_ms_median * 1e-3)));
  if (outcome.times_mean_nothing) out += "the ranks shared GPUs: times mean nothing\n";
  if (n.retrieval && n.retrieval->items > 0)
    out += fmt::format(
        "retrieval: {} of {} held-out images find their caption first,\n"
        "           {} among 5, {} among 10 (chance {})\n",
        percent(n.retrieval->recall_at_1), n.retrieval->items, percent(n.retrieval->recall_at_5),
        percent(n.retrieval->recall_at_10), percent(n.retrieval->chance));
  std::string idle;
  for (const WorkerOutcome& worker : outcome.workers) {
    if (!worker.numbers || !worker.numbers->idle_share) continue;
    idle += fmt::format("{}{}: {}", idle.empty() ? "" : ", ", worker.rank,
                        percent(*worker.numbers->idle_share));
  }
  if (!idle.empty())
    out += fmt::format("waiting for the other stage, by rank: {} of a step\n", idle);
  if (n.balance) out += balance_in_words(*n.balance);
  double recording = 0;
  double watch = 0;
  double data = 0;
  std::int64_t skipped = 0;
  for (const WorkerOutcome& worker : outcome.workers) {
    if (!worker.numbers) continue;
    watch = std::max(watch, worker.numbers->watch_share);
    recording = std::max(recording, worker.numbers->recording_share);
    data = std::max(data, worker.numbers->data_wait_share);
    skipped += worker.numbers->skipped_items;
  }
  if (skipped > 0) {
    out += fmt::format("{} could not be read, and were left out (lockstep-worker data check)\n",
                       plural(skipped, "item"));
  }
  if (n.steps > 0 && !outcome.times_mean_nothing) {
    out += fmt::format("waiting for data took {} of a step, recording {}", percent(data),
                       percent(recording));
    if (watch > 0) out += fmt::format(", fingerprints {}", percent(watch));
    out += "\n";
  }
  return out;
}

std::string strategy_in_words(const Scenario& scenario) {
  if (scenario.strategy.kind == Scenario::Strategy::Kind::fsdp) {
    const int shard = scenario.strategy.shard_ranks;
    return shard == 0 || shard == scenario.ranks
               ? "FSDP"
               : fmt::format("hybrid FSDP over {}", plural(shard, "rank"));
  }
  if (scenario.strategy.kind == Scenario::Strategy::Kind::pipeline) {
    const bool gpipe = scenario.strategy.schedule == Scenario::Strategy::Schedule::gpipe;
    const auto count = static_cast<std::uint64_t>(scenario.strategy.micro_batches);
    const char* const stages = scenario.strategy.stages == 2 ? "" : "of four stages ";
    return fmt::format("a pipeline {}({}, {})", stages, gpipe ? "GPipe" : "1F1B",
                       plural(count, "micro-batch", "micro-batches"));
  }
  if (scenario.strategy.kind == Scenario::Strategy::Kind::ddp) {
    if (scenario.strategy.static_graph) return "DDP with a static graph";
    return scenario.strategy.find_unused_parameters ? "DDP with find_unused_parameters" : "DDP";
  }
  using Groups = Scenario::Strategy::Groups;
  switch (scenario.strategy.process_groups) {
    case Groups::one:
      return "manual gradient sync";
    case Groups::per_modality:
      return "manual gradient sync in a group per modality";
    case Groups::image_ranks:
      return "manual gradient sync in a group of the image ranks";
  }
  return "";
}

std::string remedy_in_words(const Scenario::Remedy& remedy) {
  using Kind = Scenario::Remedy::Kind;
  switch (remedy.kind) {
    case Kind::none:
      return "no remedy";
    case Kind::dummy_image:
      return "dummy images";
    case Kind::alternating:
      return "alternating modalities";
    case Kind::presence_vote:
      return "a vote on who has images";
    case Kind::gradient_mask:
      return "masked gradients";
    case Kind::empty_image:
      return "empty images";
  }
  return "";
}

}  // namespace

std::string job_in_words(const Scenario& scenario) {
  if (scenario.replays()) {
    return fmt::format("{} on gloo, the calls of {}", plural(scenario.ranks, "rank"),
                       printable(scenario.replay));
  }
  return fmt::format(
      "{} on {}{}, {}, {}, {}{}", plural(scenario.ranks, "rank"),
      scenario.backend == Scenario::Backend::nccl ? "nccl" : "gloo",
      scenario.share_gpus ? " (sharing GPUs: times mean nothing)" : "", strategy_in_words(scenario),
      remedy_in_words(scenario.remedy),
      scenario.fault == Fault::none ? "" : fmt::format("fault {}, ", to_string(scenario.fault)),
      plural(scenario.train.steps, "step"));
}

std::string run_summary(const JobOutcome& outcome) {
  return how_it_ended(outcome) + deaths(outcome) + hanging_locations(outcome) +
         numbers_text(outcome);
}

TableRow table_row(const Scenario& scenario, const JobOutcome& outcome) {
  TableRow row;
  row.scenario = std::filesystem::path(scenario.file).stem().string();
  row.verdict = verify::to_string(outcome.report.verdict);
  row.wall_s = outcome.wall_s;
  if (!outcome.report.findings.empty()) {
    const verify::Finding& leading = outcome.report.findings.front();
    row.rule = verify::rule(leading.rule).name;
    std::vector<std::int32_t> culprits;
    for (const trace::Rank rank : leading.culprits) culprits.push_back(rank.value);
    row.culprits = ranges(culprits);
  }
  if (scenario.expect) row.expected = differences(*scenario.expect, outcome).empty() ? "yes" : "NO";
  return row;
}

std::string table(const std::vector<TableRow>& rows) {
  reports::Table out(
      reports::columns({"scenario", "verdict", "rule", "ranks", "expected", "time"}, {}));
  for (const TableRow& row : rows)
    out.add({row.scenario, row.verdict, row.rule, shorten_middle(row.culprits, kRanksColumns),
             row.expected, duration_text(row.wall_s)});
  return out.text();
}

std::string RunProgress::text(const JobProgress& progress, double elapsed_s) const {
  const std::string ranks = plural(job_.ranks, "rank");
  if (progress.started < job_.ranks)
    return fmt::format("starting  {} of {}", progress.started, ranks);
  std::string out = fmt::format("step {}", progress.steps);
  if (job_.steps > 0) out += fmt::format("/{}", job_.steps);
  if (progress.loss) out += fmt::format("  loss {}", fixed(*progress.loss, 3));
  out += fmt::format("  {}", ranks);
  if (progress.steps > first_steps_ && first_steps_ > 0)
    out += fmt::format(
        "  {} steps/s",
        number_text(static_cast<double>(progress.steps - first_steps_) / (elapsed_s - first_s_)));
  return out;
}

void RunProgress::update(const JobProgress& progress, double elapsed_s) {
  if (first_steps_ == 0 && progress.steps > 0) {
    first_steps_ = progress.steps;
    first_s_ = elapsed_s;
  }
  line_.show(text(progress, elapsed_s), elapsed_s);
}

}  // namespace lockstep::runtime
