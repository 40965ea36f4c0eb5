// What the readers of measured tables share: one row, its values by name, and what is wrong with
// it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "sim/transformer/measured_table.h"

namespace lockstep::sim {

class TableRow {
 public:
  // A row as a list, whose columns `columns` names.
  TableRow(const nlohmann::json& row, const nlohmann::json& columns, std::string place);
  // A row as an object.
  TableRow(const nlohmann::json& row, std::string place);

  // A count from 1 to 2^30; `otherwise` where the row does not have it. What is wrong is
  // remembered.
  std::int64_t count(std::string_view name, std::optional<std::int64_t> otherwise = {});
  // A number above 0.
  double number(std::string_view name);
  std::optional<double> number_if_there(std::string_view name);
  std::string text(std::string_view name, std::string otherwise = {});
  bool has(std::string_view name) const;

  Status status() const { return wrong_ ? Status(*wrong_) : Status::ok(); }
  const std::string& place() const { return place_; }
  void refuse(std::string message, std::string fix);

 private:
  const nlohmann::json* find(std::string_view name) const;

  const nlohmann::json& row_;
  const nlohmann::json* columns_ = nullptr;
  std::string place_;  // "table.json, row 3"
  std::optional<Error> wrong_;
};

bool is_list_of_lists(const nlohmann::json& value);

// The forms' readers; `root` is an object that has the form's keys.
Result<MeasuredTable> read_step_columns(const nlohmann::json& root, const std::string& file);
Result<MeasuredTable> read_torchtitan(const nlohmann::json& root, const std::string& file);
Result<MeasuredTable> read_nccl_tests(const nlohmann::json& root, const std::string& file);

}  // namespace lockstep::sim
