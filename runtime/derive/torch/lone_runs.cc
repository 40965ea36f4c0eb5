#include "runtime/derive/torch/lone_runs.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include <ATen/Parallel.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "runtime/derive/torch/work_count.h"
#include "runtime/faults/faults.h"
#include "runtime/groups/process_groups.h"
#include "runtime/record/c10d/recording_work.h"
#include "runtime/record/job_ring.h"
#include "runtime/train/result.h"
#include "runtime/train/train_loop.h"
#include "runtime/worker/worker.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kListBytes = std::size_t{1} << 28U;
// The second round is as the job goes, unless an answer changes what a rank gives later; the third
// takes that in.
constexpr int kRounds = 3;

// Scenarios, each read only once.
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

// Whether to skip the run, because rank 0's broadcasts are the same as in an earlier one.
Result<bool> shows_nothing_new(const LoneRanks& run) {
  if (run.unless_same_as.empty()) return false;
  const Result<std::string> one = read_file(run.broadcasts, kListBytes);
  if (!one) return one.error();
  const Result<std::string> other = read_file(run.unless_same_as, kListBytes);
  if (!other) return other.error();
  return *one == *other;
}

// Runs one rank. `messages`: between ranks that run together; null: it runs alone. `answers`: of
// the other ranks; null: not known.
Status run_rank(const Scenario& scenario, const LoneRanks& run, int rank, bool on_meta,
                Messages* messages, Answers* answers) {
  Broadcasts broadcasts;
  if (run.ranks.front() != 0) {
    Result<Broadcasts> read = Broadcasts::read(run.broadcasts);
    if (!read) return read.error();
    broadcasts = std::move(*read);
  }
  auto ring = make_job_ring(
      scenario, {rank, scenario.ranks, run.folder, records_of(scenario, rank), /*queued=*/false});
  if (!ring) return ring.error();
  Recorder recorder(**ring);
  const auto now_among = [&recorder](const std::vector<std::int64_t>& steps) {
    return std::find(steps.begin(), steps.end(), recorder.context().step) != steps.end();
  };
  Others others;
  others.dissent = [&] { return now_among(run.dissent); };
  if (run.overflows) others.overflow = [&] { return now_among(*run.overflows); };
  others.broadcasts = &broadcasts;
  others.messages = messages;
  others.answers = answers;
  trace::RankCosts costs;
  costs.rank = rank;  // also if it raises an exception
  WorkerResult result;
  result.rank = rank;
  try {
    ProcessGroups groups(others, RankOf{rank, scenario.ranks}, recorder, on_meta);
    WorkCount work(recorder, run.costs);
    const std::unique_ptr<TrainLoop> loop = make_train_loop(scenario, groups, recorder, result);
    loop->run();
    recorder.ring().finish(trace::End::clean);
    costs = {rank, loop->state_bytes(), work.other_threads_nanos(), work.take()};
  } catch (const std::exception& error) {
    record_exception(recorder, rank, message_of(error));
  }
  const Status saved = write_result(result, file_of_rank(run.folder, rank, ".result.json"));
  if (!saved) return saved;
  if (run.costs != LoneRanks::Costs::none) {
    const Status kept =
        write_file(trace::costs_file(run.folder, rank), trace::work_costs_text(costs));
    if (!kept) return kept;
  }
  // Also if training ended early: what was sent until then was sent.
  return rank == 0 ? broadcasts.write(run.broadcasts) : Status::ok();
}

using GivenByRank = std::map<int, Answers::Given>;

// `before`, `now`: what ranks that are `answered` gave in the round before, and give in this one.
Status run_one(const Scenario& scenario, const LoneRanks& run, bool on_meta,
               const GivenByRank& before, GivenByRank& now) {
  if (run.ranks.size() == 1) {
    const int rank = run.ranks.front();
    if (!run.answered) return run_rank(scenario, run, rank, on_meta, nullptr, nullptr);
    Answers answers(scenario.ranks, before);
    const Status ended = run_rank(scenario, run, rank, on_meta, nullptr, &answers);
    now[rank] = answers.take();
    return ended;
  }
  Messages messages(run.ranks.size());
  std::vector<Status> ended(run.ranks.size(), Status::ok());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      at::set_num_threads(1);
      ended[i] = run_rank(scenario, run, run.ranks[i], on_meta, &messages, nullptr);
      messages.end();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto failed =
      std::find_if_not(ended.begin(), ended.end(), [](const Status& s) { return bool(s); });
  return failed == ended.end() ? Status::ok() : *failed;
}

}  // namespace

std::optional<LoneFailure> run_alone(const std::vector<LoneRanks>& list, bool on_meta) {
  at::set_num_threads(1);
  if (std::any_of(list.begin(), list.end(),
                  [](const LoneRanks& run) { return run.costs == LoneRanks::Costs::counts; })) {
    count_allocations();
  }
  Scenarios scenarios;
  GivenByRank before;
  for (int round = 0; round < kRounds; ++round) {
    GivenByRank now;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (round > 0 && !list[i].answered) continue;
      const Result<bool> left_out = shows_nothing_new(list[i]);
      if (!left_out) return LoneFailure{left_out.error()};
      if (*left_out) continue;
      const Result<const Scenario*> scenario =
          scenarios.get(list[i].scenario, list[i].ranks.front());
      if (!scenario) return LoneFailure{scenario.error(), /*refused=*/true};
      if (const Status ok = run_one(**scenario, list[i], on_meta, before, now); !ok)
        return LoneFailure{ok.error()};
      std::printf("alone: %zu\n", i + 1);
      std::fflush(stdout);
    }
    if (now == before || (round == 0 && gave_alike(now))) break;
    before = std::move(now);
  }
  return std::nullopt;
}

}  // namespace lockstep::runtime
