#include "sim/transformer/calibration.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "base/documents/yaml_document.h"
#include "base/files/read_file.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

using C = CostParameters;

Error at(const Location& location, std::string message, std::string fix) {
  return Error{std::move(message), location, std::move(fix)};
}

const CostParameter* parameter_named(std::string_view name) {
  for (const CostParameter& parameter : cost_parameters())
    if (parameter.name == name) return &parameter;
  return nullptr;
}

std::string six_digits(double value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6);
  return {text.data(), end.ptr};
}

// Double-quoted YAML that parses to the same text.
std::string in_quotes(const std::string& text) { return nlohmann::json(to_utf8(text)).dump(); }

Status read_parameters(const YamlDocument& document, C& cost) {
  const nlohmann::json& given = document.value["parameters"];
  if (!given.is_object())
    return at(document.value_location("/parameters"),
              "\"parameters\" is not a mapping of names to numbers",
              "write one line per parameter: name: number");
  for (const auto& [name, value] : given.items()) {
    const std::string pointer = "/parameters/" + pointer_part(name);
    const CostParameter* parameter = parameter_named(name);
    if (parameter == nullptr)
      return at(document.key_location(pointer), "no parameter \"" + printable(name) + "\" is known",
                "docs/simulate-workloads.md lists them");
    if (!value.is_number())
      return at(document.value_location(pointer), "parameter " + name + " is not a number",
                "give it in " + std::string(parameter->unit));
    const double x = value.get<double>();
    if (!(x >= parameter->low && x <= parameter->high))
      return at(document.value_location(pointer),
                "parameter " + name + " is outside of what is possible",
                "give a number from " + six_digits(parameter->low) + " to " +
                    six_digits(parameter->high) + " (" + std::string(parameter->unit) + ")");
    cost.*(parameter->value) = x;
  }
  // Every parameter must be given: a default would belong to another machine.
  for (const CostParameter& parameter : cost_parameters())
    if (!given.contains(parameter.name))
      return at(document.value_location("/parameters"),
                "parameter " + std::string(parameter.name) + " is missing",
                "add it, in " + std::string(parameter.unit));
  return Status::ok();
}

}  // namespace

const std::vector<CostParameter>& cost_parameters() {
  // Ranges are wide: they catch a wrong unit (ms for s), not an unusual machine.
  static const std::vector<CostParameter> table = {
      {"peak_flops", &C::peak_flops, "FLOP/s", 1e9, 1e18},
      {"processors", &C::processors, "count", 1, 1e5},
      {"ranks_per_node", &C::ranks_per_node, "count", 1, 1e4},
      {"gemm_efficiency", &C::gemm_efficiency, "share", 0.01, 1},
      {"gemm_half_depth", &C::gemm_half_depth, "elements", 1, 1e4},
      {"memory_bandwidth", &C::memory_bandwidth, "bytes/s", 1e9, 1e14},
      {"attention_traffic", &C::attention_traffic, "factor", 0.01, 100},
      {"logit_traffic", &C::logit_traffic, "bytes", 0.1, 1e4},
      {"launch_forward", &C::launch_forward, "s", 1e-7, 1},
      {"launch_backward", &C::launch_backward, "s", 1e-7, 1},
      {"launch_unfused", &C::launch_unfused, "s", 1e-7, 1},
      {"launch_micro_batch", &C::launch_micro_batch, "s", 1e-7, 1},
      {"step_overhead", &C::step_overhead, "s", 1e-7, 10},
      {"optimizer_traffic", &C::optimizer_traffic, "bytes", 0.1, 1e4},
      {"node_latency", &C::node_latency, "s", 1e-7, 1e-2},
      {"node_bandwidth", &C::node_bandwidth, "bytes/s", 1e8, 1e13},
      {"network_latency", &C::network_latency, "s", 1e-7, 1e-2},
      {"network_bandwidth", &C::network_bandwidth, "bytes/s", 1e7, 1e13},
      {"stage_handover", &C::stage_handover, "s", 1e-7, 1},
      {"compiled_traffic", &C::compiled_traffic, "factor", 0.01, 1},
      {"fp8_gain", &C::fp8_gain, "factor", 0.5, 2},
      {"overlap_slowdown", &C::overlap_slowdown, "share", 0.001, 1},
      {"reserved_memory", &C::reserved_memory, "bytes", 1, 1e11},
  };
  return table;
}

