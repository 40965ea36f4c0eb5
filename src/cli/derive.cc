#include "cli/derive.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "base/make_folder.h"
#include "base/read_file.h"
#include "base/text.h"
#include "base/write_file.h"
#include "cli/derive_all.h"
#include "cli/product_command.h"
#include "job/remedy_choices.h"
#include "launch/derivation.h"
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

constexpr int kMostRanks = 64;
constexpr std::size_t kScenarioBytes = std::size_t{1} << 20U;

Status check_size(const Scenario& scenario) {
  if (scenario.ranks <= kMostRanks) return Status::ok();
  return Error{plural(static_cast<std::uint64_t>(scenario.ranks), "rank") +
                   " are looked at one by one, and that takes too long",
               {scenario.file},
               "derive it with at most " + std::to_string(kMostRanks) + " ranks"};
}

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
  const Result<std::vector<std::string>> folders =
      derive_all(scenario, plan, {options.worker, options.folder, options.quiet}, interrupts);
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
    DeriveProgress progress(ranks.size(), options.quiet);
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
