#include "cli/derive_all.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "base/make_folder.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "base/system_error.h"
#include "base/write_file.h"
#include "launch/derivation.h"
#include "launch/process.h"
#include "launch/run_folder.h"
#include "trace/derivation.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kScenarioBytes = std::size_t{1} << 20U;
constexpr std::size_t kBroadcastBytes = std::size_t{1} << 30U;

// "first-0", the folder of the history whose first step meets that condition.
std::string history_folder(std::size_t first) { return "first-" + std::to_string(first); }

std::vector<std::uint32_t> places(const std::vector<std::size_t>& conditions) {
  return {conditions.begin(), conditions.end()};
}

// What the traces mean. `root_first`: what rank 0's first step meets, where what it broadcasts
// depends on that.
ProductSpec spec_of(const Scenario& scenario, const DerivationPlan& plan,
                    std::optional<std::size_t> root_first, const std::vector<std::string>& origin) {
  ProductSpec out;
  out.program = scenario.name;
  out.world_size = scenario.ranks;
  out.assumptions = plan.assumptions;
  out.assumptions.insert(out.assumptions.end(), origin.begin(), origin.end());
  for (const Condition& c : plan.conditions) {
    std::vector<std::string> has;
    for (const Modality m : c.has) has.push_back(to_string(m));
    out.conditions.push_back({c.name, c.phase, has});
  }
  if (plan.agreed) out.choice = ProductSpec::Choice::agreed;
  if (root_first) out.allowed.push_back({{0}, {0}, {static_cast<std::uint32_t>(*root_first)}});
  for (const DerivationPlan::Allowed& a : plan.allowed) {
    out.allowed.push_back({{a.ranks.begin(), a.ranks.end()}, a.steps, places(a.conditions)});
  }
  for (std::size_t i = 0; i < plan.conditions.size(); ++i) {
    out.histories.push_back({static_cast<std::uint32_t>(i), history_folder(i)});
  }
  out.steps = places(plan.later_steps());
  return out;
}

// The traces of all ranks under all histories.
class Deriver {
 public:
  Deriver(const Scenario& scenario, const DerivationPlan& plan, const DeriveAllOptions& options,
          Interrupts& interrupts)
      : scenario_(scenario),
        plan_(plan),
        options_(options),
        interrupts_(interrupts),
        histories_(plan_.conditions.size()),
        progress_(histories_ * static_cast<std::size_t>(scenario.ranks), options.quiet) {}

  // The folders with a product.json: one, or one for each first step of rank 0 where what it
  // broadcasts depends on that.
  Result<std::vector<std::string>> derive() {
    if (const Status ok = write_scenarios(); !ok) return ok.error();
    if (const Status ok = ask_version(); !ok) return ok.error();
    for (std::size_t first = 0; first < histories_; ++first) {
      if (const Status ok = run_root(first); !ok) return ok.error();
    }
    const Result<bool> alike = broadcasts_alike();
    if (!alike) return alike.error();
    std::vector<std::string> out;
    for (std::size_t root = 0; root < (*alike ? 1 : histories_); ++root) {
      if (const Status ok = run_others(root); !ok) return ok.error();
      const fs::path folder = root_folder(root);
      const auto root_first = *alike ? std::optional<std::size_t>() : root;
      const Status written =
          write_file((folder / "product.json").string(),
                     product_text(spec_of(scenario_, plan_, root_first, origin_)));
      if (!written) return written.error();
      out.push_back(folder.string());
    }
    return out;
  }

 private:
  fs::path root_folder(std::size_t root) const {
    return fs::path(options_.folder) / ("root-" + std::to_string(root));
  }
  std::string broadcasts(std::size_t root) const {
    return (root_folder(root) / "broadcasts").string();
  }
  std::string scenario_file(std::size_t first) const {
    return (fs::path(options_.folder) / ("scenario-" + std::to_string(first) + ".yaml")).string();
  }

