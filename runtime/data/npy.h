// Writing NumPy's .npy files, version 1.0 of the format: a magic, a header that is a Python
// dictionary, and the elements in C order, little endian.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace lockstep::runtime {

// The bytes of a float32 array; the product of `shape` is the number of values.
std::string npy_bytes(std::span<const float> values, std::span<const std::int64_t> shape);

// The same as a file, which is replaced if it is there. Errors: it cannot be written.
Status write_npy(const std::string& path, std::span<const float> values,
                 std::span<const std::int64_t> shape);

}  // namespace lockstep::runtime
