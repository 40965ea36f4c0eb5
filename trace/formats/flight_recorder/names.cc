#include "trace/formats/flight_recorder/names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/torch_names.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

bool differ_in_a_byte(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::inner_product(a.begin(), a.end(), b.begin(), 0, std::plus<>(),
                                                    std::not_equal_to<>()) == 1;
}

namespace {

const std::map<std::string_view, DumpKey>& known_keys() {
  static const std::map<std::string_view, DumpKey> keys = {
      {"frames", DumpKey::frames},
      {"pg_id", DumpKey::pg_id},
      {"process_group", DumpKey::process_group},
      {"thread_name", DumpKey::thread_name},
      {"thread_id", DumpKey::thread_id},
      {"collective_seq_id", DumpKey::collective_seq_id},
      {"p2p_seq_id", DumpKey::p2p_seq_id},
      {"profiling_name", DumpKey::profiling_name},
      {"time_created_ns", DumpKey::time_created_ns},
      {"input_sizes", DumpKey::input_sizes},
      {"input_dtypes", DumpKey::input_dtypes},
      {"output_sizes", DumpKey::output_sizes},
      {"output_dtypes", DumpKey::output_dtypes},
      {"state", DumpKey::state},
      {"time_discovered_started_ns", DumpKey::started},
      {"time_discovered_completed_ns", DumpKey::completed},
      {"retired", DumpKey::retired},
      {"is_p2p", DumpKey::is_p2p},
      {"op_id", DumpKey::op_id},
      {"record_id", DumpKey::record_id},
  };
  return keys;
}

template <class Names>
std::optional<std::string_view> mended_by(std::string_view name, const Names& known) {
  const auto found = std::find_if(known.begin(), known.end(), [&](std::string_view one) {
    return differ_in_a_byte(name, one);
  });
  if (found == known.end() || std::find(known.begin(), known.end(), name) != known.end())
    return std::nullopt;
  return *found;
}

std::optional<std::string_view> mended_key(std::string_view name) {
  static const std::vector<std::string_view> known = [] {
    std::vector<std::string_view> out;
    for (const auto& [key, value] : known_keys()) out.push_back(key);
    return out;
  }();
  return mended_by(name, known);
}

// Of an operation, what stands before its peers: "hccl:sedd" is "hccl:send".
std::optional<std::string> mended_operation(std::string_view name) {
  static const std::vector<std::string> operations = [] {
    std::vector<std::string> out(torch_operations().begin(), torch_operations().end());
    out.emplace_back("coalesced");
    return out;
  }();
  constexpr std::array<std::string_view, 2> kLibraries = {"nccl", "gloo"};
  const auto whole = [](std::string_view library, std::string_view operation) {
    return fmt::format("{}:{}", library, operation);
  };
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos) {
    for (const std::string_view library : kLibraries) {
      for (const std::string& operation : operations)
        if (differ_in_a_byte(name, whole(library, operation))) return whole(library, operation);
    }
    return std::nullopt;
  }
  const std::string_view library = name.substr(0, colon);
  const std::string_view operation = name.substr(colon + 1);
  if (const auto known = mended_by(operation, operations)) return whole(library, *known);
  // Other libraries have such names, too: "hccl", "xccl". All but Gloo's calls are queued on
  // devices as NCCL's are, so only Gloo is told from them.
  const bool is_known =
      std::find(operations.begin(), operations.end(), operation) != operations.end();
  if (is_known && differ_in_a_byte(library, "gloo")) return whole("gloo", operation);
  return std::nullopt;
}

std::optional<std::string_view> mended_state(std::string_view name) {
  static constexpr std::array<std::string_view, 3> kStates = {"scheduled", "started", "completed"};
  return mended_by(name, kStates);
}

std::optional<std::string_view> mended_type(std::string_view name) {
  // As PyTorch writes them, "BFloat16" and "Float8_e4m3fn": any case counts.
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  static const std::vector<std::string_view> known = [] {
    std::vector<std::string_view> out(torch_types().begin(), torch_types().end());
    for (const char* const as_written : {"bfloat16", "bool", "float8_e4m3fn", "float8_e5m2"})
      out.emplace_back(as_written);
    return out;
  }();
  return mended_by(lower, known);
}

