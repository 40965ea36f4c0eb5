#include "trace/signature.h"

#include <array>
#include <cstddef>

namespace lockstep::trace {

namespace {

// In the order of Op.
constexpr std::array<std::string_view, 20> kOpNames = {"other",          "all_reduce",
                                                       "reduce",         "broadcast",
                                                       "all_gather",     "all_gather_into_tensor",
                                                       "gather",         "scatter",
                                                       "reduce_scatter", "reduce_scatter_tensor",
                                                       "all_to_all",     "all_to_all_single",
                                                       "barrier",        "send",
                                                       "recv",           "recv_any",
                                                       "scan",           "exscan",
                                                       "probe",          "finalize"};
static_assert(kOpNames.size() == static_cast<std::size_t>(Op::finalize) + 1);

// One step of a multiply-and-fold hash: cheap, and good enough for ids that are small integers.
constexpr std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
  state = (state ^ value) * 0x9E3779B97F4A7C15ULL;
  return state ^ (state >> 29U);
}

constexpr std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

}  // namespace

std::string_view op_name(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }

std::optional<Op> op_from_name(std::string_view name) {
  for (std::size_t i = 1; i < kOpNames.size(); ++i) {
    if (kOpNames[i] == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

IntList flatten_shapes(const std::vector<std::vector<std::int64_t>>& shapes) {
  IntList flat;
  for (const auto& shape : shapes) {
    flat.insert(flat.end(), shape.begin(), shape.end());
    flat.push_back(-1);
  }
  return flat;
}

std::vector<std::vector<std::int64_t>> unflatten_shapes(const IntList& flat) {
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<std::int64_t> shape;
  for (const std::int64_t value : flat) {
    if (value >= 0) {
      shape.push_back(value);
      continue;
    }
    shapes.push_back(shape);
    shape.clear();
  }
  return shapes;
}

std::int64_t total_elements(const IntList& flat) {
  std::int64_t total = 0;
  std::int64_t tensor = 1;
  bool empty = false;  // a zero dimension wins over one that saturates
  for (const std::int64_t value : flat) {
    if (value >= 0) {
      empty = empty || value == 0;
      if (!empty) tensor = saturating_product(tensor, value);
      continue;
    }
    if (!empty) total = tensor > INT64_MAX - total ? INT64_MAX : total + tensor;
    tensor = 1;
    empty = false;
  }
  return total;
}

std::size_t SignatureHash::operator()(const Signature& s) const noexcept {
  std::uint64_t h = static_cast<std::uint64_t>(s.op);
  h = mix(h, s.other_op.value);
  h = mix(h, (std::uint64_t{s.in.value} << 32U) | s.out.value);
  h = mix(h, (std::uint64_t{s.dtypes.value} << 32U) | s.redop.value);
  h = mix(h, static_cast<std::uint64_t>(s.root));
  h = mix(h, (std::uint64_t{s.splits_in.value} << 32U) | s.splits_out.value);
  h = mix(h, static_cast<std::uint64_t>(s.count));
  return mix(h, s.mode.value);
}

std::size_t IntListHash::operator()(const IntList& list) const noexcept {
  std::uint64_t h = list.size();
  for (const std::int64_t value : list) h = mix(h, static_cast<std::uint64_t>(value));
  return h;
}

std::size_t NameListHash::operator()(const std::vector<StringId>& list) const noexcept {
  std::uint64_t h = list.size();
  for (const StringId name : list) h = mix(h, name.value);
  return h;
}

}  // namespace lockstep::trace
