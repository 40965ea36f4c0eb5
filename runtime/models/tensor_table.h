// A list of tensors as text: what a model or a weights file holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::runtime {

struct TensorRow {
  std::string name;
  std::string type;  // "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t values = 0;
  std::uint64_t bytes = 0;
};

// One line for each, in columns, then their sum: "161 tensors, 23508032 values, 89.7 MiB".
std::string tensor_table(const std::vector<TensorRow>& rows);

// The last line alone, without its line break.
std::string tensor_sum(const std::vector<TensorRow>& rows);

}  // namespace lockstep::runtime
