#include "cli/derive.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/read_file.h"
#include "base/system_error.h"
#include "base/text.h"
#include "base/write_file.h"
#include "job/derivation_plan.h"
#include "job/remedy_choices.h"
#include "launch/derivation.h"
#include "launch/run_folder.h"
#include "reports/columns.h"
#include "reports/product_text.h"
#include "trace/call_bytes.h"
#include "trace/derivation.h"
#include "trace/load.h"
#include "verify/compare_calls.h"
#include "verify/product/certificate.h"
#include "verify/product/decide.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr int kMostRanks = 64;
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
                    std::optional<std::size_t> root_first) {
  ProductSpec out;
  out.program = scenario.name;
  out.world_size = scenario.ranks;
  out.assumptions = plan.assumptions;
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

Status make_folder(const fs::path& path) {
  std::error_code failed;
  fs::create_directories(path, failed);
  return failed ? system_error("cannot make the folder", failed.value(), path.string())
                : Status::ok();
}

class Progress {
 public:
  Progress(std::size_t total, bool silent)
      : total_(total), silent_(silent || ::isatty(STDERR_FILENO) != 1) {}
  ~Progress() {
    if (!silent_ && done_ > 0) std::cerr << "\r\x1b[K" << std::flush;
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void one_more() {
    ++done_;
    if (!silent_) std::cerr << "\rderiving " << done_ << " of " << total_ << std::flush;
  }

 private:
  std::size_t total_, done_ = 0;
  bool silent_;
};

// The traces of all ranks under all histories.
class Deriver {
 public:
  Deriver(const Scenario& scenario, DerivationPlan plan, const DeriveOptions& options,
          Interrupts& interrupts)
      : scenario_(scenario),
        plan_(std::move(plan)),
        options_(options),
        interrupts_(interrupts),
        histories_(plan_.conditions.size()),
        progress_(histories_ * static_cast<std::size_t>(scenario.ranks), options.quiet) {}

  // The folders with a product.json: one, or one for each first step of rank 0 where what it
  // broadcasts depends on that.
  Result<std::vector<std::string>> derive() {
    if (const Status ok = write_scenarios(); !ok) return ok.error();
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
      const Status written = write_file((folder / "product.json").string(),
                                        product_text(spec_of(scenario_, plan_, root_first)));
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
    for (std::size_t first = 0; first < histories_; ++first) {
      const Result<std::string> history =
          history_scenario(*text, scenario_file(first), plan_, first);
      if (!history) return history.error();
      if (const Status ok = write_file(scenario_file(first), *history); !ok) return ok;
    }
    return Status::ok();
  }

  Status run(std::size_t root, std::size_t first, const std::vector<int>& ranks) {
    const fs::path folder = root_folder(root) / history_folder(first);
    if (const Status ok = make_folder(folder); !ok) return ok;
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
  DerivationPlan plan_;
  const DeriveOptions& options_;
  Interrupts& interrupts_;
  std::size_t histories_;
  Progress progress_;
};

Status check_size(const Scenario& scenario) {
  if (scenario.ranks <= kMostRanks) return Status::ok();
  return Error{plural(static_cast<std::uint64_t>(scenario.ranks), "rank") +
                   " are looked at one by one, and that takes too long",
               {scenario.file},
               "derive it with at most " + std::to_string(kMostRanks) + " ranks"};
}

}  // namespace

namespace {

// A derivation and what was decided of it. Not moved: the model refers to the derivation.
struct Decided {
  explicit Decided(Derivation read) : derivation(std::move(read)), model(derivation) {
    decision = decide(model);
  }
  Derivation derivation;
  ProductModel model;
  ProductDecision decision;
};
using AllDecided = std::vector<std::unique_ptr<Decided>>;

// Of all first steps that rank 0 may meet.
Result<AllDecided> decide_all(const Scenario& scenario, const DerivationPlan& plan,
                              const DeriveOptions& options, Interrupts& interrupts) {
  Deriver deriver(scenario, plan, options, interrupts);
  const Result<std::vector<std::string>> folders = deriver.derive();
  if (!folders) return folders.error();
  AllDecided out;
  for (const std::string& folder : *folders) {
    Result<Derivation> read = load_derivation(folder);
    if (!read) return read.error();
    out.push_back(std::make_unique<Decided>(std::move(*read)));
  }
  return out;
}

int badness(ProductVerdict verdict) {
  switch (verdict) {
    case ProductVerdict::safe:
      return 0;
    case ProductVerdict::inconclusive:
      return 1;
    case ProductVerdict::raises:
      return 2;
    case ProductVerdict::may_deadlock:
      return 3;
    case ProductVerdict::diverges:
      return 4;
  }
  return 4;
}

const Decided& worst_of(const AllDecided& all) {
  return **std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return badness(a->decision.verdict) < badness(b->decision.verdict);
  });
}

ExitStatus status_of(ProductVerdict verdict) {
  if (verdict == ProductVerdict::safe) return ExitStatus::clean;
  return verdict == ProductVerdict::inconclusive ? ExitStatus::inconclusive : ExitStatus::findings;
}

// By step, then by rank: all steps up to the last that the assignment makes; those that it leaves
// out are as the one before.
std::vector<std::vector<std::size_t>> conditions_of(const Assignment& assignment) {
  std::vector<std::vector<std::size_t>> out;
  for (std::size_t i = 0; i < assignment.steps.size(); ++i) {
    std::vector<std::size_t> row;
    for (const ProductOption& option : assignment.options[i]) row.push_back(option.condition);
    const auto step = static_cast<std::size_t>(assignment.steps[i]);
    while (out.size() < step && !out.empty()) out.push_back(out.back());
    out.push_back(std::move(row));
  }
  return out;
}

Status write_counterexample(const Scenario& scenario, const DerivationPlan& plan,
                            const ProductDecision& decision, const std::string& file) {
  if (!decision.counterexample) return Status::ok();
  const Result<std::string> text = read_file(scenario.file, kScenarioBytes);
  if (!text) return text.error();
  const Result<std::string> shown =
      assignment_scenario(*text, file, plan, conditions_of(decision.counterexample->assignment));
  if (!shown) return shown.error();
  return write_file(file, *shown);
}

// One for each derivation: beside FILE, for the second and further ones, FILE.1, FILE.2, …
Status write_certificates(const AllDecided& all, const std::string& file, std::ostream& said) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Result<std::string> text = write_certificate(all[i]->model, all[i]->decision);
    if (!text) return text.error();
    const std::string own = i == 0 ? file : file + "." + std::to_string(i);
    if (const Status ok = write_file(own, *text); !ok) return ok;
    said << "check it with: lockstep check-certificate " << printable(own) << " "
         << printable(all[i]->derivation.folder) << "\n";
  }
  return Status::ok();
}

