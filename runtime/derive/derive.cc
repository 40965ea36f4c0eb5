#include "runtime/derive/derive.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/interrupts.h"
#include "base/quantities.h"
#include "base/result.h"
#include "base/status_line.h"
#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "reports/findings/forms.h"
#include "reports/findings/product_text.h"
#include "runtime/derive/all_ranks.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/derive/lone_run.h"
#include "runtime/derive/plan_scenarios.h"
#include "runtime/derive/trial.h"
#include "runtime/job/scenario.h"
#include "runtime/job/scenario_variants.h"
#include "runtime/launch/run_folder.h"
#include "runtime/launch/scenario_files.h"
#include "runtime/launch/this_machine.h"
#include "trace/derivation.h"
#include "trace/load.h"
#include "trace/run.h"
#include "verify/certificates/certificate.h"
#include "verify/compare_calls.h"
#include "verify/product/decide.h"

namespace lockstep::runtime {

namespace {

// The options of one derivation, and where it is made.
struct DeriveJob {
  std::string worker;
  std::string folder;          // exists and is empty; keeps scenarios, traces and product.json
  std::string certificate;     // file; empty: none
  std::string write_scenario;  // file, for the counterexample; empty: none
  // KIND=PATH, checked by check_outputs(), for write_product_reports().
  std::vector<std::string> outputs;
  bool remedies = false;  // also derive with each remedy
  // Whether to use the meta device, where tensors have no values; nothing: if models or worlds are
  // large.
  std::optional<bool> on_meta;
  bool quiet = false;
};

// A derivation and its decision. Must not be moved: the model refers to the derivation.
struct Decided {
  explicit Decided(trace::Derivation read) : derivation(std::move(read)), model(derivation) {
    decision = verify::decide(model);
  }
  trace::Derivation derivation;
  verify::ProductModel model;
  verify::ProductDecision decision;
};
using AllDecided = std::vector<std::unique_ptr<Decided>>;

bool is_an_exception(verify::RuleId rule) {
  return rule == verify::RuleId::unused_parameter || rule == verify::RuleId::rank_exception;
}

// If nothing can be decided for all assignments, try a few: one that goes wrong is an answer, too.
Status try_where_inconclusive(const Scenario& scenario, const DerivationPlan& plan,
                              const DeriveJob& options, bool on_meta, Interrupts& interrupts,
                              AllDecided& all) {
  for (const auto& decided : all) {
    if (decided->decision.verdict != verify::ProductVerdict::inconclusive) continue;
    Result<std::optional<verify::Counterexample>> found =
        try_assignments(scenario, plan, decided->model,
                        {options.worker, decided->derivation.folder, on_meta}, interrupts);
    if (!found) return found.error();
    if (!*found) continue;
    const bool raises = is_an_exception((*found)->report.findings.front().rule);
    decided->decision.verdict =
        raises ? verify::ProductVerdict::raises : verify::ProductVerdict::diverges;
    decided->decision.why.clear();
    decided->decision.counterexample = std::move(**found);
  }
  return Status::ok();
}

// Derives and decides, for each first step of rank 0 that makes a difference.
Result<AllDecided> decide_all(const Scenario& scenario, const DerivationPlan& plan,
                              const DeriveJob& options, Interrupts& interrupts) {
  const Result<bool> meta = derive_on_meta(scenario, options.on_meta);
  if (!meta) return meta.error();
  const Result<std::vector<std::string>> folders = derive_all(
      scenario, plan, {options.worker, options.folder, *meta, options.quiet}, interrupts);
  if (!folders) return folders.error();
  AllDecided out;
  for (const std::string& folder : *folders) {
    Result<trace::Derivation> read = trace::load_derivation(folder);
    if (!read) return read.error();
    out.push_back(std::make_unique<Decided>(std::move(*read)));
  }
  if (const Status ok = try_where_inconclusive(scenario, plan, options, *meta, interrupts, out);
      !ok) {
    return ok.error();
  }
  return out;
}

int badness(verify::ProductVerdict verdict) {
  switch (verdict) {
    case verify::ProductVerdict::safe:
      return 0;
    case verify::ProductVerdict::inconclusive:
      return 1;
    case verify::ProductVerdict::raises:
      return 2;
    case verify::ProductVerdict::may_deadlock:
      return 3;
    case verify::ProductVerdict::diverges:
      return 4;
  }
  return 4;
}

const Decided& worst_of(const AllDecided& all) {
  return **std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return badness(a->decision.verdict) < badness(b->decision.verdict);
  });
}

