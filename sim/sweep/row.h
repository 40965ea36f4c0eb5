// Row: the result of a sweep at one point, and its line in results.jsonl (docs/sweep.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lockstep::sim {

enum class Outcome : std::uint8_t {
  trains,   // it has a step time; whether it fits is another question
  hangs,    // no schedule can continue
  wrong,    // it reaches its end, but its calls pair wrongly
  refused,  // an impossible plan, or one that cannot be derived
  failed,   // the worker was killed; another attempt may succeed
};

std::string_view to_string(Outcome outcome);

// Whether the verifier found something wrong with the job itself.
constexpr bool is_defect(Outcome outcome) {
  return outcome == Outcome::hangs || outcome == Outcome::wrong;
}

// Additional figures of a transformer on a cluster.
struct TransformerFigures {
  double tokens_per_second_per_rank = 0;
  double mfu = 0;     // share of the peak that the model's FLOPs take
  double bubble = 0;  // idle share of the pipeline
};

struct Row {
  std::string machine;                                               // file
  nlohmann::ordered_json values = nlohmann::ordered_json::object();  // by varied key
  Outcome outcome = Outcome::refused;
  std::string reason;      // why it does not train; else empty
  std::int64_t ranks = 0;  // 0: not known
  // If it trains:
  double step_seconds = 0;
  double samples_per_second = 0;
  // Memory of the fullest rank: what its device needs at the peak or, if that was not counted, at
  // least its parameters, gradients and optimizer state.
  double memory_bytes = 0;
  bool memory_counted = false;
  std::optional<double> device_bytes;  // memory of a device
  // For scenarios: per rank and step.
  double sent_bytes = 0;
  double calls = 0;
  std::optional<TransformerFigures> transformer;  // for plans only

  double samples_per_second_per_rank() const {
    return samples_per_second / static_cast<double>(ranks);
  }
};

// Identifies a point by machine and values.
std::string point_key(const std::string& machine, const nlohmann::ordered_json& values);

// One JSON object and a line break. `fits`: for a row that trains.
std::string row_line(const Row& row, bool fits);

// `line` without its line break. Errors: not what row_line() writes.
Result<Row> parse_row(std::string_view line);

}  // namespace lockstep::sim
