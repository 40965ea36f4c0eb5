#include "sim/sweep/plan_grid.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/documents/file_kind.h"
#include "base/documents/schema_check.h"
#include "base/files/read_file.h"
#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/plan_file.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

// Before the keys of a machine's file.
constexpr std::string_view kCalibrationPrefix = "calibration.";

// Why a key of a plan cannot be varied.
std::optional<Error> refuses(const std::string& key) {
  if (key == "calibration")
    return Error{"the calibration of a plan is what it runs on, and no key to be varied",
                 {},
                 "name each with --calibration; calibration.network_speed and the like are its "
                 "parameters"};
  if (key == "plan" || key == "name")
    return Error{fmt::format("\"{}\" makes no difference to a plan", key), {}, "vary what does"};
  return std::nullopt;
}

std::vector<std::string> parameter_names() {
  std::vector<std::string> out;
  for (const CostParameter& parameter : cost_parameters()) out.emplace_back(parameter.name);
  return out;
}

DocumentSchema schema_of(const YamlDocument& plan) {
  return DocumentSchema(is_multimodal(plan.value) ? multimodal_plan_schema()
                                                  : Json::parse(plan_schema()));
}

bool fits_schema(const YamlDocument& plan) { return !schema_of(plan).check(plan, ""); }

// What is wrong with a plan; nothing: it can be.
std::optional<Error> problem_of(const YamlDocument& plan, const std::string& manifest) {
  if (is_multimodal(plan.value)) {
    if (const Result<MultimodalPlan> read = read_multimodal_plan(plan, manifest); !read)
      return read.error();
    return std::nullopt;
  }
  const Result<PlanFile> read = read_plan(plan);
  return read ? std::nullopt : std::optional(read.error());
}

// Whether the first and the last point have the plan's own problem: then its line says more than
// as many refused points would.
bool stays_wrong(const Error& wrong, const Variation& variation,
                 const std::map<std::string, YamlDocument::Spot>& spots,
                 const std::string& manifest) {
  for (const PointId point : {PointId{0}, variation.grid().size() - 1}) {
    Result<Json> changed = variation.job_document(point);
    if (!changed) return false;
    const std::optional<Error> own = problem_of({std::move(*changed), spots}, manifest);
    if (!own || own->message != wrong.message) return false;
  }
  return true;
}

}  // namespace

Result<PlanGrid> PlanGrid::make(const SourceFile& plan, const std::vector<SourceFile>& calibrations,
                                const std::vector<Axis>& axes, const std::string& manifest) {
  Result<YamlDocument> document = parse_yaml(plan.text, plan.file);
  if (!document) return document.error();
  const bool towers = is_multimodal(document->value);
  // The plan as it stands need not be possible if the axes change that.
  const std::optional<Error> wrong = problem_of(*document, manifest);
  if (wrong && (axes.empty() || !fits_schema(*document))) return *wrong;
  const std::string name = document->value["name"];
  const auto check = [spots = document->spots, towers,
                      schema = schema_of(*document)](const Json& changed) {
    return schema.check({changed, spots}, towers ? "docs/reference/multimodal-plan.md has all keys"
                                                 : "docs/reference/plan.md has all keys");
  };
  Variation::Subject subject{name,
                             {plan.file, document->value, check},
                             {},
                             {std::string(kCalibrationPrefix), "transformer", parameter_names()},
                             refuses};
  std::map<std::string, ReadCalibration> read;
  for (const SourceFile& source : calibrations) {
    Result<YamlDocument> own = parse_yaml(source.text, source.file);
    if (!own) return own.error();
    Result<Calibration> calibration = calibration_of(*own);
    if (!calibration) return calibration.error();
    const auto check_machine = [spots = own->spots](const Json& changed) -> std::optional<Error> {
      const Result<Calibration> out = calibration_of({changed, spots});
      if (out) return std::nullopt;
      return out.error();
    };
    subject.machines.push_back({source.file, std::move(own->value), check_machine});
    read.emplace(source.file, ReadCalibration{std::move(*calibration), std::move(own->spots)});
  }
  Result<Variation> variation = Variation::make(std::move(subject), axes);
  if (!variation) return variation.error();
  if (wrong && stays_wrong(*wrong, *variation, document->spots, manifest)) return *wrong;
  PlanGrid out(std::move(*variation), std::move(*document), manifest, std::move(read));
  for (const std::string& key : out.variation_.keys())
    out.calibration_varied_ |= key.starts_with(kCalibrationPrefix);
  return out;
}

// The locations in the plan's document, with those of the varied keys.
std::map<std::string, YamlDocument::Spot> PlanGrid::spots_at(PointId point) const {
  constexpr std::size_t kShown = 120;
  std::map<std::string, YamlDocument::Spot> out = spots_;
  const nlohmann::ordered_json values = variation_.values(point);
  for (const auto& [key, value] : values.items()) {
    if (key.starts_with(kCalibrationPrefix)) continue;
    std::string pointer;
    for (const std::string& part : key_parts(key))
      pointer += fmt::format("/{}", pointer_part(part));
    // What is set replaces all that the file says inside it.
    const char after = '/' + 1;
    out.erase(out.lower_bound(fmt::format("{}/", pointer)),
              out.lower_bound(fmt::format("{}{}", pointer, after)));
    const Location set = {
        shorten_end(printable(fmt::format("{}={}", key, value_text(value))), kShown), 0, 0};
    out[pointer] = {set, set};
  }
  return out;
}