Status write_counterexample(const Scenario& scenario, const DerivationPlan& plan,
                            const verify::ProductDecision& decision, const std::string& file) {
  if (!decision.counterexample) return Status::ok();
  const Result<std::string> text = read_input(scenario.file);
  if (!text) return text.error();
  const Result<std::string> shown =
      assignment_scenario(*text, file, plan, conditions_of(decision.counterexample->assignment));
  if (!shown) return shown.error();
  return write_file(file, *shown);
}

// Writes a certificate for each derivation: FILE, FILE.1, FILE.2, …
Status write_certificates(const AllDecided& all, const std::string& file, std::ostream& stream) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Result<std::string> text = verify::write_certificate(all[i]->model, all[i]->decision);
    if (!text) return text.error();
    const std::string own = i == 0 ? file : fmt::format("{}.{}", file, i);
    if (const Status ok = write_file(own, *text); !ok) return ok;
    stream << "check it with: lockstep check-certificate " << printable(own) << " "
           << printable(all[i]->derivation.folder) << "\n";
  }
  return Status::ok();
}

// The largest step of rank 0 over all conditions: bytes in its calls, and FLOPs.
struct StepCost {
  double bytes = 0;
  double flops = 0;
};

StepCost step_cost(const trace::Derivation& derivation) {
  StepCost most;
  for (std::size_t h = 0; h < derivation.runs.size(); ++h) {
    const trace::Run& run = derivation.runs[h];
    std::map<std::int32_t, double> by_step;
    for (const trace::Call& call : run.ranks.front().calls) {
      if (call.step != trace::kNone) by_step[call.step] += trace::call_bytes(run, call);
    }
    for (const auto& [step, bytes] : by_step) most.bytes = std::max(most.bytes, bytes);
    const std::string folder =
        fmt::format("{}/{}", derivation.folder, derivation.spec.histories[h].folder);
    const auto numbers = read_worker_numbers(result_file(folder, 0));
    if (!numbers) continue;
    for (const double flops : numbers->step_flops) most.flops = std::max(most.flops, flops);
  }
  return most;
}

// "264 MFLOP", with three significant digits.
std::string flop_text(double flops) {
  std::size_t power = 0;
  constexpr std::string_view kPrefixes = " kMGTPE";
  // 999.5 rounds to 1000, so it gets the next prefix: "1 k".
  for (; flops >= 999.5 && power + 1 < kPrefixes.size(); ++power) flops /= 1000;
  return fmt::format("{} {}FLOP", number_text(flops), power == 0 ? "" : kPrefixes.substr(power, 1));
}

// "1.19 MiB sent, 264 MFLOP computed"
std::string to_string(const StepCost& cost) {
  return fmt::format("{} sent, {} computed", bytes_text(cost.bytes), flop_text(cost.flops));
}

// Derives the job with each remedy, and prints verdicts and costs.
Status print_remedies(const Scenario& scenario, const StepCost& now, const DeriveJob& options,
                      Interrupts& interrupts, std::ostream& stream) {
  const Result<std::string> text = read_input(scenario.file);
  if (!text) return text.error();
  const Result<std::vector<RemedyChoice>> choices = remedy_choices(*text, scenario.file);
  if (!choices) return choices.error();
  constexpr std::size_t kName = 18, kVerdict = 14;  // columns
  stream << "\nremedies, each derived; bytes and operations of rank 0's costliest step\n"
         << "  " << pad_right("now", kName + kVerdict) << to_string(now) << "\n";
  for (std::size_t i = 0; i < choices->size(); ++i) {
    const RemedyChoice& choice = (*choices)[i];
    DeriveJob own = options;
    own.folder += fmt::format("/remedy-{}", i);
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
    const bool safe = worst.decision.verdict == verify::ProductVerdict::safe;
    stream << "  " << pad_right(choice.name, kName)
           << pad_right(verify::to_string(worst.decision.verdict), kVerdict)
           << (safe ? to_string(step_cost(worst.derivation)) : "") << "\n"
           << (safe ? fmt::format("    {}\n", choice.change) : "") << std::flush;
  }
  return Status::ok();
}