Result<Calibration> parse_calibration(const std::string& text, const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  const nlohmann::json& root = document->value;
  if (!root.is_object() || !root.contains("parameters") || !root.contains("name") ||
      !root["name"].is_string())
    return at(document->value_location(""), "a calibration has \"name\" and \"parameters\"",
              "docs/simulate-workloads.md shows one");
  Calibration calibration;
  calibration.origin = file;
  calibration.name = root["name"].get<std::string>();
  for (const auto& [key, value] : root.items())
    // "sources" is for people only.
    if (key != "name" && key != "parameters" && key != "fitted_on" && key != "sources")
      return at(document->key_location("/" + pointer_part(key)),
                "a calibration has no \"" + printable(key) + "\"",
                "its keys are name, sources, parameters and fitted_on");
  if (const Status read = read_parameters(*document, calibration.cost); !read) return read.error();
  if (root.contains("fitted_on")) {
    for (const nlohmann::json& row : root["fitted_on"]) {
      if (!row.is_string())
        return at(document->value_location("/fitted_on"), "\"fitted_on\" lists rows as text",
                  "write TABLE NUMBER, e.g. vtrain-single 12");
      calibration.fitted_on.push_back(row.get<std::string>());
    }
  }
  return calibration;
}

std::string calibration_yaml(const Calibration& calibration) {
  std::string out = "name: " + in_quotes(calibration.name) + "\nparameters:\n";
  for (const CostParameter& parameter : cost_parameters())
    out += "  " + std::string(parameter.name) + ": " +
           six_digits(calibration.cost.*(parameter.value)) + "  # " + std::string(parameter.unit) +
           "\n";
  out += calibration.fitted_on.empty() ? "" : "fitted_on:\n";
  for (const std::string& row : calibration.fitted_on) out += "  - " + in_quotes(row) + "\n";
  return out;
}

namespace {

constexpr std::string_view kPrefix = "sim/machines/calibration-", kSuffix = ".yaml", kNccl = "nccl";

// "a100-node" of "sim/machines/calibration-a100-node.yaml".
std::string_view type_of(std::string_view file) {
  LOCKSTEP_CHECK(file.starts_with(kPrefix) && file.ends_with(kSuffix), "a calibration's file name");
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

}  // namespace

std::vector<std::string> shipped_calibration_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& shipped : shipped_calibrations())
    if (type_of(shipped.path) != kNccl) names.emplace_back(type_of(shipped.path));
  return names;
}

std::optional<std::string_view> shipped_calibration_text(std::string_view name) {
  for (const EmbeddedFile& shipped : shipped_calibrations())
    if (type_of(shipped.path) == name && name != kNccl) return shipped.text;
  return std::nullopt;
}

Result<Calibration> shipped_calibration(std::string_view name) {
  if (const auto text = shipped_calibration_text(name))
    return parse_calibration(std::string(*text),
                             "sim/machines/calibration-" + std::string(name) + ".yaml");
  return Error{"there is no calibration for machine type \"" + printable(name) + "\"",
               {},
               "shipped are " + join_and(shipped_calibration_names()) +
                   "; a file of your own goes with --calibration"};
}

std::string_view shipped_nccl_curves() {
  for (const EmbeddedFile& shipped : shipped_calibrations())
    if (type_of(shipped.path) == kNccl) return shipped.text;
  return {};
}

Result<Calibration> load_calibration(const std::string& given, const std::string& machine_type) {
  if (given.empty()) return shipped_calibration(machine_type);
  const std::vector<std::string> shipped = shipped_calibration_names();
  // A shipped name goes first, also if a file of this name exists.
  if (std::find(shipped.begin(), shipped.end(), given) != shipped.end())
    return shipped_calibration(given);
  const Result<std::string> text = read_input(given);
  if (!text) return text.error();
  return parse_calibration(*text, given);
}

}  // namespace lockstep::sim
