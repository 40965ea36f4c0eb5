#include "runtime/data/npy.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "base/files/write_file.h"

namespace lockstep::runtime {

static_assert(std::endian::native == std::endian::little,
              "values are written as they are in memory");

std::string npy_bytes(std::span<const float> values, std::span<const std::int64_t> shape) {
  constexpr std::size_t kPreamble = 10;  // magic, version, length of the header
  constexpr std::size_t kAlignment = 64;
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (const std::int64_t extent : shape) header += fmt::format("{}, ", extent);
  header += "), }";
  while ((kPreamble + header.size() + 1) % kAlignment != 0) header += ' ';
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xffU);
  bytes += static_cast<char>(header.size() >> 8U);
  bytes += header;
  const std::size_t start = bytes.size();
  bytes.resize(start + values.size_bytes());
  if (!values.empty()) std::memcpy(bytes.data() + start, values.data(), values.size_bytes());
  return bytes;
}

Status write_npy(const std::string& path, std::span<const float> values,
                 std::span<const std::int64_t> shape) {
  return write_file(path, npy_bytes(values, shape));
}

}  // namespace lockstep::runtime
