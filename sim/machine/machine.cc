// Machine files: parsing and writing.

#include "sim/machine/machine.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/documents/document_reader.h"
#include "base/documents/file_kind.h"
#include "base/documents/schema_check.h"
#include "base/files/read_file.h"
#include "base/quantities.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxMachineBytes = std::size_t{1} << 20U;

// Linux grants threads no shorter slice (__setparam_fair, 6.12), and each slice is an event of the
// simulation.
constexpr Picos kMinSlice{100'000'000};

// In the order of GpuGeneration.
constexpr std::array<std::string_view, 4> kGpus = {"volta", "ampere", "hopper", "blackwell"};

class MachineReader {
 public:
  explicit MachineReader(const YamlDocument& document) : read_(document), root_(read_.root()) {}

  Result<Machine> read() {
    Machine out;
    out.name = root_["name"];
    out.ranks_per_node = root_.value("ranks_per_node", std::int64_t{1});
    read_cores(out);
    read_compute(out);
    read_memory(out);
    duration("/kernels/launch", out.launch);
    duration("/kernels/dispatch", out.dispatch);
    out.launches_hidden = read_.value_or("/kernels/hidden", out.launches_hidden);
    duration("/host/sample", out.sample);
    read_links(out);
    read_nccl(out);
    read_network(out);
    read_measured(out);
    read_slow(out);
    read_transformer(out);
    if (read_.problem()) return *read_.problem();
    return out;
  }

 private:
  // Into `out`, which keeps its default where the file says nothing.
  void duration(const std::string& pointer, Picos& out) {
    out = read_.quantity_or(pointer, parse_duration, out);
  }

  // Cores that ranks share, and how their threads do.
  void read_cores(Machine& out) {
    out.cores = read_.value_if_there<std::int64_t>("/cores");
    out.contention = root_.value("contention", 1.0);
    if (read_.has("/threads") && !out.cores)
      read_.refuse("/threads", "\"threads\" is how ranks share cores, and there are none",
                   "add cores: 2, or leave it out");
    duration("/threads/wake", out.wake);
    duration("/threads/refill", out.refill);
    duration("/threads/start", out.start);
    duration("/threads/slice", out.slice);
    if (out.slice < kMinSlice)
      read_.refuse("/threads/slice", "a slice is at least 100us", "slice: 4ms");
  }

  void read_compute(Machine& out) {
    for (const auto& [dtype, rates] : root_["compute"].items()) {
      out.compute[dtype] = {read_.quantity(fmt::format("/compute/{}/peak", dtype), parse_flop_rate),
                            rates.value("matmul", 1.0), rates.value("convolution", 1.0)};
    }
    if (out.compute.empty())
      read_.refuse("/compute", "\"compute\" has no type",
                   "add a line: float32: {peak: 19.5TFLOP/s, matmul: 0.7}");
  }

  void read_memory(Machine& out) {
    out.memory_bandwidth = read_.quantity("/memory/bandwidth", parse_bandwidth);
    out.memory_efficiency = root_["memory"].value("efficiency", 1.0);
    if (read_.has("/memory/per_device"))
      out.per_device = read_.quantity("/memory/per_device", parse_bytes);
    if (out.per_device && out.per_device->value == 0)
      read_.refuse("/memory/per_device", "a device without memory holds nothing",
                   "per_device: 80GB");
    out.reserved = read_.quantity_or("/memory/reserved", parse_bytes, out.reserved);
    out.fragmentation = root_["memory"].value("fragmentation", 1.0);
  }

  void read_links(Machine& out) {
    for (std::size_t i = 0; i < root_["links"].size(); ++i) {
      const std::string link = fmt::format("/links/{}", i);
      LinkCost cost{read_.quantity(link + "/alpha", parse_duration),
                    read_.quantity(link + "/beta", parse_bandwidth), std::nullopt};
      if (read_.has(link + "/gamma")) cost.gamma = read_.quantity(link + "/gamma", parse_bandwidth);
      out.links.push_back(cost);
    }
  }

