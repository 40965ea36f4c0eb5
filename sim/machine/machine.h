// Machine: what a prediction needs to know of the computers that a job would run on. Read from a
// file like sim/machines/dgx-h100.yaml; docs/simulate-scenarios.md explains every key.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/quantities.h"
#include "base/result.h"
#include "sim/collectives/collective.h"
#include "sim/collectives/nccl_tuning.h"

namespace lockstep::sim {

struct Machine {
  std::string name;
  std::int64_t ranks_per_node = 1;

  // How fast products are: the peak, and the share of it that each kind of kernel reaches.
  struct Compute {
    FlopRate peak;
    double matmul = 1, convolution = 1;  // above 0, at most 1
  };
  std::map<std::string, Compute> compute;  // by type: "float32"; at least one

  Bandwidth memory_bandwidth;
  double memory_efficiency = 1;     // the share of it that kernels reach; above 0, at most 1
  std::optional<Bytes> per_device;  // memory
  // Of it: what the framework and the transport keep for themselves, and how much more the
  // allocator takes than it gives out; from 1.
  Bytes reserved;
  double fragmentation = 1;

  Picos launch;                 // of each kernel, by the host
  Picos dispatch;               // of each operation of LibTorch, by the host
  bool launches_hidden = true;  // the device works while the host goes on
  Picos sample;                 // the host's work to prepare a sample for a step

  // Processor cores of a node that its ranks share; nothing: every rank has a device of its own.
  std::optional<std::int64_t> cores;
  // How much longer work takes while all of these are busy, which share caches and memory; from 1.
  double contention = 1;
  Picos wake;  // until a thread that something has come for can run, at every hop of a call
  // … on top of that, at the first hop of a call of a group that has rested
  // (sim/engine/shared_cores)
  Picos start;
  Picos refill;  // what work takes longer after its rank waited for a call (there, too)
  // What a thread runs before one that waits for a core has its turn; above 0.
  Picos slice = Picos{4'000'000'000};

  Links links;  // one, or two: inside a node, between nodes

  // Where NCCL carries the calls: what it found on those links. Nothing: as Gloo's code does.
  std::optional<NcclTuning> nccl;
};

inline constexpr std::int64_t kMostRanksPerNode = 4096;

// Errors, with file, line and reason: no YAML; a key that is unknown, missing or of another type; a
// quantity without a unit, or zero where that cannot be; a share that is none; NCCL's channels
// without `nccl`, or the other way round.
Result<Machine> parse_machine(const std::string& text, const std::string& file);

// Errors: parse_machine's, and those of reading; larger than 1 MiB.
Result<Machine> load_machine(const std::string& file);

// The text of such a file: parse_machine gives back the same machine. `comment`: lines for its
// head, each of which begins with "#".
std::string machine_text(const Machine& machine, const std::string& comment);

}  // namespace lockstep::sim