  Status write_scenarios() {
    const Result<std::string> text = read_file(scenario_.file, kScenarioBytes);
    if (!text) return text.error();
    origin_.push_back("the scenario's text has the SHA-256 " + sha256(*text));
    for (std::size_t first = 0; first < histories_; ++first) {
      const Result<std::string> history =
          history_scenario(*text, scenario_file(first), plan_, first);
      if (!history) return history.error();
      if (const Status ok = write_file(scenario_file(first), *history); !ok) return ok;
    }
    return Status::ok();
  }

  Status ask_version() {
    const std::string file = options_.folder + "/version";
    Result<Process> worker = Process::spawn({options_.worker, "--version"}, file);
    if (!worker) return worker.error();
    while (worker->running()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::vector<std::string> said = last_lines(file, 1);
    if (!worker->poll()->success() || said.empty()) {
      return Error{
          "the worker does not say its version", {options_.worker}, "is it lockstep-worker?"};
    }
    origin_.push_back("derived by " + said.front());
    return Status::ok();
  }

  Status run(std::size_t root, std::size_t first, const std::vector<int>& ranks) {
    const fs::path folder = root_folder(root) / history_folder(first);
    if (const Status ok = make_folder(folder.string()); !ok) return ok;
    std::vector<LoneRank> lone;
    for (const int rank : ranks) lone.push_back({rank, history_dissent(plan_, first)});
    Scenario scenario = scenario_;
    scenario.file = scenario_file(first);
    return run_alone(scenario, lone, {options_.worker, folder.string(), broadcasts(root)},
                     interrupts_, [&] { progress_.one_more(); });
  }

  Status run_root(std::size_t first) { return run(first, first, {0}); }

  // Whether what rank 0 broadcasts does not depend on its first step.
  Result<bool> broadcasts_alike() const {
    std::optional<std::string> one;
    for (std::size_t root = 0; root < histories_; ++root) {
      Result<std::string> text = read_file(broadcasts(root), kBroadcastBytes);
      if (!text) return text.error();
      if (one && *one != *text) return false;
      one = std::move(*text);
    }
    return true;
  }

  Status run_others(std::size_t root) {
    std::vector<int> others;
    for (int rank = 1; rank < scenario_.ranks; ++rank) others.push_back(rank);
    for (std::size_t first = 0; first < histories_; ++first) {
      if (const Status ok = run(root, first, others); !ok) return ok;
      if (first == root) continue;
      // Rank 0 itself, as it is after that first step.
      std::error_code failed;
      fs::copy_file(ring_file((root_folder(first) / history_folder(first)).string(), 0),
                    ring_file((root_folder(root) / history_folder(first)).string(), 0),
                    fs::copy_options::overwrite_existing, failed);
      if (failed)
        return system_error("cannot copy rank 0's trace", failed.value(), options_.folder);
    }
    return Status::ok();
  }

  const Scenario& scenario_;
  const DerivationPlan& plan_;
  const DeriveAllOptions& options_;
  Interrupts& interrupts_;
  std::size_t histories_;
  DeriveProgress progress_;
  std::vector<std::string> origin_;  // what the derivation holds for
};

}  // namespace

DeriveProgress::DeriveProgress(std::size_t total, bool silent)
    : total_(total), silent_(silent || ::isatty(STDERR_FILENO) != 1) {}

DeriveProgress::~DeriveProgress() {
  if (!silent_ && done_ > 0) std::cerr << "\r\x1b[K" << std::flush;
}

void DeriveProgress::one_more() {
  ++done_;
  if (!silent_) std::cerr << "\rderiving " << done_ << " of " << total_ << std::flush;
}

Result<std::vector<std::string>> derive_all(const Scenario& scenario, const DerivationPlan& plan,
                                            const DeriveAllOptions& options,
                                            Interrupts& interrupts) {
  return Deriver(scenario, plan, options, interrupts).derive();
}

}  // namespace lockstep