  void read_transformer(Machine& out) {
    const Json transformer = root_.value("transformer", Json::object());
    for (const auto& [key, value] : transformer.items()) {
      if (key == "fitted_to")
        out.transformer_fitted_to = value.get<std::vector<std::string>>();
      else
        out.transformer[key] = value.get<double>();
    }
  }

  void read_nccl(Machine& out) {
    static constexpr std::array<const char*, 7> kKeys = {"kind",    "ring",  "tree", "nvls",
                                                         "latency", "speed", "fill"};
    // Without NCCL its keys on a link would silently do nothing.
    if (!read_.has("/nccl")) {
      for (std::size_t i = 0; i < out.links.size(); ++i)
        for (const char* key : kKeys)
          if (const std::string link = fmt::format("/links/{}/", i); read_.has(link + key))
            read_.refuse(link + key,
                         fmt::format("\"{}\" is NCCL's, which the file leaves out", key),
                         "add a line: nccl: {gpu: hopper}");
      return;
    }
    if (out.cores)
      read_.refuse("/nccl",
                   "NCCL carries calls between devices, and ranks that share cores have none",
                   "leave \"cores\" or \"nccl\" out");
    const Json& nccl = root_["nccl"];
    NcclTuning tuning;
    tuning.gpu = choice<GpuGeneration>(nccl["gpu"], kGpus);
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

  void read_network(Machine& out) {
    if (!read_.has("/network")) return;
    if (out.cores)
      read_.refuse("/network", "a network is between devices, and ranks that share cores have none",
                   "leave \"cores\" or \"network\" out");
    const Json& given = root_["network"];
    Topology network;
    network.kind =
        choice<Topology::Kind>(given["topology"], "fat-tree", "rails", "torus", "dragonfly");
    // A key of another topology would silently do nothing.
    static constexpr std::array<std::string_view, 4> kKeys = {
        "tiers rails sharp", "tiers rails sharp", "sides link",
        "nodes_per_router routers_per_group global_links groups link"};
    const std::string_view own = kKeys[static_cast<std::size_t>(network.kind)];
    for (const auto& [key, value] : given.items()) {
      const bool fits =
          key == "topology" || key == "hop" || own.find(key) != std::string_view::npos;
      if (!fits || (key == "rails" && network.kind != Topology::Kind::rails))
        read_.refuse_key("/network/" + key,
                         fmt::format("a {} has no \"{}\"", topology_name(network.kind), key),
                         "leave it out");
    }
    for (const Json& tier : given.value("tiers", Json::array()))
      network.tiers.push_back({tier["nodes"], tier.value("oversubscription", 1.0)});
    network.rails = given.value("rails", network.rails);
    for (const Json& side : given.value("sides", Json::array())) network.sides.push_back(side);
    network.nodes_per_router = given.value("nodes_per_router", network.nodes_per_router);
    network.routers_per_group = given.value("routers_per_group", network.routers_per_group);
    network.global_links = given.value("global_links", network.global_links);
    network.groups = given.value("groups", network.groups);
    if (read_.has("/network/link")) network.link = read_.quantity("/network/link", parse_bandwidth);
    duration("/network/hop", network.hop);
    network.sharp = given.value("sharp", false);
    if (const auto problem = topology_problem(network, out.ranks_per_node))
      read_.refuse("/network" + problem->key, problem->message, problem->fix);
    out.network = std::move(network);
  }

  void read_slow(Machine& out) {
    if (!read_.has("/slow")) return;
    const Json& all = root_["slow"];
    for (std::size_t i = 0; i < all.size(); ++i) {
      Machine::Slow slow{all[i]["first"], all[i]["first"], all[i]["work"]};
      slow.last = all[i].value("last", slow.first);
      if (slow.last < slow.first)
        read_.refuse(
            fmt::format("/slow/{}/last", i),
            fmt::format("the last rank {} is before the first one, {}", slow.last, slow.first),
            "put them in order");
      out.slow.push_back(slow);
    }
  }

  void read_measured(Machine& out) {
    if (!read_.has("/measured")) return;
    const Json& all = root_["measured"];
    std::vector<MeasuredCalls> measured;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string pointer = fmt::format("/measured/{}", i);
      MeasuredCalls calls{all[i]["from"], all[i]["ranks"], {}};
      for (std::size_t k = 0; k < all[i]["points"].size(); ++k) {
        const std::string point = fmt::format("{}/points/{}", pointer, k);
        const MeasuredCalls::Point read{read_.quantity(point + "/0", parse_bytes),
                                        read_.quantity(point + "/1", parse_duration)};
        // Both must grow strictly: equal neighbours would divide by zero.
        const bool grows = calls.points.empty()
                               ? read.bytes.value > 0 && read.time.value > 0
                               : read.bytes.value > calls.points.back().bytes.value &&
                                     read.time.value > calls.points.back().time.value;
        if (!grows)
          read_.refuse(point, "the points grow in bytes and in time, and begin above 0",
                       "put them in order");
        calls.points.push_back(read);
      }
      for (const MeasuredCalls& other : measured)
        if (other.ranks == calls.ranks)
          read_.refuse(pointer + "/ranks", fmt::format("{} ranks are measured twice", calls.ranks),
                       "keep one of the two");
      measured.push_back(std::move(calls));
    }
    // Only now, when the links have been read.
    set_measured(out, std::move(measured));
  }

