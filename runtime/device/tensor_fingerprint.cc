#include "runtime/device/tensor_fingerprint.h"

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::runtime {

namespace {

// Elements that are worth a thread; a multiple of 8. Large tensors have a few hundred parts.
std::int64_t part_size(std::int64_t elements) {
  constexpr std::int64_t kMin = 1 << 15;
  constexpr std::int64_t kMaxParts = 256;
  return std::max(kMin, (elements / kMaxParts + 8) / 8 * 8);
}

// As what it is hashed as: itself, a float, or a double.
template <class As, class T>
void add(trace::Fingerprinter& out, std::span<const T> values, std::uint64_t first) {
  if constexpr (std::is_same_v<As, T>) {
    out.add(values, first);
  } else {
    std::array<As, 256> some;
    for (std::size_t i = 0; i < values.size(); i += some.size()) {
      const std::size_t n = std::min(some.size(), values.size() - i);
      for (std::size_t j = 0; j < n; ++j) some[j] = static_cast<As>(values[i + j]);
      out.add(std::span<const As>(some.data(), n), first + i);
    }
  }
}

template <class T, class As = T>
trace::Fingerprint take(const at::Tensor& tensor, std::uint32_t sketch, std::uint64_t first) {
  const std::span<const T> values(tensor.const_data_ptr<T>(),
                                  static_cast<std::size_t>(tensor.numel()));
  const auto size = static_cast<std::size_t>(part_size(tensor.numel()));
  const std::size_t parts = (values.size() + size - 1) / size;
  const auto taken = [&](std::size_t part) {
    const std::size_t begin = part * size;
    trace::Fingerprinter out(sketch);
    add<As>(out, values.subspan(begin, std::min(size, values.size() - begin)), first + begin);
    return out;
  };
  if (parts == 0) return trace::Fingerprinter(sketch).finish();
  trace::Fingerprinter whole = taken(0);
  if (parts == 1) return whole.finish();
  // Merged in the order of the tensor, whoever took them.
  if (at::get_num_threads() == 1 || at::in_parallel_region()) {
    for (std::size_t part = 1; part < parts; ++part) whole.merge(taken(part));
    return whole.finish();
  }
  std::vector<trace::Fingerprinter> rest(parts - 1, trace::Fingerprinter(sketch));
  at::parallel_for(1, static_cast<std::int64_t>(parts), 1, [&](std::int64_t from, std::int64_t to) {
    for (auto part = static_cast<std::size_t>(from); part < static_cast<std::size_t>(to); ++part) {
      rest[part - 1] = taken(part);
    }
  });
  for (const trace::Fingerprinter& part : rest) whole.merge(part);
  return whole.finish();
}

}  // namespace

trace::Fingerprint fingerprint_of(const at::Tensor& tensor, std::uint32_t sketch,
                                  std::uint64_t first) {
  const at::NoGradGuard no_grad;
  const at::Tensor here = tensor.cpu().contiguous();
  switch (here.scalar_type()) {
    case at::kFloat:
      return take<float>(here, sketch, first);
    case at::kDouble:
      return take<double>(here, sketch, first);
    case at::kHalf:
      return take<at::Half, float>(here, sketch, first);
    case at::kBFloat16:
      return take<at::BFloat16, float>(here, sketch, first);
    case at::kLong:
      return take<std::int64_t, double>(here, sketch, first);
    case at::kInt:
      return take<std::int32_t, double>(here, sketch, first);
    default:
      return take<double>(here.to(at::kDouble), sketch, first);
  }
}

}  // namespace lockstep::runtime
