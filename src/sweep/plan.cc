#include "sweep/plan.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "job/scenario.h"
#include "job/schema_check.h"
#include "job/simulated_scenario.h"
#include "reports/columns.h"
#include "sweep/document.h"
#include "sweep/values.h"

namespace lockstep::sweep {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMachinePrefix = "machine.";

// What a simulated job is without, or what says nothing of how it trains.
constexpr std::array<std::string_view, 9> kWithoutEffect = {
    "lockstep", "name",  "description",      "limits",        "expect",
    "study",    "watch", "train.checkpoint", "train.evaluate"};

std::string own_key(const Axis& axis) {
  return axis.of_machine() ? axis.key.substr(kMachinePrefix.size()) : axis.key;
}

// Whether `key` is `whole` or something in it.
bool is_in(std::string_view key, std::string_view whole) {
  return key == whole || (key.starts_with(whole) && key[whole.size()] == '.');
}

Error of_axis(const Axis& axis, const Json& value, Error error) {
  constexpr std::size_t kShown = 120;
  error.message =
      shorten_end(printable(axis.key + "=" + value_text(value)), kShown) + ": " + error.message;
  error.place = axis.place;
  return error;
}

Status check_keys(const std::vector<Axis>& axes) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      if (axes[i].key == axes[j].key)
        return Error{"\"" + printable(axes[i].key) + "\" is varied twice", axes[i].place,
                     "give all its values at once: " + printable(axes[i].key) + "=…,…"};
    const auto without =
        std::find_if(kWithoutEffect.begin(), kWithoutEffect.end(),
                     [&](std::string_view key) { return is_in(axes[i].key, key); });
    if (without != kWithoutEffect.end())
      return Error{"\"" + std::string(*without) + "\" makes no difference to a simulated job",
                   axes[i].place, "vary what does: `lockstep scenario --schema` has all keys"};
  }
  return Status::ok();
}

// A key stands behind those that it is in, so that the whole is set before its part.
std::vector<Axis> outer_first(const std::vector<Axis>& axes) {
  std::vector<Axis> out;
  for (const Axis& axis : axes) {
    const auto inner = std::find_if(out.begin(), out.end(),
                                    [&](const Axis& other) { return is_in(other.key, axis.key); });
    out.insert(inner, axis);
  }
  return out;
}

// Each value by itself, in a document that has the first values of the axes before. `check` gives
// what is wrong with a whole document.
template <class Check>
Status check_values(Json document, const std::vector<Axis>& axes, const Check& check) {
  for (const Axis& axis : axes) {
    std::optional<Json> next;
    for (const Json& value : axis.values) {
      Result<Json> changed = with_value(document, own_key(axis), value);
      if (!changed) return of_axis(axis, value, changed.error());
      if (std::optional<Error> wrong = check(*changed)) return of_axis(axis, value, *wrong);
      if (!next) next = std::move(*changed);
    }
    document = std::move(*next);
  }
  return Status::ok();
}

Status check_scenario_values(const YamlDocument& document, const std::vector<Axis>& axes) {
  const Json schema = Json::parse(scenario_schema());
  return check_values(document.value, axes, [&](const Json& changed) {
    return check_against_schema({changed, document.spots}, schema);
  });
}

Status check_machine_values(const std::string& file, const Json& document,
                            const std::vector<Axis>& axes) {
  return check_values(document, axes, [&](const Json& changed) -> std::optional<Error> {
    const Result<sim::Machine> machine = sim::parse_machine(changed.dump(1), file);
    if (machine) return std::nullopt;
    return machine.error();
  });
}

std::vector<std::size_t> sizes_of(const std::vector<Axis>& axes) {
  std::vector<std::size_t> out;
  for (const Axis& axis : axes) out.push_back(axis.values.size());
  return out;
}

}  // namespace

Result<Axis> parse_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return Error{"\"" + printable(text) + "\" should be KEY=VALUE,VALUE",
                 {},
                 "write train.batch_size=8,16 or ranks=2..16*2"};
  // What no scenario nests so deep need not be walked so deep.
  if (equals > kLongestKey || to_utf8(text.substr(0, equals)) != text.substr(0, equals))
    return Error{"a key is UTF-8 text of at most " + std::to_string(kLongestKey) + " bytes",
                 {},
                 "`lockstep scenario --schema` has all keys"};
  Axis out{text.substr(0, equals), {}, {}};
  Result<std::vector<Json>> values = parse_values(text.substr(equals + 1));
  if (!values) {
    Error error = values.error();
    error.message = printable(out.key) + ": " + error.message;
    return error;
  }
  out.values = std::move(*values);
  return out;
}