  // The link's kind, by default the first possible one; another kind is a problem.
  std::string kind(std::size_t i, const std::vector<std::string>& possible) {
    const std::string pointer = fmt::format("/links/{}/kind", i);
    if (!read_.has(pointer)) return possible.front();
    auto given = read_.at(pointer).get<std::string>();
    if (std::find(possible.begin(), possible.end(), given) == possible.end())
      read_.refuse(pointer,
                   fmt::format("the links {} cannot be \"{}\" to NCCL",
                               i == 0 ? "inside a node" : "between nodes", given),
                   fmt::format("write {}", fmt::join(possible, " or ")));
    return given;
  }

  NcclLevel level(std::size_t i) {
    const std::string link = fmt::format("/links/{}", i);
    const Json& given = root_["links"][i];
    NcclLevel out;
    if (read_.has(link + "/ring"))
      out.ring = read_.quantity(link + "/ring", parse_nccl_channels);
    else
      read_.refuse(link, "NCCL's channels are missing: \"ring\"",
                   "add ring: 12x30GB/s, as NCCL prints "
                   "with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH");
    if (read_.has(link + "/tree")) out.tree = read_.quantity(link + "/tree", parse_nccl_channels);
    if (read_.has(link + "/nvls")) {
      out.nvls = read_.quantity(link + "/nvls", parse_nccl_channels);
      if (i > 0)
        read_.refuse(link + "/nvls", "switches reduce inside a node", "move it to the first link");
    }
    out.latency = given.value("latency", 1.0);
    out.speed = given.value("speed", 1.0);
    out.fill = given.value("fill", 0.0);
    return out;
  }

  DocumentReader read_;
  const Json& root_;
};

// Double-quoted YAML that parses to the same text.
std::string quoted(const std::string& text) { return Json(to_utf8(text)).dump(); }

std::string bits(Bandwidth bandwidth) { return fmt::format("{}b/s", bandwidth.bits_per_second); }

std::string picos(Picos time) { return fmt::format("{}ps", time.value); }

std::string channels_text(const NcclChannels& channels) {
  return fmt::format("{}x{}", channels.count, bits(channels.each));
}

std::string level_text(const NcclLevel& level, const char* kind) {
  std::string out = fmt::format(", kind: {}, ring: {}", kind, channels_text(level.ring));
  if (level.tree) out += fmt::format(", tree: {}", channels_text(*level.tree));
  if (level.nvls) out += fmt::format(", nvls: {}", channels_text(*level.nvls));
  return out +
         fmt::format(", latency: {}, speed: {}, fill: {}", level.latency, level.speed, level.fill);
}

// ["a", "b"]
std::string list_text(const std::vector<std::string>& items) {
  std::vector<std::string> out;
  for (const std::string& item : items) out.push_back(quoted(item));
  return fmt::format("[{}]", fmt::join(out, ", "));
}

