// Row: what a sweep found out about one point, and its line in results.jsonl (docs/sweep.md).
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
  hangs,    // no schedule goes on
  refused,  // it is no plan, or cannot be derived
  failed,   // the worker was killed: asked again, it may come to something else
};

std::string_view to_string(Outcome outcome);

// Of a transformer on a cluster.
struct TransformerFigures {
  double tokens_per_second_per_rank = 0;
  double mfu = 0;     // share of the peak that the model's FLOPs take
  double bubble = 0;  // idle share of the pipeline
};

struct Row {
  std::string machine;                                               // file
  nlohmann::ordered_json values = nlohmann::ordered_json::object();  // by varied key
  Outcome outcome = Outcome::refused;
  std::string reason;      // why it does not train; empty where it does
  std::int64_t ranks = 0;  // 0: not known
  // Of what trains.
  double step_seconds = 0;
  double samples_per_second = 0;
  // That the fullest rank needs: what its device must have at its peak or, where that was not
  // counted, no more than its parameters, gradients and the optimizer's state.
  double memory_bytes = 0;
  bool memory_counted = false;
  std::optional<double> device_bytes;  // that a rank has
  // Of a scenario: of a rank in a step.
  double sent_bytes = 0;
  double calls = 0;
  std::optional<TransformerFigures> transformer;  // of a plan's rows, and of them alone

  double samples_per_second_per_rank() const {
    return samples_per_second / static_cast<double>(ranks);
  }
};

// Machine and values: rows of one point have the same.
std::string point_key(const std::string& machine, const nlohmann::ordered_json& values);

// One JSON object and a line break. `fits`: what is said of a row that trains.
std::string row_line(const Row& row, bool fits);

// `line` without its break. Errors: it is not what row_line() writes.
Result<Row> parse_row(std::string_view line);

}  // namespace lockstep::sim