// The most bytes that rank 0 puts into the calls of one step.
double bytes_a_step(const Derivation& derivation) {
  double most = 0;
  for (const Run& run : derivation.runs) {
    std::map<std::int32_t, double> by_step;
    for (const Call& call : run.ranks.front().calls) {
      if (call.step != kNone) by_step[call.step] += call_bytes(run, call);
    }
    for (const auto& [step, bytes] : by_step) most = std::max(most, bytes);
  }
  return most;
}

std::string kilobytes(double bytes) { return fixed(bytes * 1e-3, 0) + " KB"; }

// What each remedy would make of the job.
Status tell_remedies(const Scenario& scenario, double bytes, const DeriveOptions& options,
                     Interrupts& interrupts, std::ostream& said) {
  const Result<std::string> text = read_file(scenario.file, kScenarioBytes);
  if (!text) return text.error();
  const Result<std::vector<RemedyChoice>> choices = remedy_choices(*text, scenario.file);
  if (!choices) return choices.error();
  said << "\nremedies, each derived (a step of rank 0 now: " << kilobytes(bytes) << ")\n";
  for (std::size_t i = 0; i < choices->size(); ++i) {
    const RemedyChoice& choice = (*choices)[i];
    DeriveOptions own = options;
    own.folder += "/remedy-" + std::to_string(i);
    if (const Status ok = make_folder(own.folder); !ok) return ok;
    const std::string file = own.folder + "/scenario.yaml";
    if (const Status ok = write_file(file, choice.text); !ok) return ok;
    const Result<Scenario> changed = load_scenario(file);
    if (!changed) return changed.error();
    const Result<DerivationPlan> plan = derivation_plan(*changed);
    if (!plan) return plan.error();
    const Result<AllDecided> decided = decide_all(*changed, *plan, own, interrupts);
    if (!decided) return decided.error();
    const Decided& worst = worst_of(*decided);
    const bool safe = worst.decision.verdict == ProductVerdict::safe;
    said << "  " << pad_right(choice.name, 18) << pad_right(to_string(worst.decision.verdict), 14)
         << (safe ? kilobytes(bytes_a_step(worst.derivation)) + "   " + choice.change : "") << "\n"
         << std::flush;
  }
  return Status::ok();
}

}  // namespace