std::string nccl_text(const NcclTuning& nccl) {
  return fmt::format(
      "nccl: {{gpu: {}, cpu: {}{}}}\n", kGpus[static_cast<std::size_t>(nccl.gpu)],
      nccl.amd ? "amd" : "intel",
      nccl.fitted_to.empty() ? "" : fmt::format(", fitted_to: {}", list_text(nccl.fitted_to)));
}

std::string network_text(const Topology& network) {
  std::string out = fmt::format("network:\n  topology: {}\n", topology_name(network.kind));
  if (!network.tiers.empty()) out += "  tiers:\n";
  for (const Topology::Tier& tier : network.tiers)
    out += fmt::format("    - {{nodes: {}, oversubscription: {}}}\n", tier.nodes,
                       tier.oversubscription);
  if (network.rails > 0) out += fmt::format("  rails: {}\n", network.rails);
  if (!network.sides.empty()) out += fmt::format("  sides: [{}]\n", fmt::join(network.sides, ", "));
  if (network.kind == Topology::Kind::dragonfly)
    out += fmt::format("  nodes_per_router: {}\n  routers_per_group: {}\n  global_links: {}\n",
                       network.nodes_per_router, network.routers_per_group, network.global_links);
  if (network.groups > 0) out += fmt::format("  groups: {}\n", network.groups);
  if (network.link) out += fmt::format("  link: {}\n", bits(*network.link));
  if (network.hop.value > 0) out += fmt::format("  hop: {}\n", picos(network.hop));
  if (network.sharp) out += "  sharp: true\n";
  return out;
}

std::string measured_text(const std::vector<MeasuredCalls>& measured) {
  if (measured.empty()) return "";
  std::string out = "measured:\n";
  for (const MeasuredCalls& calls : measured) {
    std::vector<std::string> points;
    for (const MeasuredCalls::Point& point : calls.points)
      points.push_back(fmt::format("[{}B, {}]", point.bytes.value, picos(point.time)));
    out += fmt::format("  - {{from: {}, ranks: {}, points: [{}]}}\n", quoted(calls.from),
                       calls.ranks, fmt::join(points, ", "));
  }
  return out;
}

std::string transformer_text(const Machine& machine) {
  if (machine.transformer.empty()) return "";
  std::string out = "transformer:\n";
  for (const auto& [key, value] : machine.transformer) out += fmt::format("  {}: {}\n", key, value);
  if (!machine.transformer_fitted_to.empty()) out += "  fitted_to:\n";
  for (const std::string& row : machine.transformer_fitted_to)
    out += fmt::format("    - {}\n", quoted(row));
  return out;
}

}  // namespace

Result<Machine> parse_machine(const std::string& text, const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  return machine_of(*document);
}

Result<Machine> machine_of(const YamlDocument& document) {
  static const DocumentSchema schema(Json::parse(machine_schema()));
  if (auto other = other_kind(document, "machine")) return *other;
  if (auto problem = schema.check(document, "docs/simulate-scenarios.md shows a whole file"))
    return *problem;
  return MachineReader(document).read();
}

double slowness_of(std::span<const Machine::Slow> slow, std::int64_t rank) {
  double out = 1;
  for (const Machine::Slow& some : slow)
    if (rank >= some.first && rank <= some.last) out = some.work;
  return out;
}

std::string slow_ranks_text(std::span<const Machine::Slow> slow, std::int64_t ranks) {
  constexpr std::size_t kShown = 3;
  if (slow.empty()) return {};
  std::vector<std::string> parts;
  for (const Machine::Slow& some : slow) {
    if (some.first >= ranks) continue;
    const std::int64_t last = std::min(some.last, ranks - 1);
    parts.push_back(last == some.first ? fmt::format("rank {} takes {} times as long", some.first,
                                                     number_text(some.work))
                                       : fmt::format("ranks {}-{} take {} times as long",
                                                     some.first, last, number_text(some.work)));
  }
  return parts.empty() ? "the job has none of the machine's slow ranks" : join_and(parts, kShown);
}

Result<Machine> load_machine(const std::string& file) {
  const Result<std::string> text = read_machine(file);
  if (!text) return text.error();
  return parse_machine(*text, file);
}

