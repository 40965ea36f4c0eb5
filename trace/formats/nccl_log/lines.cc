#include "trace/formats/nccl_log/lines.h"

#include <charconv>
#include <string>

#include "base/numbers.h"
#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/formats/torch_names.h"
#include "trace/nccl_calls.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

bool parses_as(std::string_view text, std::int64_t& out) {
  out = parse_number<std::int64_t>(text).value_or(-1);
  return out >= 0;
}

std::optional<std::uint64_t> pointer_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == kNpos) return std::nullopt;
  text.remove_prefix(at + key.size());
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

}  // namespace

// "[rank3]: node7:1234:1290 [0] NCCL INFO AllReduce: …": from " NCCL INFO " backwards, since
// anything may come before the host.
std::optional<NcclLine> parse_nccl_line(std::string_view line) {
  const std::size_t info = line.find(kNcclInfo);
  if (info == kNpos) return std::nullopt;
  std::string_view head = line.substr(0, info);
  if (!head.ends_with(']')) return std::nullopt;
  const std::size_t bracket = head.rfind(" [");
  if (bracket == kNpos) return std::nullopt;
  head = head.substr(0, bracket);
  const std::size_t blank = head.find_last_of(" \t");
  if (blank != kNpos) head.remove_prefix(blank + 1);
  const std::size_t tid = head.rfind(':');
  if (tid == kNpos) return std::nullopt;
  const std::size_t pid = head.rfind(':', tid == 0 ? 0 : tid - 1);
  if (pid == kNpos || pid == tid) return std::nullopt;
  NcclLine out;
  std::int64_t ignored = 0;
  if (!parses_as(head.substr(tid + 1), ignored)) return std::nullopt;
  if (!parses_as(head.substr(pid + 1, tid - pid - 1), out.pid)) return std::nullopt;
  out.host = head.substr(0, pid);
  // "[rank3]:host", "[default3]:host": a prefix without a blank after it.
  if (const std::size_t prefix = out.host.rfind("]:"); prefix != kNpos) {
    out.host.remove_prefix(prefix + 2);
  }
  if (out.host.empty()) return std::nullopt;
  out.message = line.substr(info + kNcclInfo.size());
  return out;
}

bool is_nccl_call(std::string_view message) {
  const std::size_t colon = message.find(": opCount ");
  return colon != kNpos && colon <= 64 && message.substr(0, colon).find(' ') == kNpos;
}

std::optional<NcclLogCall> parse_nccl_call(std::string_view message) {
  NcclLogCall out;
  out.name = message.substr(0, message.find(':'));
  const auto op_count = pointer_after(message, "opCount ");
  const auto count = number_after(message, " count ");
  const auto datatype = number_after(message, " datatype ");
  const auto op = number_after(message, " op ");
  const auto root = number_after(message, " root ");
  const auto comm = pointer_after(message, " comm ");
  if (!op_count || !count || !datatype || !op || !root || !comm) return std::nullopt;
  // The last field. Without it the line was cut off, perhaps within a number.
  if (message.find(" stream ") == kNpos) return std::nullopt;
  if (*count < 0 || *datatype < 0 || *op < 0) return std::nullopt;
  out.op_count = *op_count;
  out.comm = *comm;
  out.count = *count;
  out.datatype = *datatype;
  out.op = *op;
  out.root = *root;
  const auto nranks = number_after(message, "[nranks=").value_or(kNone);
  if (nranks > 0 && nranks <= kMaxWorldSize) out.nranks = nranks;
  return out;
}

bool is_nccl_init(std::string_view message) {
  return message.find("Init START") != kNpos || message.find("Init COMPLETE") != kNpos;
}

std::optional<NcclInit> parse_nccl_init(std::string_view message) {
  NcclInit out;
  const auto comm = pointer_after(message, "comm ");
  const auto rank = number_after(message, " rank ");
  auto nranks = number_after(message, " nranks ");
  if (!nranks) nranks = number_after(message, " nRanks ");
  if (!comm || !rank || !nranks || !is_possible_rank(*rank, *nranks)) return std::nullopt;
  out.comm = *comm;
  out.rank = *rank;
  out.nranks = *nranks;
  out.device = number_after(message, " cudaDev ").value_or(kNone);
  out.gpu = number_after(message, " nvmlDev ").value_or(out.device);
  out.comm_id = pointer_after(message, " commId ").value_or(0);
  const auto parent = pointer_after(message, " parent ");
  out.is_split = parent.has_value();
  out.parent = parent.value_or(0);
  out.color = number_after(message, " color ").value_or(kNone);
  auto split = number_after(message, " splitCount ");
  if (!split) split = number_after(message, " childCount ");
  out.split = split.value_or(kNone);
  return out;
}

std::optional<std::uint64_t> parse_nccl_destroy(std::string_view message) {
  if (message.find("Destroy COMPLETE") == kNpos) return std::nullopt;
  return pointer_after(message, "comm ");
}

bool is_nccl_message(std::string_view name) { return name == "Send" || name == "Recv"; }

SignatureId nccl_signature(const NcclLogCall& call, Tables& tables) {
  Signature s;
  set_op(s, nccl_op(call.name), call.name, tables);
  const auto [in, out] = nccl_elements(s.op, call.count, call.nranks);
  s.in = flat_tensor(in, tables);
  s.out = flat_tensor(out, tables);
  if (call.datatype < static_cast<std::int64_t>(kNcclDtypes.size())) {
    const auto dtype = kNcclDtypes[static_cast<std::size_t>(call.datatype)];
    s.dtypes = tables.make_names({std::string(dtype)});
  }
  if (is_reduction(s.op) && call.op < static_cast<std::int64_t>(kNcclRedops.size())) {
    s.redop = tables.strings.intern(std::string(kNcclRedops[static_cast<std::size_t>(call.op)]));
  }
  if (nccl_has_root(s.op) && is_possible_rank(call.root, kMaxWorldSize)) {
    s.root = static_cast<std::int32_t>(call.root);
  }
  return tables.make_signature(s);
}

}  // namespace lockstep::trace
