#include "sim/measured/table_row.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lockstep::sim {

using nlohmann::json;

namespace {

constexpr double kMaxCount = 1 << 30U;

// "MBS", " mbs" and "mbs_" as "mbs".
std::string letters_of(std::string_view key) {
  std::string out;
  for (const char c : key)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Whether `key` is `known` with a slip. Keys of two or three letters differ by one letter on
// purpose (tp, cp, ep), so of them only a letter too many or too few at the end counts.
bool is_slip_of(std::string_view key, std::string_view known) {
  const std::string given = letters_of(key), meant = letters_of(known);
  if (given == meant) return true;
  if (given.size() > 3 && meant.size() > 3) return edit_distance(given, meant) == 1;
  return given.size() > 1 && meant.size() > 1 && edit_distance(given, meant) == 1 &&
         (given.starts_with(meant) || meant.starts_with(given));
}

}  // namespace

TableRow::TableRow(const json& row, const json& columns, std::string location)
    : row_(row), columns_(&columns), location_(std::move(location)) {
  if (!row.is_array() || row.size() != columns.size())
    refuse(fmt::format("the row has not one value for each of the {} columns", columns.size()),
           "give a list as long as \"columns\"");
}

TableRow::TableRow(const json& row, std::string location)
    : row_(row), location_(std::move(location)) {
  if (!row.is_object()) refuse("the row is not an object", "write {\"key\": value, …}");
}

// The first problem is the cause; later ones may follow from it.
void TableRow::refuse(std::string message, std::string fix) {
  if (!wrong_)
    wrong_ = Error{fmt::format("{}: {}", location_, std::move(message)), {}, std::move(fix)};
}

const json* TableRow::find(std::string_view name) const {
  if (wrong_) return nullptr;
  if (columns_ == nullptr) {
    asked_.emplace(name);
    const auto it = row_.find(name);
    return it == row_.end() ? nullptr : &*it;
  }
  for (std::size_t i = 0; i < columns_->size(); ++i)
    if ((*columns_)[i].is_string() && (*columns_)[i].get_ref<const std::string&>() == name)
      return &row_[i];
  return nullptr;
}

std::size_t TableRow::one_of(std::string_view name, const std::vector<std::string>& words,
                             std::string_view otherwise) {
  const std::string said = text(name, std::string(otherwise));
  const auto found = std::find(words.begin(), words.end(), said);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  refuse(fmt::format("{} \"{}\" is not known", name, printable(said)),
         fmt::format("known are {}", join_and(words)));
  return 0;
}

Recompute TableRow::recompute(std::string_view name, std::string_view otherwise) {
  return static_cast<Recompute>(
      one_of(name, {kRecomputeNames.begin(), kRecomputeNames.end()}, otherwise));
}

void TableRow::refuse_slips() {
  if (wrong_ || columns_ != nullptr) return;
  for (const auto& [key, value] : row_.items()) {
    if (asked_.contains(key)) continue;
    for (const std::string& known : asked_)
      if (!row_.contains(known) && is_slip_of(key, known))
        return refuse(fmt::format("unknown key \"{}\"", printable(key)),
                      fmt::format("did you mean \"{}\"?", known));
  }
}

bool TableRow::has(std::string_view name) const { return find(name) != nullptr; }

std::int64_t TableRow::count(std::string_view name, std::optional<std::int64_t> otherwise) {
  const json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  const double x = number(name);
  if (x >= 1 && x <= kMaxCount && x == std::floor(x)) return static_cast<std::int64_t>(x);
  refuse(fmt::format("\"{}\" is not a whole number from 1 to 2^30", name), "correct the value");
  return 1;
}

double TableRow::number(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) {
    refuse(fmt::format("\"{}\" is missing", name), "add it");
    return 1;
  }
  const double x = value->is_number() ? value->get<double>() : 0;
  if (x > 0 && x < 1e30) return x;
  refuse(fmt::format("\"{}\" is not a number above 0", name), "correct the value");
  return 1;
}

std::optional<double> TableRow::number_if_there(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return number(name);
}

std::string TableRow::text(std::string_view name, std::string otherwise) {
  const json* value = find(name);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_string()) return value->get<std::string>();
  refuse(fmt::format("\"{}\" is not a text", name), "put it in quotes");
  return otherwise;
}

bool is_list_of_lists(const json& value) {
  if (!value.is_array()) return false;
  for (const json& item : value)
    if (!item.is_array()) return false;
  return true;
}

}  // namespace lockstep::sim
