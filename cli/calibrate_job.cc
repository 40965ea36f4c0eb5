#include "cli/calibrate_job.h"

#include <utility>

#include "base/files/write_file.h"
#include "runtime/forecast/derived_ranks.h"

namespace lockstep {
namespace {

DeriveRanksOptions look_in(const std::string& folder, const CalibrateOptions& options) {
  DeriveRanksOptions out;
  out.worker = options.worker;
  out.folder = folder;
  out.on_meta = false;
  out.quiet = options.quiet;
  return out;
}

}  // namespace

CalibrationJob::CalibrationJob(std::string_view job, int ranks, std::string folder,
                               const CalibrateOptions& options, Interrupts& interrupts)
    : text_("lockstep: 1\nname: calibration\nranks: " + std::to_string(ranks) + "\n" +
            std::string(job)),
      folder_(std::move(folder)),
      options_(&options),
      interrupts_(&interrupts) {}

Status CalibrationJob::count() {
  const std::string counts = folder_ + "/counts", file = folder_ + "/scenario.yaml";
  if (const Status ok = make_folder(folder_); !ok) return ok;
  if (const Status ok = make_folder(counts); !ok) return ok;
  if (const Status ok = write_file(file, text_); !ok) return ok;
  Result<Scenario> scenario = load_scenario(file);
  if (!scenario) return scenario.error();
  scenario_ = std::move(*scenario);
  Result<sim::DerivedRanks> derived =
      derive_ranks(scenario_, look_in(counts, *options_), *interrupts_);
  if (!derived) return derived.error();
  derived_ = std::move(*derived);
  return Status::ok();
}

Status CalibrationJob::time(int look) {
  return time_work(scenario_, look_in(folder_ + "/times-" + std::to_string(look), *options_),
                   derived_.costs, *interrupts_);
}

Result<sim::TimedScenario> CalibrationJob::simulated(const sim::Machine& machine) && {
  for (RankCosts& rank : derived_.costs) sim::correct_by_times(rank, machine);
  return sim::time_scenario(scenario_, std::move(derived_), machine);
}

}  // namespace lockstep