Result<ExitStatus> derive(const Scenario& scenario, const DeriveOptions& options,
                          Interrupts& interrupts, std::ostream& said) {
  if (const Status ok = check_size(scenario); !ok) return ok.error();
  const Result<DerivationPlan> plan = derivation_plan(scenario);
  if (!plan) return plan.error();
  const Result<AllDecided> decided = decide_all(scenario, *plan, options, interrupts);
  if (!decided) return decided.error();
  const Decided& worst = worst_of(*decided);
  const ProductVerdict verdict = worst.decision.verdict;
  if (!options.quiet) said << product_text_report(worst.model, worst.decision) << std::flush;
  if (!options.write_scenario.empty()) {
    const Status written =
        write_counterexample(scenario, *plan, worst.decision, options.write_scenario);
    if (!written) return written.error();
  }
  if (!options.certificate.empty() && verdict == ProductVerdict::safe) {
    const Status written = write_certificates(*decided, options.certificate, said);
    if (!written) return written.error();
  }
  const bool wrong = verdict != ProductVerdict::safe && verdict != ProductVerdict::inconclusive;
  if (options.remedies && wrong && !options.quiet) {
    const Status told =
        tell_remedies(scenario, bytes_a_step(worst.derivation), options, interrupts, said);
    if (!told) return told.error();
  }
  return status_of(verdict);
}

Result<ExitStatus> derive_against(const Scenario& scenario, const std::string& recorded,
                                  const DeriveOptions& options, Interrupts& interrupts,
                                  std::ostream& said) {
  if (const Status ok = check_size(scenario); !ok) return ok.error();
  // What cannot be derived is refused here as well.
  if (const Result<DerivationPlan> plan = derivation_plan(scenario); !plan) return plan.error();
  const Result<Run> run = load_run({recorded});
  if (!run) return run.error();
  std::vector<LoneRank> ranks;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    ranks.push_back({rank, dissent_steps(scenario, rank)});
  }
  {
    Progress progress(ranks.size(), options.quiet);
    const Status ran =
        run_alone(scenario, ranks, {options.worker, options.folder, options.folder + "/broadcasts"},
                  interrupts, [&] { progress.one_more(); });
    if (!ran) return ran.error();
  }
  const Result<Run> derived = load_run({options.folder});
  if (!derived) return derived.error();
  if (derived->ranks.size() != run->ranks.size()) {
    return Error{"the run has " + plural(run->ranks.size(), "rank") + ", and the scenario " +
                     std::to_string(derived->ranks.size()),
                 {recorded},
                 "compare with a run of this very scenario"};
  }
  bool same = true;
  std::size_t calls = 0;
  std::size_t equal = 0;
  for (std::uint32_t rank = 0; rank < derived->ranks.size(); ++rank) {
    const CallComparison c = compare_calls(*derived, rank, *run, rank);
    const bool fits = c.b_is_beginning();
    same = same && fits;
    calls += c.calls_a;
    equal += c.same() ? 1U : 0U;
    if (options.quiet) continue;
    said << "rank " << rank << ": derived " << plural(c.calls_a, "call") << ", recorded "
         << c.calls_b << ", "
         << (c.same() ? "equal"
             : fits   ? "the recorded ones are its beginning"
                      : "they part")
         << "\n";
    if (fits) continue;
    said << "  at call " << c.equal << "\n  derived   " << wrap(c.a.value_or("nothing"), 68, 12)
         << "\n  recorded  " << wrap(c.b.value_or("nothing"), 68, 12) << "\n";
  }
  if (!options.quiet) {
    said << plural(derived->ranks.size(), "rank") << ", " << plural(calls, "call") << ": "
         << (!same                            ? "the run did something else"
             : equal == derived->ranks.size() ? "recorded as derived"
                                              : "recorded as derived, up to where the job ended")
         << "\n";
  }
  return same ? ExitStatus::clean : ExitStatus::findings;
}

}  // namespace lockstep