// Decides for all mixes of batches, and prints the verdict to `stream`. Errors: a job that cannot
// be derived, workers that fail, the user's signal.
Result<reports::ExitStatus> derive(const Scenario& scenario, const DeriveJob& options,
                                   Interrupts& interrupts, std::ostream& stream) {
  const Result<DerivationPlan> plan = derivation_plan(scenario);
  if (!plan) return plan.error();
  const Result<AllDecided> decided = decide_all(scenario, *plan, options, interrupts);
  if (!decided) return decided.error();
  const Decided& worst = worst_of(*decided);
  const verify::ProductVerdict verdict = worst.decision.verdict;
  const reports::ReportOptions files{.outputs = options.outputs};
  // Files first: the reader of the text may close the pipe, which ends this process.
  std::ostringstream certified;
  if (!options.certificate.empty() && verdict == verify::ProductVerdict::safe) {
    const Status written = write_certificates(*decided, options.certificate, certified);
    if (!written) return written.error();
  }
  if (!options.write_scenario.empty()) {
    const Status written =
        write_counterexample(scenario, *plan, worst.decision, options.write_scenario);
    if (!written) return written.error();
  }
  if (const Status written = reports::write_product_reports(worst.model, worst.decision, files);
      !written)
    return reports::fail(written.error(), reports::ExitStatus::own_failure);
  if (!options.quiet && !reports::takes_stdout(files))
    stream << reports::product_text_report(worst.model, worst.decision,
                                           {.width = stdout_columns()});
  stream << certified.str() << std::flush;
  const bool wrong =
      verdict != verify::ProductVerdict::safe && verdict != verify::ProductVerdict::inconclusive;
  if (options.remedies && wrong && !options.quiet) {
    const Status status =
        print_remedies(scenario, step_cost(worst.derivation), options, interrupts, stream);
    if (!status) return status.error();
  }
  return reports::status_of(verdict);
}

// Compares the calls of each rank with those of a run in `recorded`, and prints the result to
// `stream`. A run that was stopped made a prefix of them. True: it agrees. Errors: a folder without
// traces, or of another number of ranks.
Result<bool> agrees(const trace::Run& derived, const std::string& recorded, bool quiet,
                    std::ostream& stream) {
  const Result<trace::Run> run = trace::load_run({recorded});
  if (!run) return run.error();
  if (derived.ranks.size() != run->ranks.size()) {
    return Error{fmt::format("the run has {}, and the scenario {}",
                             plural(run->ranks.size(), "rank"), derived.ranks.size()),
                 {recorded},
                 "compare with a run of this scenario"};
  }
  bool same = true;
  std::size_t calls = 0;
  std::size_t equal = 0;
  for (std::uint32_t rank = 0; rank < derived.ranks.size(); ++rank) {
    const verify::CallComparison c = verify::compare_calls(derived, rank, *run, rank);
    const bool fits = c.b_is_beginning();
    same = same && fits;
    calls += c.calls_a;
    equal += c.same() ? 1U : 0U;
    if (quiet) continue;
    stream << "rank " << rank << ": derived " << plural(c.calls_a, "call") << ", recorded "
           << c.calls_b << ", "
           << (c.same() ? "equal"
               : fits   ? "the recorded ones are the first of them"
                        : "they differ")
           << "\n";
    if (fits) continue;
    stream << "  at call " << c.equal << "\n  derived   " << wrap(c.a.value_or("nothing"), 68, 12)
           << "\n  recorded  " << wrap(c.b.value_or("nothing"), 68, 12) << "\n";
  }
  if (!quiet) {
    stream << plural(derived.ranks.size(), "rank") << ", " << plural(calls, "call") << ": "
           << (!same                           ? "the run did something else"
               : equal == derived.ranks.size() ? "recorded as derived"
                                               : "recorded as derived, up to where the job ended")
           << "\n";
  }
  return same;
}

// The steps of a recorded run in which a float16 gradient overflowed, where its calls tell: the
// ranks agree on it in every step, and only where none overflowed sum the norm that clips. Nothing:
// the calls are the same either way.
std::optional<std::vector<std::int64_t>> overflows_of(const Scenario& scenario,
                                                      const trace::Run& run) {
  if (scenario.strategy.kind != Scenario::Strategy::Kind::fsdp ||
      scenario.train.precision != Scenario::Train::Precision::float16 ||
      !scenario.train.clip.any() || scenario.fault == Fault::local_overflow)
    return std::nullopt;
  std::set<std::int64_t> agreed, clipped;
  for (const trace::RankTrace& rank : run.ranks)
    for (const trace::Call& call : rank.calls)
      for (const std::string& name : run.tables.names(call.what)) {
        if (name == "found_inf") agreed.insert(call.step);
        if (name == "squared_norm") clipped.insert(call.step);
      }
  std::vector<std::int64_t> out;
  std::ranges::set_difference(agreed, clipped, std::back_inserter(out));
  return out;
}

