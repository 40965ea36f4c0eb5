// Machine: what a prediction needs to know about the computers that a job would run on. Read from a
// file like sim/machines/dgx-h100.yaml; docs/simulate-scenarios.md explains every key.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"
#include "base/quantities.h"
#include "base/result.h"
#include "sim/collectives/price.h"

namespace lockstep {
struct YamlDocument;
}

namespace lockstep::sim {

struct Machine : Interconnect {
  std::string name;

  // The speed of matrix products and convolutions: the peak, and the share of it that each kind of
  // kernel reaches.
  struct Compute {
    FlopRate peak;
    double matmul = 1, convolution = 1;  // above 0, at most 1
  };
  std::map<std::string, Compute> compute;  // by element type, "float32"; at least one

  Bandwidth memory_bandwidth;
  double memory_efficiency = 1;     // the share that kernels reach; above 0, at most 1
  std::optional<Bytes> per_device;  // the memory of a device
  // What the framework and the transport reserve of it, and the allocator's overhead: bytes taken
  // over bytes given out, from 1.
  Bytes reserved;
  double fragmentation = 1;

  Picos launch;                 // the host's time to launch a kernel
  Picos dispatch;               // the host's time to dispatch an operation of LibTorch
  bool launches_hidden = true;  // the device works while the host goes on
  Picos sample;                 // the host's time to prepare one sample for a step

  // Processor cores of a node that its ranks share; empty: every rank has a device of its own. The
  // five fields after it apply to shared cores only (sim/engine/shared_cores.h).
  std::optional<std::int64_t> cores;
  // By what factor work takes longer while all cores are busy, since they share caches and memory;
  // from 1.
  double contention = 1;
  Picos wake;  // from the arrival of a hop until its thread can run
  // Added to `wake` at the first hop of a call whose group has rested.
  Picos start;
  Picos refill;  // how much longer work takes, at most, after its rank waited for a call
  // How long a thread runs before a waiting one gets its core; above 0.
  Picos slice = Picos{4'000'000'000};

  // Ranks whose work takes longer than on this machine: a GPU that throttles, or an older one. The
  // last entry that names a rank counts.
  struct Slow {
    std::int64_t first = 0, last = 0;  // ranks, both inclusive
    double work = 1;                   // how many times as long; above 0
  };
  std::vector<Slow> slow;

  // How fast a transformer's training step is on this machine: numbers by name, which
  // sim/transformer/calibration.h explains, and the rows of tables that they were fitted to. Empty:
  // plans cannot be priced on it.
  std::map<std::string, double> transformer;
  std::vector<std::string> transformer_fitted_to;
};

inline constexpr std::int64_t kMaxRanksPerNode = 4096;

// How many times as long a rank's work takes as the machine's rates say: 1, unless it is listed
// under `slow`.
double slowness_of(std::span<const Machine::Slow> slow, std::int64_t rank);
inline double slowness_of(const Machine& machine, std::int64_t rank) {
  return slowness_of(machine.slow, rank);
}

// Which of a job's `ranks` are listed there: "rank 3 takes 1.5 times as long, ranks 8-15 2 times";
// of many entries the first. A job may have none of them; empty: the machine lists none.
std::string slow_ranks_text(std::span<const Machine::Slow> slow, std::int64_t ranks);

// The JSON Schema of machine files, machine.schema.json.
std::string_view machine_schema();

// Parses a machine file. Errors, with file, line and reason: not YAML; a key that is unknown,
// missing or of another type; a quantity without a unit, or zero where it must not be; a share out
// of range; `nccl` without channels on a link, or channels without `nccl`.
Result<Machine> parse_machine(const std::string& text, const std::string& file);
// The same of YAML that is parsed.
Result<Machine> machine_of(const YamlDocument& document);

// The machine of a file, or a shipped one by its name ("dgx-h100"), where no file has that name.
// Errors: parse_machine's, and those of reading; larger than 1 MiB; a name that is neither.
Result<Machine> load_machine(const std::string& file);
// The same, not parsed.
Result<std::string> read_machine(const std::string& file);

// The machines that come with the program: sim/machines/*.yaml, embedded at build time.
std::span<const EmbeddedFile> shipped_machines();
std::string_view machine_name_of(const EmbeddedFile& shipped);  // "dgx-h100"
std::optional<std::string_view> shipped_machine_text(std::string_view name);
// A machine as `file` names it: the name of a shipped one, or a file relative to the folder of
// `file`.
std::string machine_seen_from(const std::string& file, const std::string& name);

// The text of a machine file, from which parse_machine() makes the same machine. `comment`: lines
// for its head, each beginning with "#".
std::string machine_text(const Machine& machine, const std::string& comment);

}  // namespace lockstep::sim