Result<Plan> Plan::make(const SourceFile& scenario, const std::vector<SourceFile>& machines,
                        const std::vector<Axis>& axes, std::optional<int> steps) {
  LOCKSTEP_CHECK(!machines.empty(), "a sweep needs a machine");
  if (const Status ok = check_keys(axes); !ok) return ok.error();
  std::vector<Axis> of_job, of_machine;
  for (const Axis& axis : axes) (axis.of_machine() ? of_machine : of_job).push_back(axis);
  of_job = outer_first(of_job);
  of_machine = outer_first(of_machine);

  const Result<Scenario> parsed = parse_scenario(scenario.text, scenario.file);
  if (!parsed) return parsed.error();
  Result<YamlDocument> document = parse_yaml(scenario.text, scenario.file);
  if (!document) return document.error();
  // What is expected of the job as it stands is not expected of others.
  for (const char* key : {"expect", "study", "watch"}) document->value.erase(key);
  if (const Status ok = check_scenario_values(*document, of_job); !ok) return ok.error();

  std::vector<Document> machine_documents;
  for (const SourceFile& machine : machines) {
    if (const auto whole = sim::parse_machine(machine.text, machine.file); !whole)
      return whole.error();
    Result<YamlDocument> own = parse_yaml(machine.text, machine.file);
    if (!own) return own.error();
    if (const Status ok = check_machine_values(machine.file, own->value, of_machine); !ok)
      return ok.error();
    machine_documents.push_back({machine.file, std::move(own->value)});
  }

  std::vector<std::size_t> machine_sizes = sizes_of(of_machine);
  machine_sizes.insert(machine_sizes.begin(), machines.size());
  std::vector<std::size_t> sizes = sizes_of(of_job);
  sizes.insert(sizes.end(), machine_sizes.begin(), machine_sizes.end());
  std::optional<Grid> grid = Grid::of(std::move(sizes));
  if (!grid) return Error{"this grid has more points than can be counted", {}, "vary less at once"};
  Plan out(std::move(*grid));
  out.scenario_name_ = parsed->name;
  out.scenario_ = {scenario.file, std::move(document->value)};
  out.machines_ = std::move(machine_documents);
  out.job_axes_ = std::move(of_job);
  out.machine_axes_ = std::move(of_machine);
  out.machine_points_ = Grid::of(machine_sizes)->size();
  out.steps_ = steps;
  return out;
}

std::vector<std::string> Plan::keys() const {
  std::vector<std::string> out;
  for (const Axis& axis : job_axes_) out.push_back(axis.key);
  for (const Axis& axis : machine_axes_) out.push_back(axis.key);
  return out;
}

nlohmann::ordered_json Plan::values(PointId point) const {
  const Digits digits = grid_.digits(point);
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < job_axes_.size(); ++i)
    out[job_axes_[i].key] = job_axes_[i].values[digits[i]];
  for (std::size_t i = 0; i < machine_axes_.size(); ++i)
    out[machine_axes_[i].key] = machine_axes_[i].values[digits[job_axes_.size() + 1 + i]];
  return out;
}

const std::string& Plan::machine_file(PointId point) const {
  return machines_[grid_.digits(point)[job_axes_.size()]].file;
}

Result<Json> Plan::with_values(Json document, PointId point, bool of_machine) const {
  const Digits digits = grid_.digits(point);
  const std::vector<Axis>& axes = of_machine ? machine_axes_ : job_axes_;
  const std::size_t first = of_machine ? job_axes_.size() + 1 : 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Result<Json> changed =
        with_value(std::move(document), own_key(axes[i]), axes[i].values[digits[first + i]]);
    if (!changed) return changed;
    document = std::move(*changed);
  }
  return document;
}

Result<std::string> Plan::scenario_text(PointId point) const {
  const Result<Json> changed = with_values(scenario_.value, point, false);
  if (!changed) return changed.error();
  SimulatedChange change;
  change.steps = steps_;
  Result<std::string> out = simulated_scenario(changed->dump(1), scenario_.file, change);
  if (out) return out;
  // The lines of the changed text are nobody's.
  Error error = out.error();
  error.place = {scenario_.file, 0, 0};
  return error;
}

Result<sim::Machine> Plan::machine(PointId point) const {
  const Document& own = machines_[grid_.digits(point)[job_axes_.size()]];
  const Result<Json> changed = with_values(own.value, point, true);
  if (!changed) return changed.error();
  Result<sim::Machine> out = sim::parse_machine(changed->dump(1), own.file);
  if (out) return out;
  Error error = out.error();
  error.place = {own.file, 0, 0};
  return error;
}

}  // namespace lockstep::sweep
