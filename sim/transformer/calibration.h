// A calibration: the few numbers of a machine type that determine a training step's time. They are
// a machine file (sim/machine/machine.h) with a section `transformer`:
//
//   kernels   max(FLOPs / (peak x efficiency), bytes / bandwidth); the efficiency of a matrix
//             product falls with half-filled waves of tiles and with a short inner dimension
//   launches  the host issues kernels at its own pace; a faster GPU waits for it
//   calls     what sim/collectives/price.h says of the file's links, as in every other command;
//             `node_speed`, `network_speed` and `call_overhead` are how far calls inside a training
//             step are from calls alone
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"
#include "base/result.h"
#include "sim/collectives/price.h"
#include "sim/machine/machine.h"

namespace lockstep::sim {

struct CostParameters : Interconnect {
  // A plain machine, for tests: eight ranks a node, no NCCL.
  CostParameters() {
    ranks_per_node = 8;
    links = {{Picos{2'000'000}, Bandwidth{1'840'000'000'000}, std::nullopt},
             {Picos{4'000'000}, Bandwidth{96'000'000'000}, std::nullopt}};
  }
  double peak_flops = 312e12;  // dense 16-bit, FLOP/s: `compute: {bfloat16: {peak: …}}`
  // The numbers of the section `transformer`, most of them fitted.
  double processors = 108;            // streaming multiprocessors
  double gemm_efficiency = 0.8;       // share of the peak, for full waves and a deep product
  double gemm_half_depth = 150;       // inner dimension at which half of it is reached
  double memory_bandwidth = 1.4e12;   // bytes/s that element-wise kernels reach
  double attention_efficiency = 0.8;  // share of the peak of fused attention's products
  double attention_traffic = 1;       // scale of the bytes of softmax and dropout on the scores
  double logit_traffic = 60;          // bytes per logit: loss, its gradient, float32 copies
  double launch_forward = 1e-3;       // s per layer and micro-batch, forward
  double launch_backward = 1.4e-3;    // … and backward
  double launch_unfused = 0.8e-3;     // … added where the fused softmax cannot be used
  double launch_micro_batch = 2e-3;   // s per micro-batch and stage
  double step_overhead = 4e-3;        // s per step
  double optimizer_traffic = 40;      // bytes per parameter of clipping, update and copy
  double call_overhead = 2e-5;        // s per collective: its launch, and ranks that come late
  double node_speed = 1;            // speed of calls inside a node over that of the same call alone
  double network_speed = 1;         // … of calls between nodes
  double stage_handover = 2e-4;     // s for which a send and a receive occupy a pipeline stage
  double compiled_traffic = 0.6;    // share of element-wise bytes left after a compiler's fusion
  double fp8_gain = 1.5;            // speed of multiplying in 8 bits, in linear layers
  double overlap_slowdown = 0.1;    // share of hidden communication that slows computing down
  double reserved_memory = 3e9;     // bytes of context, libraries and fragmentation
  std::vector<Machine::Slow> slow;  // GPUs whose kernels take longer
  // Not a parameter of the model: four of five measured rows that the calibration was not fitted to
  // are within this share of their prediction.
  double spread = 0.15;
};

struct CostParameter {
  std::string_view name;  // the key in `transformer`
  double CostParameters::*value;
  std::string_view unit;
};

// Every parameter of the section, in the order of the struct. Their ranges: machine.schema.json.
const std::vector<CostParameter>& cost_parameters();

// A machine as plans see it.
struct Calibration {
  std::string name;    // "a100-node"
  std::string origin;  // file, for messages
  CostParameters cost;
  std::vector<std::string> fitted_on;  // rows of tables, labelled as by `calibrate check`
  Machine machine;                     // the whole file
};

// The calibration of a machine file's text. Errors: parse_machine()'s; with the location, no
// section `transformer`, a parameter that is missing.
Result<Calibration> parse_calibration(const std::string& text, const std::string& file);
// The same of YAML that is parsed.
Result<Calibration> calibration_of(const YamlDocument& document);

// The calibrations that come with the program: those of sim/machines/*.yaml that have a section
// `transformer`, embedded at build time, so that no file is needed at run time.

// "a100-node", "a100-cluster", …
std::vector<std::string> shipped_calibration_names();

// The text of sim/machines/NAME.yaml; empty: no such calibration.
std::optional<std::string_view> shipped_calibration_text(std::string_view name);

// Errors: no such machine type.
Result<Calibration> shipped_calibration(std::string_view name);

// The text of a calibration: `given` is the name of a shipped one, or a file. Errors: neither, with
// the name that was probably meant; a file that cannot be read.
Result<std::string> read_calibration(const std::string& given);

// `given` is a file or the name of a shipped calibration; if it is empty, `machine_type`'s is
// loaded. Errors: shipped_calibration()'s, read_calibration()'s and parse_calibration()'s.
Result<Calibration> load_calibration(const std::string& given, const std::string& machine_type);

}  // namespace lockstep::sim
