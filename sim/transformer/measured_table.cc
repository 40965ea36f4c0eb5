#include "sim/transformer/measured_table.h"

#include <cmath>
#include <utility>

#include "base/text.h"
#include "sim/transformer/measured_columns.h"

namespace lockstep::sim {
namespace {

using nlohmann::json;

constexpr double kMostCount = 1 << 30U;

}  // namespace

TableRow::TableRow(const json& row, const json& columns, std::string place)
    : row_(row), columns_(&columns), place_(std::move(place)) {
  if (!row.is_array() || row.size() != columns.size())
    refuse(
        "the row has not one value for each of the " + std::to_string(columns.size()) + " columns",
        "give a list as long as \"columns\"");
}

TableRow::TableRow(const json& row, std::string place) : row_(row), place_(std::move(place)) {
  if (!row.is_object()) refuse("the row is no object", "write {\"key\": value, …}");
}

void TableRow::refuse(std::string message, std::string fix) {
  if (!wrong_) wrong_ = Error{place_ + ": " + std::move(message), {}, std::move(fix)};
}

const json* TableRow::find(std::string_view name) const {
  if (wrong_) return nullptr;
  if (columns_ == nullptr) {
    const auto it = row_.find(name);
    return it == row_.end() ? nullptr : &*it;
  }
  for (std::size_t i = 0; i < columns_->size(); ++i)
    if ((*columns_)[i].is_string() && (*columns_)[i].get_ref<const std::string&>() == name)
      return &row_[i];
  return nullptr;
}

bool TableRow::has(std::string_view name) const { return find(name) != nullptr; }

std::int64_t TableRow::count(std::string_view name, std::optional<std::int64_t> otherwise) {
  const json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  const double x = number(name);
  if (x >= 1 && x <= kMostCount && x == std::floor(x)) return static_cast<std::int64_t>(x);
  refuse("\"" + std::string(name) + "\" is no whole number from 1 to 2^30", "correct the value");
  return 1;
}

double TableRow::number(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) {
    refuse("\"" + std::string(name) + "\" is missing", "add it");
    return 1;
  }
  const double x = value->is_number() ? value->get<double>() : 0;
  if (x > 0 && x < 1e30) return x;
  refuse("\"" + std::string(name) + "\" is no number above 0", "correct the value");
  return 1;
}

std::optional<double> TableRow::number_if_there(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return number(name);
}

std::string TableRow::text(std::string_view name, std::string otherwise) {
  const json* value = find(name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::move(otherwise);
}

bool is_list_of_lists(const json& value) {
  if (!value.is_array()) return false;
  for (const json& item : value)
    if (!item.is_array()) return false;
  return true;
}

Result<MeasuredTable> parse_measured_table(const std::string& text, const std::string& file) {
  const json root = json::parse(text, nullptr, false);
  if (root.is_discarded()) return Error{"the file is no JSON", {file}, "give one of the tables"};
  const auto unknown = [&] {
    return Error{"the file is none of the known tables",
                 {file},
                 "known are those of vTrain, Megatron, torchtitan and nccl-tests: "
                 "docs/simulate-workloads.md"};
  };
  if (!root.is_object()) return unknown();
  if (root.contains("machines") && root["machines"].is_object()) return read_nccl_tests(root, file);
  if (!root.contains("rows") || !root["rows"].is_array()) return unknown();
  if (root["rows"].size() > kMostTableRows)
    return Error{"the table has more than " + std::to_string(kMostTableRows) + " rows",
                 {file},
                 "give it in parts"};
  if (root.contains("columns") && root["columns"].is_array()) return read_step_columns(root, file);
  return read_torchtitan(root, file);
}

}  // namespace lockstep::sim