Result<std::string> read_machine(const std::string& file) {
  Result<std::string> text = read_file(file, kMaxMachineBytes);
  if (text) return text;
  if (const auto shipped = shipped_machine_text(file)) return std::string(*shipped);
  if (file.find_first_of("/.") != std::string::npos) return text.error();
  std::vector<std::string> names;
  for (const EmbeddedFile& shipped : shipped_machines())
    names.emplace_back(machine_name_of(shipped));
  return Error{
      fmt::format("no file or shipped machine is called \"{}\"", printable(file)),
      {},
      did_you_mean(file, names, fmt::format("name a file, or one of {}", join_and(names)))};
}

std::string_view machine_name_of(const EmbeddedFile& shipped) {
  constexpr std::string_view kSuffix = ".yaml";
  const std::string_view name = shipped.path.substr(shipped.path.rfind('/') + 1);
  return name.substr(0, name.size() - kSuffix.size());
}

std::optional<std::string_view> shipped_machine_text(std::string_view name) {
  for (const EmbeddedFile& shipped : shipped_machines())
    if (machine_name_of(shipped) == name) return shipped.text;
  return std::nullopt;
}

std::string machine_seen_from(const std::string& file, const std::string& name) {
  if (shipped_machine_text(name)) return name;
  return (std::filesystem::path(file).parent_path() / name).lexically_normal().string();
}

std::string machine_text(const Machine& machine, const std::string& comment) {
  std::string out = fmt::format("{}machine: 1\nname: {}\nranks_per_node: {}\n", comment,
                                quoted(machine.name), machine.ranks_per_node);
  if (machine.cores) out += fmt::format("cores: {}\n", *machine.cores);
  // 1 is the default.
  if (machine.contention != 1) out += fmt::format("contention: {}\n", machine.contention);
  if (machine.cores)
    out += fmt::format("threads: {{wake: {}, start: {}, slice: {}, refill: {}}}\n",
                       picos(machine.wake), picos(machine.start), picos(machine.slice),
                       picos(machine.refill));
  out += "compute:\n";
  for (const auto& [dtype, rates] : machine.compute)
    out += fmt::format("  {}: {{peak: {}FLOP/s, matmul: {}, convolution: {}}}\n", dtype,
                       rates.peak.per_second, rates.matmul, rates.convolution);
  out += fmt::format("memory: {{bandwidth: {}, efficiency: {}", bits(machine.memory_bandwidth),
                     machine.memory_efficiency);
  if (machine.per_device) out += fmt::format(", per_device: {}B", machine.per_device->value);
  if (machine.reserved.value > 0) out += fmt::format(", reserved: {}B", machine.reserved.value);
  if (machine.fragmentation != 1) out += fmt::format(", fragmentation: {}", machine.fragmentation);
  out += fmt::format("}}\nkernels: {{launch: {}, dispatch: {}, hidden: {}}}\n",
                     picos(machine.launch), picos(machine.dispatch), machine.launches_hidden);
  if (machine.nccl) out += nccl_text(*machine.nccl);
  out += fmt::format("host: {{sample: {}}}\nlinks:\n", picos(machine.sample));
  for (std::size_t i = 0; i < machine.links.size(); ++i) {
    const LinkCost& link = machine.links[i];
    out += fmt::format("  - {{alpha: {}, beta: {}", picos(link.alpha), bits(link.beta));
    if (link.gamma) out += fmt::format(", gamma: {}", bits(*link.gamma));
    if (machine.nccl && i == 0)
      out += level_text(machine.nccl->inside, machine.nccl->nvlink ? "nvlink" : "pci");
    if (machine.nccl && i == 1 && machine.nccl->between)
      out += level_text(*machine.nccl->between, "network");
    out += "}\n";
  }
  if (machine.network) out += network_text(*machine.network);
  if (!machine.slow.empty()) out += "slow:\n";
  for (const Machine::Slow& slow : machine.slow)
    out += fmt::format("  - {{first: {}, last: {}, work: {}}}\n", slow.first, slow.last, slow.work);
  return out + measured_text(machine.measured) + transformer_text(machine);
}

}  // namespace lockstep::sim