Result<PlanGrid::Point> PlanGrid::point_of(PointId point) const {
  Result<Json> changed = variation_.job_document(point);
  if (!changed) return changed.error();
  const ReadCalibration& known = calibrations_.at(variation_.machine_file(point));
  if (!calibration_varied_) return Point{{std::move(*changed), spots_at(point)}, known.calibration};
  const Result<Json> machine = variation_.machine_document(point);
  if (!machine) return machine.error();
  Result<Calibration> calibration = calibration_of({*machine, known.spots});
  if (!calibration) return calibration.error();
  measured_on(calibration->cost, known.calibration.cost);
  measured_on(calibration->machine, known.calibration.machine);
  return Point{{std::move(*changed), spots_at(point)}, std::move(*calibration)};
}

// A line of the file is known only for the plan as it stands: if keys are varied, the file alone is
// named.
Error PlanGrid::located(Error error) const {
  const bool as_it_stands = variation_.keys().empty();
  const bool of_file = error.location.file.empty() || error.location.file == variation_.job_file();
  if (of_file && !(as_it_stands && !error.location.file.empty()))
    error.location = {variation_.job_file(), 0, 0};
  return error;
}

Result<PlanForecast> PlanGrid::forecast(PointId point) const {
  const Result<Point> at = point_of(point);
  if (!at) return at.error();
  const Result<PlanFile> plan = read_plan(at->document);
  if (!plan) return located(plan.error());
  Result<PlanForecast> out = forecast_plan(*plan, at->calibration);
  if (!out) return located(out.error());
  return out;
}

Result<MultimodalForecast> PlanGrid::towers(PointId point, ModalityChecks* checks) const {
  const Result<Point> at = point_of(point);
  if (!at) return at.error();
  const Result<MultimodalPlan> plan = read_multimodal_plan(at->document, manifest_);
  if (!plan) return located(plan.error());
  Result<MultimodalForecast> out = checks == nullptr
                                       ? forecast_towers(*plan, at->calibration)
                                       : forecast_towers(*plan, at->calibration, *checks);
  if (!out) return located(out.error());
  return out;
}

namespace {

void fill_memory(Row& out, const MemoryNeed& need) {
  out.memory_bytes = need.bytes;
  out.memory_counted = true;
  if (need.gpu) out.device_bytes = static_cast<double>(need.gpu->value);
}

}  // namespace

void PlanGrid::fill_towers(Row& out, PointId point, ModalityChecks& checks) const {
  const Result<MultimodalForecast> forecast = towers(point, &checks);
  if (!forecast) {
    out.outcome = Outcome::refused;
    out.reason = forecast.error().message;
    return;
  }
  out.ranks = forecast->plan.gpus;
  if (forecast->divergence) {
    out.outcome = Outcome::hangs;
    out.reason = fmt::format(
        "modality-divergence: ranks of {} without items make no calls, in {} of the steps",
        printable(forecast->plan.encoders[forecast->divergence->encoder].name),
        percent(forecast->divergence->probability));
    return;
  }
  out.outcome = Outcome::trains;
  out.step_seconds = forecast->seconds;
  out.samples_per_second = forecast->samples_per_second;
  fill_memory(out, forecast->need);
  out.transformer =
      TransformerFigures{forecast->tokens_per_second / static_cast<double>(forecast->plan.gpus),
                         forecast->mfu, forecast->lost.total()};
}

Row PlanGrid::row(PointId point, ModalityChecks& checks) const {
  Row out;
  if (multimodal_) {
    fill_towers(out, point, checks);
    return out;
  }
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
  fill_memory(out, forecast->need);
  out.transformer = TransformerFigures{forecast->tokens_per_second / forecast->gpus(),
                                       forecast->mfu, forecast->bubble_share};
  return out;
}

namespace {

// A calibration by the name of one that is shipped, or by its file.
Result<SourceFile> source_of(const std::string& calibration) {
  Result<std::string> text = read_calibration(calibration);
  if (!text) return text.error();
  return SourceFile{calibration, std::move(*text)};
}

// The error of a file that the plan names, at the line that does so.
Error named_in(const YamlDocument& plan, const char* pointer, const Error& error) {
  Error out = error;
  out.message = error.location.file.empty()
                    ? error.message
                    : fmt::format("{}: {}", printable(error.location.file), error.message);
  out.location = plan.value_location(pointer);
  return out;
}

}  // namespace

Result<PlanInputs> load_plan(const std::string& file,
                             const std::vector<std::string>& calibrations) {
  Result<std::string> text = read_input(file);
  if (!text) return text.error();
  const Result<YamlDocument> document = parse_yaml(*text, file);
  if (!document) return document.error();
  if (auto other = other_kind(*document, "plan")) return *other;
  PlanInputs out{{file, std::move(*text)}, {}, {}};
  if (const std::string manifest = manifest_of(document->value); !manifest.empty()) {
    out.manifest.file =
        (std::filesystem::path(file).parent_path() / manifest).lexically_normal().string();
    Result<std::string> samples = read_input(out.manifest.file);
    if (!samples) return named_in(*document, "/data/manifest", samples.error());
    out.manifest.text = std::move(*samples);
  }
  // What does not fit together may be changed yet (PlanGrid::make()).
  if (const auto wrong = problem_of(*document, out.manifest.text); wrong && !fits_schema(*document))
    return *wrong;
  const std::string own = document->value["calibration"];
  std::vector<std::string> names = calibrations;
  if (names.empty()) names = {machine_seen_from(file, own)};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      return Error{
          fmt::format("--calibration {} is given twice", printable(names[i])), {}, "name it once"};
    Result<SourceFile> source = source_of(names[i]);
    if (!source)
      return calibrations.empty() ? named_in(*document, "/calibration", source.error())
                                  : source.error();
    out.calibrations.push_back(std::move(*source));
  }
  return out;
}

}  // namespace lockstep::sim