DumpOperation parse_operation(std::string_view name) {
  DumpOperation out;
  out.gloo = name.starts_with("gloo:");
  if (const std::size_t colon = name.find(':'); colon != std::string_view::npos) {
    out.library = name.substr(0, colon);
    name.remove_prefix(colon + 1);
  }
  // "nccl:coalesced", "nccl:ALLGATHER_coalesced".
  out.closes_batch = name == "coalesced" || name.ends_with("_coalesced");
  const std::size_t space = name.find(' ');
  out.name = name.substr(0, space);
  if (out.name == "send" || out.name == "recv" || out.name == "recvAnySource") {
    out.op = out.name == "send" ? Op::send : out.name == "recv" ? Op::recv : Op::recv_any;
    // "send 0->3": from 0 to 3. "recv 3<-0": to 3 from 0. In both the second number is the peer.
    const std::size_t arrow = name.find_first_of("<-", space == std::string_view::npos ? 0 : space);
    if (arrow != std::string_view::npos && arrow + 2 <= name.size()) {
      const std::string_view digits = name.substr(arrow + 2);
      std::from_chars(digits.data(), digits.data() + digits.size(), out.peer);
      const std::string_view own = name.substr(space + 1, arrow - space - 1);
      std::from_chars(own.data(), own.data() + own.size(), out.own);
    }
    return out;
  }
  // NCCL's barrier is an all_reduce of one element.
  if (out.name == "all_reduce_barrier") {
    out.op = Op::barrier;
  } else {
    out.op = op_from_torch(out.name).value_or(Op::other);
    // No dump holds splits, and with splits sizes may differ between ranks: only totals must agree.
    if (out.op == Op::all_to_all_single) out.op = Op::all_to_all;
  }
  return out;
}

}  // namespace

DumpKey DumpNames::key_of(std::string_view name) {
  const auto found = known_keys().find(mended(name, mended_key(name)));
  return found == known_keys().end() ? DumpKey::other : found->second;
}

StringId DumpNames::dtype_of(std::string_view name) {
  return tables_.strings.intern(dtype_from_torch(mended(name, mended_type(name))));
}

DumpOperation DumpNames::operation_of(std::string_view name) {
  // "nccl:sedd 0->1": what follows the operation stays.
  const std::string_view operation = name.substr(0, name.find(' '));
  const std::optional<std::string> known = mended_operation(operation);
  if (!known) return parse_operation(name);
  mended(operation, *known);
  return parse_operation(whole_.emplace_back(*known + std::string(name.substr(operation.size()))));
}

DumpState DumpNames::state_of(std::string_view name) {
  const std::string_view word = mended(name, mended_state(name));
  if (word == "completed") return DumpState::completed;
  return word == "started" ? DumpState::started : DumpState::other;
}

std::string_view DumpNames::mended(std::string_view name, std::optional<std::string_view> known) {
  if (!known) return name;
  mended_.push_back(fmt::format("\"{}\" is damaged, and taken as \"{}\"", printable(name), *known));
  return *known;
}

std::optional<Op> op_of_function(std::string_view name) {
  if (name == "isend") return Op::send;
  if (name == "irecv") return Op::recv;
  if (name == "all_gather_tensor") return Op::all_gather_into_tensor;  // a functional collective
  return op_from_torch(name);
}

DumpOperation operation_of_function(std::string_view function) {
  DumpOperation out;
  out.name = function;
  out.op = op_of_function(function).value_or(Op::other);
  if (out.op == Op::all_to_all_single) out.op = Op::all_to_all;  // as above
  return out;
}

std::optional<Rank> rank_in_dump(const DataTree& tree) {
  const DataTree::Value* const rank = tree.find(tree.root, "rank");
  const std::int64_t number = rank == nullptr ? kNone : rank->integer(kNone);
  if (!is_possible_rank(number, kMaxWorldSize)) return std::nullopt;
  return Rank(static_cast<std::int32_t>(number));
}

}  // namespace lockstep::trace
