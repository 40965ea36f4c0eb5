// What the readers of measured tables share: one row, its values by name, and the first error. A
// reader takes all values without checking each, then asks status() once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "sim/measured/measured_table.h"

namespace lockstep::sim {

class TableRow {
 public:
  // A row that is a list; `columns` names its values: [16, 2, 1024, …].
  TableRow(const nlohmann::json& row, const nlohmann::json& columns, std::string location);
  // A row that is an object: {"model": "8B", "gpus": 8, "tps_gpu": 5762, …}.
  TableRow(const nlohmann::json& row, std::string location);

  // A whole number from 1 to 2^30; `otherwise` if the row does not have it. Like all of these it
  // remembers what is wrong and returns a harmless value.
  std::int64_t count(std::string_view name, std::optional<std::int64_t> otherwise = {});
  // A number above 0.
  double number(std::string_view name);
  // Empty also for null.
  std::optional<double> number_if_there(std::string_view name);
  std::string text(std::string_view name, std::string otherwise = {});
  // The index of the word among `words`.
  std::size_t one_of(std::string_view name, const std::vector<std::string>& words,
                     std::string_view otherwise);
  Recompute recompute(std::string_view name, std::string_view otherwise);
  bool has(std::string_view name) const;

  // Refuses a key of an object that nobody asked for and that is one letter from a key that was
  // asked for and is not there: a slip, for which a default would be taken in silence. Other keys
  // are the table's own. To be called after all values were taken.
  void refuse_slips();

  Status status() const { return wrong_ ? Status(*wrong_) : Status::ok(); }
  const std::string& location() const { return location_; }
  void refuse(std::string message, std::string fix);

 private:
  const nlohmann::json* find(std::string_view name) const;

  const nlohmann::json& row_;
  mutable std::set<std::string, std::less<>> asked_;  // of an object: keys that find() looked for
  const nlohmann::json* columns_ = nullptr;
  std::string location_;  // "table.json, row 3"
  std::optional<Error> wrong_;
};

// unsaid.json: what tables leave out.
std::string_view unsaid_in_tables();

bool is_list_of_lists(const nlohmann::json& value);

// The readers of the forms. `root` is an object with the form's keys.
Result<MeasuredTable> read_step_columns(const nlohmann::json& root, const std::string& file);
Result<MeasuredTable> read_torchtitan(const nlohmann::json& root, const std::string& file);
Result<MeasuredTable> read_nemo(const nlohmann::json& root, const std::string& file);
Result<MeasuredTable> read_nccl_tests(const nlohmann::json& root, const std::string& file);

}  // namespace lockstep::sim
