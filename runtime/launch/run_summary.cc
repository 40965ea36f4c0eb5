#include "runtime/launch/run_summary.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "base/tables.h"
#include "base/text.h"
#include "runtime/launch/expectation.h"
#include "runtime/launch/run_folder.h"
#include "verify/rules/rules.h"

namespace lockstep::runtime {

namespace {

// Widths and lengths, so that lines fit a terminal of 80 columns.
constexpr std::size_t kTableColumns = 80;
constexpr std::size_t kRanksColumns = 9;
constexpr std::size_t kLogLines = 3;
constexpr std::size_t kLogColumns = 300;

// "at step 7 of 200": the steps that every rank had finished.
std::string how_far(const JobOutcome& outcome) {
  std::string out = "at step " + std::to_string(outcome.steps);
  if (outcome.planned_steps > 0) out += " of " + std::to_string(outcome.planned_steps);
  return out;
}

// For a job that we ended before its end: whether it moved, and whether anything was found.
std::string until_then(const JobOutcome& outcome) {
  constexpr double kLongQuietS = 2;
  std::string out;
  if (outcome.quiet_s > kLongQuietS)
    out += "nothing had moved for " + fixed(outcome.quiet_s, 0) + " s\n";
  if (outcome.report.verdict != verify::Verdict::findings)
    out += "nothing was found wrong until then\n";
  return out;
}

std::string how_it_ended(const JobOutcome& outcome) {
  const std::string wall = fixed(outcome.wall_s, 1) + " s";
  switch (outcome.end) {
    case JobEnd::completed:
      return "all " + plural(outcome.workers.size(), "rank") + " finished in " + wall + "\n";
    case JobEnd::stopped:
      return "hang proven " + fixed(outcome.proof_s.value_or(0), 2) +
             " s after the last movement; the job was ended after " + wall + "\n";
    case JobEnd::failed:
      return "the job failed after " + wall + "\n";
    case JobEnd::timed_out:
      return "ended " + how_far(outcome) + ", after " + wall +
             ", the limit of the scenario (limits.total_s)\n" + until_then(outcome);
    case JobEnd::interrupted:
      return "interrupted " + how_far(outcome) + ", after " + wall + "\n" + until_then(outcome);
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
    out += "rank " + std::to_string(worker.rank) + " " + how;
    out += lines.empty() ? "\n" : "; its log ends with:\n";
    for (const std::string& line : lines)
      out += "  " + wrap(line.substr(0, kLogColumns), 76, 2) + "\n";
  }
  for (const auto& [how, ranks] : exited) {
    out += (ranks.size() == 1 ? "rank " : "ranks ") + ranges(ranks) + " " + how + "; see rank_" +
           std::to_string(ranks.front()) + ".log\n";
    const WorkerOutcome& first = outcome.workers[static_cast<std::size_t>(ranks.front())];
    if (const auto error = last_error(first.log)) {
      out += "  " + wrap(error->message, 76, 2) + "\n";
      if (!error->fix.empty()) out += "  fix: " + wrap(error->fix, 76, 7) + "\n";
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
    out += (of.size() == 1 ? "rank " : "ranks ") + ranges(of) + " hung in\n  " +
           wrap(location.substr(0, kLogColumns), 76, 2) + "\n";
  }
  return out;
}

std::string balance_in_words(const WorkerNumbers::Balance& balance) {
  const auto phase = [](double idle, std::int64_t steps, const char* how) {
    return fixed(100 * idle, 0) + " % in " + plural(static_cast<std::uint64_t>(steps), "step") +
           how;
  };
  std::string out = "idle while the slowest rank computes: ";
  out += phase(balance.fixed_idle_share, balance.fixed_steps, " as dealt");
  if (balance.balanced_steps > 0) {
    out += ",\n  " +
           phase(balance.balanced_idle_share, balance.balanced_steps, " distributed by cost") +
           " (an image " + fixed(balance.image_ms, 2) + " ms, a text " + fixed(balance.text_ms, 2) +
           " ms)";
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
    out += "loss " + fixed(*n.first_loss, 3) + " -> " + fixed(*n.last_loss, 3) + " over " +
           plural(static_cast<std::uint64_t>(n.steps), "step") + " (rank " +
           std::to_string(first->rank) + ")" +
           (outcome.times_mean_nothing ? "" : ", " + fixed(n.step_ms_median, 0) + " ms a step") +
           "\n";
  if (outcome.times_mean_nothing) out += "the ranks shared GPUs: times mean nothing\n";
  if (n.retrieval && n.retrieval->items > 0)
    out += "retrieval: " + fixed(100 * n.retrieval->recall_at_1, 0) + " % of " +
           std::to_string(n.retrieval->items) +
           " held-out images find their caption first,\n           " +
           fixed(100 * n.retrieval->recall_at_5, 0) + " % among 5, " +
           fixed(100 * n.retrieval->recall_at_10, 0) + " % among 10 (chance " +
           fixed(100 * n.retrieval->chance, 1) + " %)\n";
  std::string idle;
  for (const WorkerOutcome& worker : outcome.workers) {
    if (!worker.numbers || !worker.numbers->idle_share) continue;
    idle += (idle.empty() ? "" : ", ") + std::to_string(worker.rank) + ": " +
            fixed(100 * *worker.numbers->idle_share, 0) + " %";
  }
  if (!idle.empty()) out += "waiting for the other stage, by rank: " + idle + " of a step\n";
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
    out += plural(static_cast<std::uint64_t>(skipped), "item") +
           " could not be read, and were left out (lockstep-worker data check)\n";
  }
  if (n.steps > 0 && !outcome.times_mean_nothing) {
    out += "waiting for data took " + fixed(100 * data, 1) + " % of a step, recording " +
           fixed(100 * recording, 2) + " %";
    if (watch > 0) out += ", fingerprints " + fixed(100 * watch, 1) + " %";
    out += "\n";
  }
  return out;
}

std::string strategy_in_words(const Scenario& scenario) {
  if (scenario.strategy.kind == Scenario::Strategy::Kind::fsdp) {
    const int shard = scenario.strategy.shard_ranks;
    return shard == 0 || shard == scenario.ranks
               ? "FSDP"
               : "hybrid FSDP over " + plural(static_cast<std::uint64_t>(shard), "rank");
  }
  if (scenario.strategy.kind == Scenario::Strategy::Kind::pipeline) {
    const bool gpipe = scenario.strategy.schedule == Scenario::Strategy::Schedule::gpipe;
    const auto count = static_cast<std::uint64_t>(scenario.strategy.micro_batches);
    const std::string stages = scenario.strategy.stages == 2 ? "" : "of four stages ";
    return "a pipeline " + stages + "(" + (gpipe ? "GPipe" : "1F1B") + ", " +
           plural(count, "micro-batch", "micro-batches") + ")";
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

std::string padded_row(const std::vector<std::string>& cells,
                       const std::vector<std::size_t>& widths) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i)
    out += i + 1 == cells.size() ? cells[i] : pad_right(cells[i], widths[i]) + "  ";
  return out + "\n";
}

}  // namespace

std::string job_in_words(const Scenario& scenario) {
  if (scenario.replays()) {
    return plural(static_cast<std::uint64_t>(scenario.ranks), "rank") + " on gloo, the calls of " +
           printable(scenario.replay);
  }
  return plural(static_cast<std::uint64_t>(scenario.ranks), "rank") +
         (scenario.backend == Scenario::Backend::nccl ? " on nccl" : " on gloo") +
         (scenario.share_gpus ? " (sharing GPUs: times mean nothing), " : ", ") +
         strategy_in_words(scenario) + ", " + remedy_in_words(scenario.remedy) +
         (scenario.fault == Fault::none
              ? ", "
              : ", fault " + std::string(to_string(scenario.fault)) + ", ") +
         plural(static_cast<std::uint64_t>(scenario.train.steps), "step");
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
  std::vector<std::vector<std::string>> cells = {
      {"scenario", "verdict", "rule", "ranks", "expected", "time"}};
  for (const TableRow& row : rows)
    cells.push_back({printable(row.scenario), row.verdict, row.rule,
                     shorten_middle(row.culprits, kRanksColumns), row.expected,
                     fixed(row.wall_s, 1) + " s"});
  std::vector<std::size_t> widths(cells[0].size());
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(line[i]));
  }
  // Shorten the names so that the other columns and two spaces between columns fit.
  const std::size_t others =
      std::accumulate(widths.begin() + 1, widths.end(), 2 * (widths.size() - 1));
  widths[0] = std::min(widths[0], kTableColumns - others);
  for (auto& line : cells) line[0] = shorten_middle(line[0], widths[0]);
  std::string out;
  for (const auto& line : cells) out += padded_row(line, widths);
  return out;
}

