// Any bytes as the traces of several ranks, separated by blank lines, on a simulated clock:
// refused, or a run whose times are the same whether alike ranks are made one or not.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sim/collectives/closed_form.h"
#include "sim/engine/critical_path.h"
#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "sim/engine/to_run.h"
#include "tests/fuzz/fuzz_derivation.h"
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

namespace {

constexpr std::size_t kMaxSimulatedRanks = 8;
constexpr sim::LinkCost kLink = {Picos{1'000'000}, Bandwidth{8'000'000'000}, std::nullopt};

void check_path(const sim::ProgramJob& job, const sim::Folding& folding,
                const sim::ExecutionResult& result) {
  Picos at;
  for (const sim::PathPart& part : sim::critical_path(job, folding, result)) {
    LOCKSTEP_CHECK(part.begin == at && part.end > part.begin, "a path has no gaps");
    at = part.end;
  }
  LOCKSTEP_CHECK(at == result.end, "and goes to the end");
}

}  // namespace

void fuzz_simulation(std::string_view bytes) {
  std::vector<std::string_view> sections = sections_of(bytes);
  sections.resize(std::min(sections.size(), kMaxSimulatedRanks));
  trace::Run run = run_of_sections(sections);
  if (static_cast<std::size_t>(run.world_size) > kMaxSimulatedRanks) return;
  const Result<sim::RunProgram> program = sim::program_of(run);
  if (!program) {
    LOCKSTEP_CHECK(!program.error().message.empty(), "an error says what is wrong");
    return;
  }
  const sim::ProgramJob& job = program->job;
  const sim::PriceOfCall price = [&](std::uint32_t group,
                                     const sim::ProgramCall& call) -> Result<sim::CallCost> {
    const auto ranks = static_cast<std::int64_t>(job.groups[group].members.size());
    const Result<Picos> time = sim::default_time(call.op, ranks, call.bytes, kLink);
    if (!time) return time.error();
    return sim::CallCost{*time};
  };
  const Result<sim::Prices> prices = sim::Prices::of(job, {}, price);
  if (!prices) return;
  const sim::CostOfCall cost = prices->cost_in(job);
  const sim::ExecutionOptions options{Picos{}, /*record_issues=*/true, nullptr};
  const sim::Folding apart = sim::unfolded(job);
  const sim::ExecutionResult all = sim::execute(job, apart, cost, options);
  const sim::Folding folding = sim::fold(job);
  const sim::ExecutionResult folded = sim::execute(job, folding, cost, options);
  LOCKSTEP_CHECK(all.end == folded.end && all.stuck == folded.stuck, "folding changes nothing");
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    LOCKSTEP_CHECK(all.classes[r].ended == folded.classes[folding.class_of[r]].ended,
                   "of any rank");
  }
  if (all.end.is_forever()) return;
  if (!all.stuck) check_path(job, folding, folded);
  fuzz_judging(sim::as_simulated(std::move(run), *program, folding, folded));
}

}  // namespace lockstep
