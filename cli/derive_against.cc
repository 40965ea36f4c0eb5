// A derivation held against a recorded run: does every rank call what was recorded?
#include <optional>
#include <utility>
#include <vector>

#include "base/tables.h"
#include "base/text.h"
#include "cli/derive.h"
#include "runtime/derive/all_ranks.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/derive/lone_run.h"
#include "trace/load.h"
#include "verify/compare_runs.h"

namespace lockstep {

Result<ExitStatus> derive_against(const Scenario& scenario, const std::string& recorded,
                                  const DeriveOptions& options, Interrupts& interrupts,
                                  std::ostream& said) {
  // What cannot be derived is refused here as well.
  if (const Result<DerivationPlan> plan = derivation_plan(scenario); !plan) return plan.error();
  const Result<Run> run = load_run({recorded});
  if (!run) return run.error();
  const std::string drawn = "what a batch holds is drawn from its data";
  const Result<bool> meta = derive_on_meta(
      scenario, options.on_meta, rules_say_all(scenario) ? std::nullopt : std::optional(drawn));
  if (!meta) return meta.error();
  std::vector<LoneRanks> all;
  for (const std::vector<int>& ranks : teams(scenario)) {
    all.push_back({scenario.file,
                   ranks,
                   options.folder,
                   options.folder + "/broadcasts",
                   dissent_steps(scenario, ranks.front()),
                   {}});
  }
  {
    DeriveProgress progress(options.quiet);
    const Result<std::string> ran =
        run_alone(all, {options.worker, options.folder, *meta}, interrupts,
                  [&](std::size_t done) { progress.show(done, all.size()); });
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
