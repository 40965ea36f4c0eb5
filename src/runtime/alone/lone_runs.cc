#include "runtime/alone/lone_runs.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "base/read_file.h"
#include "runtime/process_groups.h"
#include "runtime/record/job_ring.h"
#include "runtime/record/recording_work.h"
#include "runtime/result.h"
#include "runtime/train_loop.h"
#include "runtime/worker.h"

namespace lockstep {
namespace {

constexpr std::size_t kListBytes = std::size_t{1} << 28U;

// The scenarios, each read once.
class Scenarios {
 public:
  Result<const Scenario*> get(const std::string& file, int rank) {
    const auto known = read_.find(file);
    if (known != read_.end()) return &known->second;
    Result<Scenario> scenario = load_scenario(file);
    if (!scenario) return scenario.error();
    WorkerOptions options;
    options.rank = rank;
    options.world_size = scenario->ranks;
    if (const Status ok = check_runnable(*scenario, options); !ok) return ok.error();
    return &read_.emplace(file, std::move(*scenario)).first->second;
  }

 private:
  std::map<std::string, Scenario> read_;
};

// Whether the run is left out.
Result<bool> shows_nothing_new(const LoneRun& run) {
  if (run.unless_same_as.empty()) return false;
  const Result<std::string> one = read_file(run.broadcasts, kListBytes);
  if (!one) return one.error();
  const Result<std::string> other = read_file(run.unless_same_as, kListBytes);
  if (!other) return other.error();
  return *one == *other;
}

Status run_one(const Scenario& scenario, const LoneRun& run, bool on_meta) {
  Broadcasts broadcasts;
  if (run.rank != 0) {
    Result<Broadcasts> read = Broadcasts::read(run.broadcasts);
    if (!read) return read.error();
    broadcasts = std::move(*read);
  }
  auto ring = make_job_ring(scenario, run.rank, scenario.ranks, run.trace);
  if (!ring) return ring.error();
  Recorder recorder(**ring);
  const auto dissents = [&] {
    return std::find(run.dissent.begin(), run.dissent.end(), recorder.context().step) !=
           run.dissent.end();
  };
  WorkerResult result;
  result.rank = run.rank;
  try {
    ProcessGroups groups(Others{dissents, &broadcasts}, RankOf{run.rank, scenario.ranks}, recorder,
                         on_meta);
    TrainLoop(scenario, groups, recorder, result).run();
    recorder.ring().finish(End::clean);
  } catch (const std::exception& error) {
    record_exception(recorder, run.rank, message_of(error));
  }
  const Status saved = write_result(result, file_of_rank(run.trace, run.rank, ".result.json"));
  if (!saved) return saved;
  // Also where training ended early: what was sent until then was sent.
  return run.rank == 0 ? broadcasts.write(run.broadcasts) : Status::ok();
}

}  // namespace

Result<std::vector<LoneRun>> read_lone_runs(const std::string& file) {
  const Result<std::string> text = read_file(file, kListBytes);
  if (!text) return text.error();
  std::vector<LoneRun> out;
  try {
    for (const nlohmann::json& entry : nlohmann::json::parse(*text)) {
      out.push_back({entry.at("scenario"), entry.at("rank"), entry.at("trace"),
                     entry.at("broadcasts"), entry.value("dissent", std::vector<std::int64_t>()),
                     entry.value("unless_same_as", std::string())});
    }
  } catch (const nlohmann::json::exception& error) {
    return Error{std::string("this is no list of ranks to look at: ") + error.what(),
                 {file},
                 "`lockstep derive` writes one"};
  }
  return out;
}

Status run_alone(const std::vector<LoneRun>& runs, bool on_meta) {
  at::set_num_threads(1);
  Scenarios scenarios;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Result<bool> left_out = shows_nothing_new(runs[i]);
    if (!left_out) return left_out.error();
    if (*left_out) continue;
    const Result<const Scenario*> scenario = scenarios.get(runs[i].scenario, runs[i].rank);
    if (!scenario) return scenario.error();
    if (const Status ok = run_one(**scenario, runs[i], on_meta); !ok) return ok;
    std::printf("alone: %zu\n", i + 1);
    std::fflush(stdout);
  }
  return Status::ok();
}

}  // namespace lockstep
