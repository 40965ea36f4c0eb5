// Machine files: parsing and writing.

#include "sim/machine/machine.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/documents/schema_check.h"
#include "base/documents/yaml_document.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "sim/machine/machine_schema.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostMachineBytes = std::size_t{1} << 20U;

// Linux grants threads no shorter slice (__setparam_fair, 6.12), and each slice is an event of the
// simulation.
constexpr Picos kLeastSlice{100'000'000};

// In the order of GpuGeneration.
constexpr std::array<const char*, 4> kGpus = {"volta", "ampere", "hopper", "blackwell"};

// Reads the quantities of a document that the schema allows; keeps the first problem.
class MachineReader {
 public:
  explicit MachineReader(const YamlDocument& document) : document_(document) {}

  Result<Machine> read() {
    const Json& root = document_.value;
    Machine out;
    out.name = root["name"];
    out.ranks_per_node = root.value("ranks_per_node", std::int64_t{1});
    if (root.contains("cores")) out.cores = root["cores"].get<std::int64_t>();
    out.contention = root.value("contention", 1.0);
    if (root.contains("threads") && !out.cores)
      return Error{"\"threads\" is how ranks share cores, and there are none",
                   document_.value_location("/threads"), "add cores: 2, or leave it out"};
    if (has("/threads/wake")) out.wake = quantity("/threads/wake", parse_duration);
    if (has("/threads/refill")) out.refill = quantity("/threads/refill", parse_duration);
    if (has("/threads/start")) out.start = quantity("/threads/start", parse_duration);
    if (has("/threads/slice")) out.slice = quantity("/threads/slice", parse_duration);
    if (out.slice < kLeastSlice)
      return Error{"a slice is at least 100us", document_.value_location("/threads/slice"),
                   "slice: 4ms"};
    for (const auto& [dtype, rates] : root["compute"].items()) {
      out.compute[dtype] = {quantity("/compute/" + dtype + "/peak", parse_flop_rate),
                            rates.value("matmul", 1.0), rates.value("convolution", 1.0)};
    }
    if (out.compute.empty()) {
      return Error{"\"compute\" names no type", document_.value_location("/compute"),
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
    read_nccl(out);
    if (problem_) return *problem_;
    return out;
  }

 private:
  bool has(const std::string& pointer) const {
    return document_.value.contains(Json::json_pointer(pointer));
  }

  void refuse(const std::string& pointer, std::string message, std::string fix) {
    if (!problem_)
      problem_ = Error{std::move(message), document_.value_location(pointer), std::move(fix)};
  }

  void read_nccl(Machine& out) {
    static constexpr std::array<const char*, 7> kKeys = {"kind",    "ring",  "tree", "nvls",
                                                         "latency", "speed", "fill"};
    // Without NCCL its keys on a link would silently do nothing.
    if (!has("/nccl")) {
      for (std::size_t i = 0; i < out.links.size(); ++i)
        for (const char* key : kKeys)
          if (const std::string link = "/links/" + std::to_string(i) + "/"; has(link + key))
            refuse(link + key, std::string("\"") + key + "\" is NCCL's, which the file leaves out",
                   "add a line: nccl: {gpu: hopper}");
      return;
    }
    if (out.cores)
      refuse("/nccl", "NCCL carries calls between devices, and ranks that share cores have none",
             "leave \"cores\" or \"nccl\" out");
    const Json& nccl = document_.value["nccl"];
    NcclTuning tuning;
    const auto* gpu = std::find(kGpus.begin(), kGpus.end(), nccl["gpu"].get<std::string>());
    tuning.gpu = static_cast<GpuGeneration>(gpu - kGpus.begin());
    tuning.amd = nccl.value("cpu", "intel") == "amd";
    tuning.fitted_to = nccl.value("fitted_to", std::vector<std::string>{});
    tuning.nvlink = kind(0, {"nvlink", "pci"}) != "pci";
    tuning.inside = level(0);
    if (out.links.size() > 1) {
      kind(1, {"network"});
      tuning.between = level(1);
    }
    out.nccl = std::move(tuning);
  }

  // The link's kind, by default the first possible one; another kind is a problem.
  std::string kind(std::size_t i, const std::vector<std::string>& possible) {
    const std::string pointer = "/links/" + std::to_string(i) + "/kind";
    if (!has(pointer)) return possible.front();
    auto given = document_.value[Json::json_pointer(pointer)].get<std::string>();
    if (std::find(possible.begin(), possible.end(), given) == possible.end())
      refuse(pointer,
             std::string("the links ") + (i == 0 ? "inside a node" : "between nodes") +
                 " cannot be \"" + given + "\" to NCCL",
             "write " + (possible.size() == 1 ? possible[0] : possible[0] + " or " + possible[1]));
    return given;
  }

  NcclLevel level(std::size_t i) {
    const std::string link = "/links/" + std::to_string(i);
    const Json& given = document_.value["links"][i];
    NcclLevel out;
    if (has(link + "/ring"))
      out.ring = quantity(link + "/ring", parse_nccl_channels);
    else
      refuse(link, "NCCL's channels are missing: \"ring\"",
             "add ring: 12x30GB/s, as NCCL prints "
             "with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH");
    if (has(link + "/tree")) out.tree = quantity(link + "/tree", parse_nccl_channels);
    if (has(link + "/nvls")) {
      out.nvls = quantity(link + "/nvls", parse_nccl_channels);
      if (i > 0)
        refuse(link + "/nvls", "switches reduce inside a node", "move it to the first link");
    }
    out.latency = given.value("latency", 1.0);
    out.speed = given.value("speed", 1.0);
    out.fill = given.value("fill", 0.0);
    return out;
  }

  template <class T>
  T quantity(const std::string& pointer, Result<T> (*parse)(std::string_view)) {
    const auto text = document_.value[Json::json_pointer(pointer)].get<std::string>();
    const Result<T> parsed = parse(text);
    if (parsed) return *parsed;
    if (!problem_) {
      problem_ = parsed.error();
      problem_->location = document_.value_location(pointer);
    }
    return T{};
  }

  const YamlDocument& document_;
  std::optional<Error> problem_;
};

// The shortest text that parses to the same number.
std::string number(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

// Double-quoted YAML that parses to the same text.
std::string quoted(const std::string& text) { return Json(to_utf8(text)).dump(); }

std::string bits(Bandwidth bandwidth) { return std::to_string(bandwidth.bits_per_second) + "b/s"; }

std::string channels_text(const NcclChannels& channels) {
  return std::to_string(channels.count) + "x" + bits(channels.each);
}

std::string level_text(const NcclLevel& level, const char* kind) {
  std::string out = std::string(", kind: ") + kind + ", ring: " + channels_text(level.ring);
  if (level.tree) out += ", tree: " + channels_text(*level.tree);
  if (level.nvls) out += ", nvls: " + channels_text(*level.nvls);
  return out + ", latency: " + number(level.latency) + ", speed: " + number(level.speed) +
         ", fill: " + number(level.fill);
}

std::string nccl_text(const NcclTuning& nccl) {
  std::string out = std::string("nccl: {gpu: ") + kGpus[static_cast<std::size_t>(nccl.gpu)] +
                    ", cpu: " + (nccl.amd ? "amd" : "intel");
  for (std::size_t i = 0; i < nccl.fitted_to.size(); ++i)
    out += (i == 0 ? ", fitted_to: [" : ", ") + quoted(nccl.fitted_to[i]);
  return out + (nccl.fitted_to.empty() ? "}\n" : "]}\n");
}

}  // namespace

Result<Machine> parse_machine(const std::string& text, const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  if (auto problem = check_against_schema(*document, Json::parse(kMachineSchema))) {
    if (problem->fix.empty()) problem->fix = "docs/simulate-scenarios.md shows a whole file";
    return *problem;
  }
  return MachineReader(*document).read();
}

Result<Machine> load_machine(const std::string& file) {
  const Result<std::string> text = read_file(file, kMostMachineBytes);
  if (!text) return text.error();
  return parse_machine(*text, file);
}

std::string machine_text(const Machine& machine, const std::string& comment) {
  std::string out = comment + "machine: 1\nname: " + quoted(machine.name) +
                    "\nranks_per_node: " + std::to_string(machine.ranks_per_node) + "\n";
  if (machine.cores) out += "cores: " + std::to_string(*machine.cores) + "\n";
  // 1 is the default.
  if (machine.contention != 1) out += "contention: " + number(machine.contention) + "\n";
  if (machine.cores)
    out += "threads: {wake: " + std::to_string(machine.wake.value) +
           "ps, start: " + std::to_string(machine.start.value) +
           "ps, slice: " + std::to_string(machine.slice.value) +
           "ps, refill: " + std::to_string(machine.refill.value) + "ps}\n";
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
         (machine.nccl ? nccl_text(*machine.nccl) : "") +
         "host: {sample: " + std::to_string(machine.sample.value) + "ps}\nlinks:\n";
  for (std::size_t i = 0; i < machine.links.size(); ++i) {
    const LinkCost& link = machine.links[i];
    out += "  - {alpha: " + std::to_string(link.alpha.value) + "ps, beta: " + bits(link.beta);
    if (link.gamma) out += ", gamma: " + bits(*link.gamma);
    if (machine.nccl && i == 0)
      out += level_text(machine.nccl->inside, machine.nccl->nvlink ? "nvlink" : "pci");
    if (machine.nccl && i == 1 && machine.nccl->between)
      out += level_text(*machine.nccl->between, "network");
    out += "}\n";
  }
  return out;
}

}  // namespace lockstep::sim
