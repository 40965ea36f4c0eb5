#include "trace/formats/torch_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::array<std::pair<std::string_view, Op>, 38> kTorchOps = {{
    {"allreduce", Op::all_reduce},
    {"all_reduce", Op::all_reduce},
    {"allreduce_sparse", Op::all_reduce},
    {"_allreduce_sparse", Op::all_reduce},
    {"allreduce_coalesced", Op::all_reduce},
    {"broadcast", Op::broadcast},
    {"_broadcast_oop", Op::broadcast},
    {"reduce", Op::reduce},
    {"_reduce_oop", Op::reduce},
    {"allgather", Op::all_gather},
    {"all_gather", Op::all_gather},
    {"_allgather_base", Op::all_gather_into_tensor},
    {"_all_gather_base", Op::all_gather_into_tensor},
    {"all_gather_base", Op::all_gather_into_tensor},
    {"all_gather_into_tensor_coalesced", Op::all_gather_into_tensor},
    {"allgather_base", Op::all_gather_into_tensor},
    {"allgather_into_tensor", Op::all_gather_into_tensor},
    {"all_gather_into_tensor", Op::all_gather_into_tensor},
    {"gather", Op::gather},
    {"scatter", Op::scatter},
    {"reduce_scatter", Op::reduce_scatter},
    {"reducescatter", Op::reduce_scatter},
    {"_reduce_scatter_base", Op::reduce_scatter_tensor},
    {"reduce_scatter_base", Op::reduce_scatter_tensor},
    {"reduce_scatter_tensor", Op::reduce_scatter_tensor},
    {"reduce_scatter_tensor_coalesced", Op::reduce_scatter_tensor},
    {"alltoall", Op::all_to_all},
    {"all_to_all", Op::all_to_all},
    {"alltoall_base", Op::all_to_all_single},
    {"all_to_all_single", Op::all_to_all_single},
    {"all_to_allv", Op::all_to_all_single},
    {"barrier", Op::barrier},
    {"all_reduce_barrier", Op::barrier},
    {"send", Op::send},
    {"recv", Op::recv},
    {"recvanysource", Op::recv_any},
    {"recv_anysource", Op::recv_any},
    {"recv_any_source", Op::recv_any},
}};

// c10::toString(ScalarType), in lower case, and C++ spellings of the same.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kDtypes = {{
    {"float", "float32"},
    {"half", "float16"},
    {"c10::half", "float16"},
    {"double", "float64"},
    {"c10::bfloat16", "bfloat16"},
    {"long", "int64"},
    {"long int", "int64"},
    {"int", "int32"},
    {"short", "int16"},
    {"char", "int8"},
    {"signed char", "int8"},
    {"byte", "uint8"},
    {"unsigned char", "uint8"},
    {"complexfloat", "complex64"},
    {"complexdouble", "complex128"},
}};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

std::optional<Op> op_from_torch(std::string_view name) {
  if (name.size() > 128) return std::nullopt;
  std::string text = lower(name);
  if (const std::size_t colon = text.rfind(':'); colon != std::string::npos) {
    text.erase(0, colon + 1);
  }
  constexpr std::string_view kCoalesced = "_coalesced";
  if (text.ends_with(kCoalesced)) text.resize(text.size() - kCoalesced.size());
  const auto* const found = std::find_if(kTorchOps.begin(), kTorchOps.end(),
                                         [&](const auto& row) { return row.first == text; });
  return found == kTorchOps.end() ? std::nullopt : std::optional(found->second);
}

std::string dtype_from_torch(std::string_view name) {
  std::string text = lower(name);
  const auto* const found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                         [&](const auto& row) { return row.first == text; });
  return found == kDtypes.end() ? text : std::string(found->second);
}

namespace {

template <class Row, std::size_t kRows>
constexpr std::array<std::string_view, kRows> names_in(const std::array<Row, kRows>& table) {
  std::array<std::string_view, kRows> out;
  std::transform(table.begin(), table.end(), out.begin(), [](const Row& row) { return row.first; });
  return out;
}

}  // namespace

std::span<const std::string_view> torch_operations() {
  static constexpr auto kNames = names_in(kTorchOps);
  return kNames;
}

std::span<const std::string_view> torch_types() {
  static constexpr auto kNames = names_in(kDtypes);
  return kNames;
}

void set_op(Signature& signature, std::optional<Op> op, std::string_view own_name, Tables& tables) {
  signature.op = op.value_or(Op::other);
  if (!op) signature.other_op = tables.strings.intern(std::string(own_name));
}

IntListId flat_tensor(std::int64_t elements, Tables& tables) {
  return elements < 0 ? IntListId{} : tables.int_lists.intern({elements, -1});
}

std::optional<std::vector<std::int64_t>> integers_in(std::string_view list) {
  list = trimmed(list);
  if (list.starts_with('[') != list.ends_with(']')) return std::nullopt;
  if (list.starts_with('[')) list = trimmed(list.substr(1, list.size() - 2));
  std::vector<std::int64_t> out;
  if (list.empty()) return out;
  // Not by split() and trimmed(): the groups of a large job list tens of thousands of members.
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto skip_blanks = [&] {
    at = std::find_if(at, end, [](char c) { return c != ' ' && c != '\t'; });
  };
  for (;;) {
    const auto [after, error] = std::from_chars(at, end, out.emplace_back());
    if (error != std::errc()) return std::nullopt;
    at = after;
    skip_blanks();
    if (at == end) return out;
    if (*at++ != ',') return std::nullopt;
    skip_blanks();
  }
}

std::optional<std::vector<Rank>> ranks_in(const std::vector<std::int64_t>& numbers) {
  std::vector<Rank> out;
  out.reserve(numbers.size());
  for (const std::int64_t number : numbers) {
    if (!is_possible_rank(number, kMaxWorldSize)) return std::nullopt;
    out.emplace_back(static_cast<std::int32_t>(number));
  }
  return out;
}

}  // namespace lockstep::trace
