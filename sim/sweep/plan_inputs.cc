#include "sim/sweep/plan_inputs.h"

#include <algorithm>
#include <filesystem>

#include "base/files/read_input.h"
#include "base/text.h"
#include "sim/transformer/plan_file.h"
#include "sim/transformer/shipped_calibrations.h"

namespace lockstep {
namespace {

Result<sweep::SourceFile> source_of(const std::string& calibration) {
  if (const auto shipped = sim::shipped_calibration_text(calibration))
    return sweep::SourceFile{calibration, std::string(*shipped)};
  Result<std::string> text = read_input(calibration);
  if (text) return sweep::SourceFile{calibration, std::move(*text)};
  Error error = text.error();
  if (error.fix.empty())
    error.fix = "name a file, or one of " + join_and(sim::shipped_calibration_names());
  return error;
}

}  // namespace

std::string calibration_seen_from(const std::string& file, const std::string& name) {
  if (sim::shipped_calibration_text(name)) return name;
  return (std::filesystem::path(file).parent_path() / name).lexically_normal().string();
}

Result<PlanInputs> load_plan(const std::string& file,
                             const std::vector<std::string>& calibrations) {
  Result<std::string> text = read_input(file);
  if (!text) return text.error();
  const Result<sim::PlanFile> plan = sim::parse_plan(*text, file);
  if (!plan) return plan.error();
  PlanInputs out{{file, std::move(*text)}, {}};
  std::vector<std::string> names = calibrations;
  if (names.empty()) names = {calibration_seen_from(file, plan->calibration)};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      return Error{"--calibration " + printable(names[i]) + " is given twice", {}, "name it once"};
    Result<sweep::SourceFile> source = source_of(names[i]);
    if (!source) return source.error();
    out.calibrations.push_back(std::move(*source));
  }
  return out;
}

}  // namespace lockstep
