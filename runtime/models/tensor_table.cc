#include "runtime/models/tensor_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "runtime/models/safetensors_header.h"

namespace lockstep::runtime {

std::string tensor_table(const std::vector<TensorRow>& rows) {
  std::size_t name_width = 4;
  std::size_t shape_width = 5;
  std::size_t values_width = 6;
  for (const TensorRow& row : rows) {
    name_width = std::max(name_width, columns_of(printable(row.name)));
    shape_width = std::max(shape_width, shape_in_words(row.shape).size());
    values_width = std::max(values_width, std::to_string(row.values).size());
  }
  const auto line = [&](const std::string& name, const std::string& type, const std::string& shape,
                        const std::string& values) {
    return fmt::format("{}  {}  {}  {}\n", pad_right(name, name_width), pad_right(type, 4),
                       pad_right(shape, shape_width), pad_left(values, values_width));
  };
  std::string text = line("name", "type", "shape", "values");
  for (const TensorRow& row : rows) {
    text +=
        line(printable(row.name), row.type, shape_in_words(row.shape), std::to_string(row.values));
  }
  return fmt::format("{}{}\n", text, tensor_sum(rows));
}

std::string tensor_sum(const std::vector<TensorRow>& rows) {
  std::uint64_t values = 0;
  std::uint64_t bytes = 0;
  for (const TensorRow& row : rows) {
    values += row.values;
    bytes += row.bytes;
  }
  return fmt::format("{}, {}, {}", plural(rows.size(), "tensor"), plural(values, "value"),
                     bytes_text(bytes));
}

}  // namespace lockstep::runtime
