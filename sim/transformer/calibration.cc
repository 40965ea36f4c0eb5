#include "sim/transformer/calibration.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/documents/yaml_document.h"
#include "base/embedded_file.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

using C = CostParameters;

Error at(const Location& location, std::string message, std::string fix) {
  return Error{std::move(message), location, std::move(fix)};
}

// The parameters that the schema has let through. Every one must be given: a default would belong
// to another machine.
Status read_parameters(const Machine& machine, const Location& section, C& cost) {
  for (const CostParameter& parameter : cost_parameters()) {
    const auto found = machine.transformer.find(std::string(parameter.name));
    if (found == machine.transformer.end())
      return at(section, fmt::format("parameter {} is missing", parameter.name),
                fmt::format("add it, in {}", parameter.unit));
    cost.*(parameter.value) = found->second;
  }
  return Status::ok();
}

}  // namespace

const std::vector<CostParameter>& cost_parameters() {
  static const std::vector<CostParameter> table = {
      {"processors", &C::processors, "count"},
      {"gemm_efficiency", &C::gemm_efficiency, "share"},
      {"gemm_half_depth", &C::gemm_half_depth, "elements"},
      {"memory_bandwidth", &C::memory_bandwidth, "bytes/s"},
      {"attention_efficiency", &C::attention_efficiency, "share"},
      {"attention_traffic", &C::attention_traffic, "factor"},
      {"logit_traffic", &C::logit_traffic, "bytes"},
      {"launch_forward", &C::launch_forward, "s"},
      {"launch_backward", &C::launch_backward, "s"},
      {"launch_unfused", &C::launch_unfused, "s"},
      {"launch_micro_batch", &C::launch_micro_batch, "s"},
      {"step_overhead", &C::step_overhead, "s"},
      {"optimizer_traffic", &C::optimizer_traffic, "bytes"},
      {"call_overhead", &C::call_overhead, "s"},
      {"node_speed", &C::node_speed, "factor"},
      {"network_speed", &C::network_speed, "factor"},
      {"stage_handover", &C::stage_handover, "s"},
      {"compiled_traffic", &C::compiled_traffic, "factor"},
      {"fp8_gain", &C::fp8_gain, "factor"},
      {"overlap_slowdown", &C::overlap_slowdown, "share"},
      {"reserved_memory", &C::reserved_memory, "bytes"},
      {"spread", &C::spread, "share"},
  };
  return table;
}

Result<Calibration> parse_calibration(const std::string& text, const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  return calibration_of(*document);
}

Result<Calibration> calibration_of(const YamlDocument& document) {
  Result<Machine> machine = machine_of(document);
  if (!machine) return machine.error();
  const Location& section = document.value_location("/transformer");
  if (machine->transformer.empty())
    return at(section, "the machine has no section \"transformer\", by which plans are priced",
              fmt::format("add one as docs/simulate-workloads.md shows, or take one of {}",
                          join_and(shipped_calibration_names())));
  Calibration out;
  out.name = machine->name;
  out.origin = section.file;
  out.fitted_on = machine->transformer_fitted_to;
  static_cast<Interconnect&>(out.cost) = *machine;
  out.cost.peak_flops = static_cast<double>(compute_for(*machine, "bfloat16").peak.per_second);
  if (const Status read = read_parameters(*machine, section, out.cost); !read) return read.error();
  out.cost.slow = machine->slow;
  out.machine = std::move(*machine);
  return out;
}

std::vector<std::string> shipped_calibration_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& shipped : shipped_machines())
    if (shipped.text.find("\ntransformer:") != std::string_view::npos)
      names.emplace_back(machine_name_of(shipped));
  return names;
}

std::optional<std::string_view> shipped_calibration_text(std::string_view name) {
  for (const std::string& known : shipped_calibration_names())
    if (known == name) return shipped_machine_text(name);
  return std::nullopt;
}

Result<Calibration> shipped_calibration(std::string_view name) {
  if (const auto text = shipped_calibration_text(name))
    return parse_calibration(std::string(*text), fmt::format("sim/machines/{}.yaml", name));
  return Error{fmt::format("there is no calibration for machine type \"{}\"", printable(name)),
               {},
               fmt::format("shipped are {}; a file of your own goes with --calibration",
                           join_and(shipped_calibration_names()))};
}

Result<std::string> read_calibration(const std::string& given) {
  // A shipped name goes first, also if a file of this name exists.
  if (const auto shipped = shipped_calibration_text(given)) return std::string(*shipped);
  Result<std::string> text = read_input(given);
  // A plan's calibration lies beside the plan's file.
  const std::string name = given.substr(given.rfind('/') + 1);
  if (text || name.find('.') != std::string::npos) return text;
  const std::vector<std::string> names = shipped_calibration_names();
  for (const EmbeddedFile& file : shipped_machines())
    if (machine_name_of(file) == name)
      return Error{fmt::format("the shipped machine {} has no section \"transformer\", by which "
                               "plans are priced",
                               name),
                   {},
                   fmt::format("take one of {}", join_and(names))};
  return Error{
      name == given
          ? fmt::format("no file or shipped calibration is called \"{}\"", printable(name))
          : fmt::format("there is no file {}, and no shipped calibration is called \"{}\"",
                        printable(given), printable(name)),
      {},
      did_you_mean(name, names, fmt::format("name a file, or one of {}", join_and(names)))};
}

Result<Calibration> load_calibration(const std::string& given, const std::string& machine_type) {
  if (given.empty()) return shipped_calibration(machine_type);
  if (shipped_calibration_text(given)) return shipped_calibration(given);
  const Result<std::string> text = read_calibration(given);
  return text ? parse_calibration(*text, given) : text.error();
}

}  // namespace lockstep::sim
