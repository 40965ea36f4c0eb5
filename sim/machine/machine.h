// Machine: what a prediction needs to know about the computers that a job would run on. Read from a
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

  Links links;  // one level, or two: inside a node, between nodes

  // If NCCL carries the calls: what it found on those links. Empty: calls go as in Gloo's code.
  std::optional<NcclTuning> nccl;
};

inline constexpr std::int64_t kMostRanksPerNode = 4096;

// Parses a machine file. Errors, with file, line and reason: not YAML; a key that is unknown,
// missing or of another type; a quantity without a unit, or zero where it must not be; a share out
// of range; `nccl` without channels on a link, or channels without `nccl`.
Result<Machine> parse_machine(const std::string& text, const std::string& file);

// Errors: parse_machine's, and those of reading; larger than 1 MiB.
Result<Machine> load_machine(const std::string& file);

// The text of a machine file, from which parse_machine() makes the same machine. `comment`: lines
// for its head, each beginning with "#".
std::string machine_text(const Machine& machine, const std::string& comment);

}  // namespace lockstep::sim
