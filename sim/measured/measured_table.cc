#include "sim/measured/measured_table.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/repeated_keys.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "sim/measured/table_row.h"

namespace lockstep::sim {

namespace {

// Tables without rows, too.
Result<MeasuredTable> read_table(const std::string& text, const std::string& file) {
  nlohmann::json root;
  RepeatedKeys keys;
  try {
    root = nlohmann::json::parse(text, keys.callback());
  } catch (const nlohmann::json::parse_error& wrong) {
    const std::string_view read =
        std::string_view(text).substr(0, wrong.byte > 0 ? wrong.byte - 1 : 0);
    return Error{"the file is not JSON from here on",
                 {file, 1 + static_cast<int>(std::count(read.begin(), read.end(), '\n')),
                  static_cast<int>(read.size() - (read.rfind('\n') + 1)) + 1},
                 "correct this place, or give one of the tables of docs/simulate-workloads.md"};
  } catch (const nlohmann::json::out_of_range&) {
    return Error{"the file is not JSON with numbers that a double holds",
                 {file},
                 "correct the numbers above 1e308"};
  }
  const auto unknown = [&] {
    return Error{"the file is not one of the known tables",
                 {file},
                 "known are those of vTrain, Megatron, torchtitan, NeMo and nccl-tests: "
                 "docs/simulate-workloads.md"};
  };
  if (keys.first())
    return Error{fmt::format("an object has the key \"{}\" twice", printable(*keys.first())),
                 {file},
                 "leave one of them out"};
  if (!root.is_object()) return unknown();
  // Sniffed by the keys that only one form has.
  if (root.contains("machines") && root["machines"].is_object()) return read_nccl_tests(root, file);
  if (!root.contains("rows") || !root["rows"].is_array()) return unknown();
  if (root["rows"].size() > kMaxTableRows)
    return Error{
        fmt::format("the table has more than {} rows", kMaxTableRows), {file}, "give it in parts"};
  if (root.contains("columns") && root["columns"].is_array()) return read_step_columns(root, file);
  TableRow about(root, file);
  const std::string framework = about.text("framework");
  if (const Status read = about.status(); !read) return read.error();
  if (framework == "NeMo") return read_nemo(root, file);
  return read_torchtitan(root, file);
}

}  // namespace

Result<MeasuredTable> parse_measured_table(const std::string& text, const std::string& file) {
  Result<MeasuredTable> table = read_table(text, file);
  if (table && table->steps.empty() && table->collectives.empty())
    return Error{"the table has no rows", {file}, "add some, as docs/simulate-workloads.md shows"};
  return table;
}

Result<MeasuredTable> load_measured_table(const std::string& path) {
  const Result<std::string> text = read_file(path, std::size_t{256} << 20U);
  if (!text) return text.error();
  return parse_measured_table(*text, path);
}

}  // namespace lockstep::sim
