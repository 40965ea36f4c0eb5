#include "sim/sweep/training_plans.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/documents/schema_check.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/plan_file.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

std::optional<Error> refuses(const std::string& key) {
  if (key == "calibration")
    return Error{"the calibration of a plan is what it runs on, and no key to be varied",
                 {},
                 "name each with --calibration; calibration.network_speed and the like are its "
                 "parameters"};
  if (key == "plan" || key == "name")
    return Error{"\"" + key + "\" makes no difference to a plan", {}, "vary what does"};
  return std::nullopt;
}

std::vector<std::string> parameter_names() {
  std::vector<std::string> out;
  for (const CostParameter& parameter : cost_parameters()) out.emplace_back(parameter.name);
  return out;
}

std::optional<Error> error_of(const Result<Calibration>& calibration) {
  if (calibration) return std::nullopt;
  return calibration.error();
}

Result<Variation::Document> calibration_document(const SourceFile& calibration) {
  if (auto wrong = error_of(parse_calibration(calibration.text, calibration.file))) return *wrong;
  Result<YamlDocument> document = parse_yaml(calibration.text, calibration.file);
  if (!document) return document.error();
  return Variation::Document{calibration.file, std::move(document->value),
                             [file = calibration.file](const Json& changed) {
                               return error_of(parse_calibration(changed.dump(1), file));
                             }};
}

}  // namespace

Result<TrainingPlans> TrainingPlans::make(const SourceFile& plan,
                                          const std::vector<SourceFile>& calibrations,
                                          const std::vector<Axis>& axes) {
  Result<YamlDocument> document = parse_yaml(plan.text, plan.file);
  if (!document) return document.error();
  const Result<PlanFile> parsed = read_plan(*document);
  if (!parsed) return parsed.error();
  const auto check = [spots = document->spots,
                      schema = Json::parse(kPlanSchema)](const Json& changed) {
    return check_against_schema({changed, spots}, schema);
  };
  Variation::Subject subject{parsed->name,
                             {plan.file, document->value, check},
                             {},
                             {"calibration.", "transformer", parameter_names()},
                             refuses};
  for (const SourceFile& calibration : calibrations) {
    Result<Variation::Document> own = calibration_document(calibration);
    if (!own) return own.error();
    subject.machines.push_back(std::move(*own));
  }
  Result<Variation> variation = Variation::make(std::move(subject), axes);
  if (!variation) return variation.error();
  return TrainingPlans(std::move(*variation), std::move(*document));
}

Result<PlanForecast> TrainingPlans::forecast(PointId point) const {
  const Result<Json> changed = variation_.job_document(point);
  if (!changed) return changed.error();
  const Result<Json> machine = variation_.machine_document(point);
  if (!machine) return machine.error();
  const std::string& calibration_file = variation_.machine_file(point);
  const Result<Calibration> calibration = parse_calibration(machine->dump(1), calibration_file);
  if (!calibration) return calibration.error();
  const bool as_it_stands = variation_.keys().empty();
  const Result<PlanFile> plan = read_plan({*changed, spots_});
  Result<PlanForecast> out =
      plan ? forecast_plan(*plan, *calibration) : Result<PlanForecast>(plan.error());
  if (out) return out;
  // A problem may name a key other than the changed one, whose line would mislead.
  Error error = out.error();
  if (!as_it_stands || error.location.file.empty()) error.location = {variation_.job_file(), 0, 0};
  return error;
}

Row TrainingPlans::row(PointId point) const {
  Row out;
  const Result<PlanForecast> forecast = this->forecast(point);
  if (!forecast) {
    out.outcome = Outcome::refused;
    out.reason = forecast.error().message;
    return out;
  }
  out.outcome = Outcome::trains;
  out.ranks = forecast->plan.plan.ranks();
  out.step_seconds = forecast->step.seconds;
  out.samples_per_second = forecast->samples_per_second;
  out.memory_bytes = forecast->step.memory_bytes;
  out.memory_counted = true;
  if (forecast->gpu_memory) out.device_bytes = static_cast<double>(forecast->gpu_memory->value);
  out.transformer = TransformerFigures{forecast->tokens_per_second / forecast->gpus(),
                                       forecast->mfu, forecast->bubble_share};
  return out;
}

}  // namespace lockstep::sim

namespace lockstep::sim {
namespace {

Result<SourceFile> source_of(const std::string& calibration) {
  if (const auto shipped = shipped_calibration_text(calibration))
    return SourceFile{calibration, std::string(*shipped)};
  Result<std::string> text = read_input(calibration);
  if (text) return SourceFile{calibration, std::move(*text)};
  Error error = text.error();
  if (error.fix.empty())
    error.fix = "name a file, or one of " + join_and(shipped_calibration_names());
  return error;
}

}  // namespace

std::string calibration_seen_from(const std::string& file, const std::string& name) {
  if (shipped_calibration_text(name)) return name;
  return (std::filesystem::path(file).parent_path() / name).lexically_normal().string();
}

Result<PlanInputs> load_plan(const std::string& file,
                             const std::vector<std::string>& calibrations) {
  Result<std::string> text = read_input(file);
  if (!text) return text.error();
  const Result<PlanFile> plan = parse_plan(*text, file);
  if (!plan) return plan.error();
  PlanInputs out{{file, std::move(*text)}, {}};
  std::vector<std::string> names = calibrations;
  if (names.empty()) names = {calibration_seen_from(file, plan->calibration)};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      return Error{"--calibration " + printable(names[i]) + " is given twice", {}, "name it once"};
    Result<SourceFile> source = source_of(names[i]);
    if (!source) return source.error();
    out.calibrations.push_back(std::move(*source));
  }
  return out;
}

}  // namespace lockstep::sim