// Derives the calls of each rank for exactly this job into `folder`. Errors: those of run_alone().
Result<trace::Run> derive_job(const Scenario& scenario,
                              const std::optional<std::vector<std::int64_t>>& overflows,
                              const std::string& folder, bool on_meta, const DeriveJob& options,
                              Interrupts& interrupts) {
  std::vector<LoneRanks> all;
  for (const std::vector<int>& ranks : teams(scenario))
    all.push_back({.scenario = scenario.file,
                   .ranks = ranks,
                   .folder = folder,
                   .broadcasts = folder + "/broadcasts",
                   .dissent = dissent_steps(scenario, ranks.front()),
                   .overflows = overflows,
                   .answered = true});
  {
    StatusLine line({.silent = options.quiet});
    const Result<std::string> ran = run_alone(
        all, {options.worker, folder, on_meta}, interrupts,
        [&](std::size_t done) { line.show(fmt::format("deriving {} of {}", done, all.size())); });
    if (!ran) return ran.error();
  }
  return trace::load_run({folder});
}

// Compares the runs with the calls that are derived for exactly this job. Errors: those of
// derive_job() and agrees().
Result<reports::ExitStatus> derive_against(const Scenario& scenario,
                                           const std::vector<std::string>& runs,
                                           const DeriveJob& options, Interrupts& interrupts,
                                           std::ostream& stream) {
  // Jobs that cannot be derived are refused here as well.
  if (const Result<DerivationPlan> plan = derivation_plan(scenario); !plan) return plan.error();
  // Before work is done for nothing.
  std::vector<std::optional<std::vector<std::int64_t>>> overflows;
  for (const std::string& run : runs) {
    const Result<trace::Run> loaded = trace::load_run({run});
    if (!loaded) return loaded.error();
    overflows.push_back(overflows_of(scenario, *loaded));
  }
  const std::string drawn = "what a batch holds is drawn from its data";
  const Result<bool> meta = derive_on_meta(
      scenario, options.on_meta, rules_say_all(scenario) ? std::nullopt : std::optional(drawn));
  if (!meta) return meta.error();
  std::optional<trace::Run> derived;
  bool same = true;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // Runs that overflowed in the same steps made the same calls.
    if (i == 0 || overflows[i] != overflows[i - 1]) {
      std::string folder = options.folder;
      if (i > 0) folder += fmt::format("/run_{}", i);
      if (const Status made = make_folder(folder); !made) return made.error();
      Result<trace::Run> made =
          derive_job(scenario, overflows[i], folder, *meta, options, interrupts);
      if (!made) return made.error();
      derived = std::move(*made);
    }
    if (runs.size() > 1 && !options.quiet) stream << printable(runs[i]) << ":\n";
    const Result<bool> agreed = agrees(*derived, runs[i], options.quiet, stream);
    if (!agreed) return agreed.error();
    same = same && *agreed;
  }
  return same ? reports::ExitStatus::clean : reports::ExitStatus::findings;
}

// The user's choice; nothing: whatever suits the job.
std::optional<bool> meta_of(const DeriveOptions& options) {
  if (!options.meta && !options.no_meta) return std::nullopt;
  return options.meta;
}

}  // namespace

reports::ExitStatus derive_scenario(const DeriveOptions& options) {
  const auto fail = [&](const Error& error) {
    return reports::fail(renamed(error, options.name_of));
  };
  const reports::ReportOptions files{.outputs = options.outputs};
  if (const Status outputs = reports::check_outputs(files, {options.output_dir}); !outputs)
    return fail(outputs.error());
  Result<Scenario> scenario = load_checked_scenario(options.path);
  if (!scenario) return fail(scenario.error());
  const Result<std::string> worker = find_worker(worker_search_of_this_process());
  if (!worker) return fail(worker.error());
  const WorkFolder folder(options.output_dir, "lockstep-derive-");
  if (!folder.usable()) {
    return fail(
        Error{"this folder cannot be made, or is not empty", {folder.path()}, "name a new one"});
  }
  Interrupts interrupts;
  const DeriveJob job{
      *worker,         folder.path(),    options.certificate, options.write_scenario,
      options.outputs, options.remedies, meta_of(options),    options.quiet};
  // A report on standard output must not be mixed with other text.
  std::ostream& stream = reports::takes_stdout(files) ? std::cerr : std::cout;
  const Result<reports::ExitStatus> status =
      options.against.empty() ? derive(*scenario, job, interrupts, stream)
                              : derive_against(*scenario, options.against, job, interrupts, stream);
  if (const int signal = interrupts.poll(); signal != 0) return reports::interrupted_by(signal);
  if (!status) return fail(folder.for_user(status.error(), options.path));
  return *status;
}

}  // namespace lockstep::runtime
