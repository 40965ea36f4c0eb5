// A calibration: the few numbers of a machine type that determine a step's time. They are data, in
// the YAML files of sim/machines/calibration*.yaml. Each has its own meaning:
//
//   kernels   max(FLOPs / (peak x efficiency), bytes / bandwidth); the efficiency of a matrix
//             product falls with half-filled waves of tiles and with a short inner dimension
//   launches  the host issues kernels at its own pace; a faster GPU waits for it
//   network   alpha-beta inside a node (NVLink) and between nodes (network cards shared by the
//             ranks of a node)
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"
#include "base/result.h"

namespace lockstep::sim {

struct CostParameters {
  // Given by the data sheet.
  double peak_flops = 312e12;  // dense 16-bit, FLOP/s
  double processors = 108;     // streaming multiprocessors
  double ranks_per_node = 8;
  // Fitted.
  double gemm_efficiency = 0.8;      // share of the peak, for full waves and a deep product
  double gemm_half_depth = 150;      // inner dimension at which half of it is reached
  double memory_bandwidth = 1.4e12;  // bytes/s that element-wise kernels reach
  double attention_traffic = 1;      // scale of the bytes of softmax and dropout on the scores
  double logit_traffic = 60;         // bytes per logit: loss, its gradient, float32 copies
  double launch_forward = 1e-3;      // s per layer and micro-batch, forward
  double launch_backward = 1.4e-3;   // … and backward
  double launch_unfused = 0.8e-3;    // … added where the fused softmax cannot be used
  double launch_micro_batch = 2e-3;  // s per micro-batch and stage
  double step_overhead = 4e-3;       // s per step
  double optimizer_traffic = 40;     // bytes per parameter of clipping, update and copy
  double node_latency = 30e-6;       // s per collective of 8 ranks inside a node
  double node_bandwidth = 230e9;     // bus bandwidth inside a node, bytes/s
  double network_latency = 40e-6;    // s per doubling of ranks, between nodes
  double network_bandwidth = 12e9;   // bytes/s of one GPU's share of the network cards
  double stage_handover = 2e-4;      // s for which a send and a receive occupy a pipeline stage
  double compiled_traffic = 0.6;     // share of element-wise bytes left after a compiler's fusion
  double fp8_gain = 1.5;             // speed of linear layers in 8 bits over 16 bits
  double overlap_slowdown = 0.1;     // share of hidden communication that slows computing down
  double reserved_memory = 3e9;      // bytes of context, libraries and fragmentation
};

struct CostParameter {
  std::string_view name;  // of the YAML file
  double CostParameters::*value;
  std::string_view unit;
  double low, high;  // the range of plausible values
};

// Every parameter, in the order of the struct.
const std::vector<CostParameter>& cost_parameters();

// The parameters of a machine type, and their origin.
struct Calibration {
  std::string name;    // "a100-node"
  std::string origin;  // file, for messages
  CostParameters cost;
  std::vector<std::string> fitted_on;  // rows of tables: "vtrain-single 12"
};

// Parses `text`, the contents of the YAML file `file`:
//
//   name: a100-node
//   parameters: {peak_flops: 312e12, …}      every parameter, none twice
//   fitted_on: [vtrain-single 12, …]         optional
//
// Errors, with the location: a missing or unknown key, a value that is not a number or out of
// range.
Result<Calibration> parse_calibration(const std::string& text, const std::string& file);
std::string calibration_yaml(const Calibration& calibration);

// The calibrations that come with the program: sim/machines/calibration-*.yaml, embedded at build
// time, so that no file is needed at run time.

// "a100-node", "a100-cluster", …
std::vector<std::string> shipped_calibration_names();

// The text of sim/machines/calibration-NAME.yaml; empty: no such machine type.
std::optional<std::string_view> shipped_calibration_text(std::string_view name);

// Errors: no such machine type.
Result<Calibration> shipped_calibration(std::string_view name);

// `given` is a file or the name of a shipped calibration; if it is empty, `machine_type`'s is
// loaded. Errors: shipped_calibration()'s and parse_calibration()'s; a file that cannot be read.
Result<Calibration> load_calibration(const std::string& given, const std::string& machine_type);

// The text of sim/machines/calibration-nccl.yaml: see nccl_curves.h.
std::string_view shipped_nccl_curves();

// The files sim/machines/calibration-*.yaml.
std::span<const EmbeddedFile> shipped_calibrations();

}  // namespace lockstep::sim
