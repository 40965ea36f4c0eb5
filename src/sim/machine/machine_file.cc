// Machine files: reading and writing.
#include <array>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/read_file.h"
#include "base/text.h"
#include "job/schema_check.h"
#include "job/yaml_document.h"
#include "sim/machine/machine.h"
#include "sim/machine/machine_schema.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{1} << 20U;

// Reads the quantities of a document that the schema allows; the first that is wrong is kept.
class Reader {
 public:
  explicit Reader(const YamlDocument& document) : document_(document) {}

  Result<Machine> read() {
    const Json& root = document_.value;
    Machine out;
    out.name = root["name"];
    out.ranks_per_node = root.value("ranks_per_node", std::int64_t{1});
    if (root.contains("cores")) out.cores = root["cores"].get<std::int64_t>();
    out.contention = root.value("contention", 1.0);
    if (root.contains("threads") && !out.cores)
      return Error{"\"threads\" is how ranks share cores, and there are none",
                   document_.value_place("/threads"), "add cores: 2, or leave it out"};
    if (has("/threads/wake")) out.wake = quantity("/threads/wake", parse_duration);
    if (has("/threads/slice")) out.slice = quantity("/threads/slice", parse_duration);
    if (out.slice.value == 0)
      return Error{"a slice of no time is none", document_.value_place("/threads/slice"),
                   "slice: 4ms"};
    for (const auto& [dtype, rates] : root["compute"].items()) {
      out.compute[dtype] = {quantity("/compute/" + dtype + "/peak", parse_flop_rate),
                            rates.value("matmul", 1.0), rates.value("convolution", 1.0)};
    }
    if (out.compute.empty()) {
      return Error{"\"compute\" names no type", document_.value_place("/compute"),
                   "add a line: float32: {peak: 19.5TFLOP/s, matmul: 0.7}"};
    }
    out.memory_bandwidth = quantity("/memory/bandwidth", parse_bandwidth);
    out.memory_efficiency = root["memory"].value("efficiency", 1.0);
    if (has("/memory/per_device")) out.per_device = quantity("/memory/per_device", parse_bytes);
    if (has("/memory/reserved")) out.reserved = quantity("/memory/reserved", parse_bytes);
    out.fragmentation = root["memory"].value("fragmentation", 1.0);
    if (has("/kernels/launch")) out.launch = quantity("/kernels/launch", parse_duration);
    if (has("/kernels/dispatch")) out.dispatch = quantity("/kernels/dispatch", parse_duration);
    if (has("/kernels/hidden")) out.launches_hidden = root["kernels"]["hidden"];
    if (has("/host/sample")) out.sample = quantity("/host/sample", parse_duration);
    for (std::size_t i = 0; i < root["links"].size(); ++i) {
      const std::string link = "/links/" + std::to_string(i);
      LinkCost cost{quantity(link + "/alpha", parse_duration),
                    quantity(link + "/beta", parse_bandwidth), std::nullopt};
      if (has(link + "/gamma")) cost.gamma = quantity(link + "/gamma", parse_bandwidth);
      out.links.push_back(cost);
    }
    if (problem_) return *problem_;
    return out;
  }

 private:
  bool has(const std::string& pointer) const {
    return document_.value.contains(Json::json_pointer(pointer));
  }

  template <class T>
  T quantity(const std::string& pointer, Result<T> (*parse)(std::string_view)) {
    const auto text = document_.value[Json::json_pointer(pointer)].get<std::string>();
    const Result<T> parsed = parse(text);
    if (parsed) return *parsed;
    if (!problem_) {
      problem_ = parsed.error();
      problem_->place = document_.value_place(pointer);
    }
    return T{};
  }

  const YamlDocument& document_;
  std::optional<Error> problem_;
};

// The shortest text that is read as the same number.
std::string number(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

// Double-quoted YAML that is read as the same text.
std::string quoted(const std::string& text) { return Json(to_utf8(text)).dump(); }

std::string bits(Bandwidth bandwidth) { return std::to_string(bandwidth.bits_per_second) + "b/s"; }

}  // namespace

Result<Machine> parse_machine(const std::string& text, const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  if (auto problem = check_against_schema(*document, Json::parse(kMachineSchema))) {
    if (problem->fix.empty()) problem->fix = "docs/simulate-scenarios.md shows a whole file";
    return *problem;
  }
  return Reader(*document).read();
}

Result<Machine> load_machine(const std::string& file) {
  const Result<std::string> text = read_file(file, kMostBytes);
  if (!text) return text.error();
  return parse_machine(*text, file);
}

std::string machine_text(const Machine& machine, const std::string& comment) {
  std::string out = comment + "machine: 1\nname: " + quoted(machine.name) +
                    "\nranks_per_node: " + std::to_string(machine.ranks_per_node) + "\n";
  if (machine.cores) out += "cores: " + std::to_string(*machine.cores) + "\n";
  if (machine.contention != 1) out += "contention: " + number(machine.contention) + "\n";
  if (machine.cores)
    out += "threads: {wake: " + std::to_string(machine.wake.value) +
           "ps, slice: " + std::to_string(machine.slice.value) + "ps}\n";
  out += "compute:\n";
  for (const auto& [dtype, rates] : machine.compute) {
    out += "  " + dtype + ": {peak: " + std::to_string(rates.peak.per_second) +
           "FLOP/s, matmul: " + number(rates.matmul) +
           ", convolution: " + number(rates.convolution) + "}\n";
  }
  out += "memory: {bandwidth: " + bits(machine.memory_bandwidth) +
         ", efficiency: " + number(machine.memory_efficiency);
  if (machine.per_device) out += ", per_device: " + std::to_string(machine.per_device->value) + "B";
  if (machine.reserved.value > 0)
    out += ", reserved: " + std::to_string(machine.reserved.value) + "B";
  if (machine.fragmentation != 1) out += ", fragmentation: " + number(machine.fragmentation);
  out += "}\nkernels: {launch: " + std::to_string(machine.launch.value) +
         "ps, dispatch: " + std::to_string(machine.dispatch.value) +
         "ps, hidden: " + (machine.launches_hidden ? "true" : "false") + "}\n" +
         "host: {sample: " + std::to_string(machine.sample.value) + "ps}\nlinks:\n";
  for (const LinkCost& link : machine.links) {
    out += "  - {alpha: " + std::to_string(link.alpha.value) + "ps, beta: " + bits(link.beta);
    if (link.gamma) out += ", gamma: " + bits(*link.gamma);
    out += "}\n";
  }
  return out;
}

}  // namespace lockstep::sim
