// The header of a safetensors file: which tensors it holds, their types and shapes, and where they
// are.
//
// Format (https://github.com/huggingface/safetensors, "Format"): 8 bytes, the little-endian length
// N of the header; N bytes of JSON, an object that begins with '{' and may end in blanks; the data.
//
//   {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...,
//    "__metadata__": {"KEY": "TEXT", ...}}
//
// Offsets count from the start of the data. The tensors cover the data from its first to its last
// byte without overlap and without a hole; values are little-endian, in row-major order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

enum class StoredType { F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL };

// "F32", as in the file.
std::string_view name_of(StoredType type);
std::size_t bytes_of(StoredType type);  // of one value

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<std::int64_t> shape;  // outermost first; empty: one value
  std::uint64_t begin = 0;          // bytes from the start of the data
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
  std::uint64_t elements() const { return bytes() / bytes_of(type); }
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Longer headers are refused, here and by the reference implementation.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;

// Reads the JSON of a file whose data has `data_bytes` bytes. Costs memory in proportion to the
// header, whatever it says.
// Errors, without a location: no JSON of this form, a name twice, an unknown type, offsets that are
// not those of type and shape, that lie outside of the data, overlap, or leave a hole.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

// "[2, 3]"; "[]" for one value.
std::string shape_in_words(const std::vector<std::int64_t>& shape);

}  // namespace lockstep::runtime
