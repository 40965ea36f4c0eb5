#include "runtime/record/nccl/communicator.h"

#include <array>
#include <vector>

#include "trace/nccl_calls.h"

namespace lockstep::runtime {
namespace {

// Signatures that are kept here; more are looked up in the file's own table.
constexpr std::size_t kMaxKnown = 4096;

template <std::size_t N>
std::string_view name_of(const std::array<std::string_view, N>& names, std::int32_t number) {
  const bool known = number >= 0 && number < static_cast<std::int32_t>(N);
  return known ? names[static_cast<std::size_t>(number)] : std::string_view();
}

bool is_group_rank(std::int32_t group_rank, std::int32_t size) {
  return group_rank >= 0 && group_rank < size;
}

void set_shape(std::int64_t elements, std::vector<std::vector<std::int64_t>>& shapes, bool& has) {
  has = elements >= 0;
  if (has) shapes = {{elements}};
}

}  // namespace

std::size_t Communicator::KeyHash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = static_cast<std::uint64_t>(key.count);
  for (const std::int32_t value :
       {key.dtype, key.redop, key.root, static_cast<std::int32_t>(key.op)}) {
    hash = (hash ^ static_cast<std::uint32_t>(value)) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32U;
  }
  return static_cast<std::size_t>(hash);
}

trace::RingWriter::SignatureRef Communicator::make_signature(const NcclCall& call) {
  trace::RingWriter::SignatureFields fields;
  fields.op = call.op;
  fields.other_op = call.other_op;
  const trace::NcclElements elements = trace::nccl_elements(call.op, call.count, size_);
  set_shape(elements.in, fields.in, fields.has_in);
  set_shape(elements.out, fields.out, fields.has_out);
  const std::string_view dtype = name_of(trace::kNcclDtypes, call.dtype);
  if (!dtype.empty()) fields.dtypes.emplace_back(dtype);
  if (trace::is_reduction(call.op)) fields.redop = name_of(trace::kNcclRedops, call.redop);
  if (trace::nccl_has_root(call.op) && is_group_rank(call.root, size_)) fields.root = call.root;
  return ring().make_signature(fields);
}

trace::RingWriter::SignatureRef Communicator::signature(const NcclCall& call) {
  if (call.op == trace::Op::other) return make_signature(call);
  const Key key{call.count, call.dtype, call.redop, call.root, call.op};
  const std::lock_guard lock(mutex_);
  if (const auto known = signatures_.find(key); known != signatures_.end()) return known->second;
  const trace::RingWriter::SignatureRef made = make_signature(call);
  if (signatures_.size() < kMaxKnown) signatures_.emplace(key, made);
  return made;
}

std::uint32_t Communicator::issue(trace::RingWriter::SignatureRef signature, const CallLabel& label,
                                  bool point_to_point, std::int32_t peer) {
  trace::RingWriter::Issue fields;
  fields.group = group_;
  fields.signature = signature;
  fields.what = label.what;
  fields.tag = label.tag;
  fields.is_async = true;
  // NCCL refuses a peer outside.
  if (is_group_rank(peer, size_)) fields.peer = peer;
  const std::lock_guard lock(mutex_);
  fields.seq = point_to_point ? next_p2p_++ : next_collective_++;
  return ring().issue(fields);
}

std::uint32_t Communicator::issue(const NcclCall& call, const CallLabel& label) {
  return issue(signature(call), label, trace::is_point_to_point(call.op), call.peer);
}

void Communicator::close() {
  const std::lock_guard lock(mutex_);
  signatures_ = {};
}

}  // namespace lockstep::runtime