namespace {

constexpr double kPlainIntervalS = 5;

}  // namespace

std::string RunProgress::line(const JobProgress& progress, double elapsed_s) {
  const std::string ranks = plural(static_cast<std::uint64_t>(options_.ranks), "rank");
  if (progress.started < options_.ranks)
    return "starting  " + std::to_string(progress.started) + " of " + ranks;
  std::string out = "step " + std::to_string(progress.steps);
  if (options_.steps > 0) out += "/" + std::to_string(options_.steps);
  if (progress.loss) out += "  loss " + fixed(*progress.loss, 3);
  out += "  " + ranks;
  if (progress.steps > first_steps_ && first_steps_ > 0)
    out += "  " +
           fixed(static_cast<double>(progress.steps - first_steps_) / (elapsed_s - first_s_), 1) +
           " steps/s";
  return out;
}

void RunProgress::update(const JobProgress& progress, double elapsed_s) {
  if (options_.silent) return;
  if (first_steps_ == 0 && progress.steps > 0) {
    first_steps_ = progress.steps;
    first_s_ = elapsed_s;
  }
  if (!options_.terminal && elapsed_s - shown_at_s_ < kPlainIntervalS) return;
  const std::string now = line(progress, elapsed_s);
  if (options_.terminal && now == shown_) return;
  shown_ = now;
  shown_at_s_ = elapsed_s;
  if (options_.terminal)
    out_ << "\r" << now << "\x1b[K" << std::flush;
  else
    out_ << now << "  (" << fixed(elapsed_s, 0) << " s)\n" << std::flush;
}

void RunProgress::finish() {
  if (options_.terminal && !shown_.empty()) out_ << "\r\x1b[K" << std::flush;
  shown_.clear();
}

}  // namespace lockstep::runtime
