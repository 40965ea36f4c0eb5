#include "trace/formats/flight_recorder/names.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <map>

#include "trace/formats/torch_names.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

DumpKey dump_key(std::string_view name) {
  static const std::map<std::string_view, DumpKey> kKeys = {
      {"frames", DumpKey::frames},
      {"pg_id", DumpKey::pg_id},
      {"process_group", DumpKey::process_group},
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
  };
  const auto found = kKeys.find(name);
  return found == kKeys.end() ? DumpKey::other : found->second;
}

DumpOperation parse_dump_operation(std::string_view name) {
  DumpOperation out;
  out.gloo = name.starts_with("gloo:");
  if (const std::size_t colon = name.find(':'); colon != std::string_view::npos) {
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

std::optional<Rank> rank_in_dump(const DataTree& tree) {
  const DataTree::Value* const rank = tree.find(tree.root, "rank");
  const std::int64_t number = rank == nullptr ? kNone : rank->integer(kNone);
  if (!is_possible_rank(number, kMaxWorldSize)) return std::nullopt;
  return Rank(static_cast<std::int32_t>(number));
}

bool is_library_frame(std::string_view file) {
  constexpr std::array<std::string_view, 4> kLibraries = {"/torch/", "/lib/python3", "<frozen ",
                                                          "torch/csrc"};
  const bool installed = file.find("-packages/") != std::string_view::npos;
  for (const std::string_view library : kLibraries) {
    if (file.find(library) == std::string_view::npos) continue;
    // /lib/python3.12/site-packages/…: other installed packages (a trainer) count as the user's.
    if (library == "/lib/python3" && installed) continue;
    return true;
  }
  return file.ends_with("distributed_c10d.py") || file.ends_with("c10d_logger.py");
}

}  // namespace lockstep::trace
