#include "runtime/record/c10d/recorded_group.h"

#include <algorithm>
#include <utility>

namespace lockstep::runtime {

std::string dtype_name(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return "float32";
    case c10::kDouble:
      return "float64";
    case c10::kHalf:
      return "float16";
    case c10::kBFloat16:
      return "bfloat16";
    case c10::kByte:
      return "uint8";
    case c10::kChar:
      return "int8";
    case c10::kShort:
      return "int16";
    case c10::kInt:
      return "int32";
    case c10::kLong:
      return "int64";
    case c10::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

namespace {

std::string redop_name(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return "sum";
    case c10d::ReduceOp::AVG:
      return "avg";
    case c10d::ReduceOp::PRODUCT:
      return "product";
    case c10d::ReduceOp::MIN:
      return "min";
    case c10d::ReduceOp::MAX:
      return "max";
    case c10d::ReduceOp::BAND:
      return "band";
    case c10d::ReduceOp::BOR:
      return "bor";
    case c10d::ReduceOp::BXOR:
      return "bxor";
    case c10d::ReduceOp::PREMUL_SUM:
      return "premul_sum";
    default:
      return {};
  }
}

std::vector<std::vector<std::int64_t>> shapes(at::TensorList tensors) {
  std::vector<std::vector<std::int64_t>> all;
  for (const at::Tensor& tensor : tensors) all.push_back(tensor.sizes().vec());
  return all;
}

// One name if all tensors agree, as in the trace format; else one each.
std::vector<std::string> dtypes(at::TensorList tensors) {
  std::vector<std::string> names;
  for (const at::Tensor& tensor : tensors) names.push_back(dtype_name(tensor.scalar_type()));
  if (!names.empty() && std::all_of(names.begin(), names.end(),
                                    [&](const std::string& n) { return n == names.front(); })) {
    names.resize(1);
  }
  return names;
}

void append(std::vector<std::int64_t>& key, at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    const auto sizes = tensor.sizes();
    key.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
    key.push_back(static_cast<std::int64_t>(sizes.size()));
    key.insert(key.end(), sizes.begin(), sizes.end());
  }
  key.push_back(-1);
}

void append(std::vector<std::int64_t>& key, const std::vector<std::int64_t>* splits) {
  if (splits != nullptr) key.insert(key.end(), splits->begin(), splits->end());
  key.push_back(-1);
}

}  // namespace

RecordedGroup::RecordedGroup(Recorder& recorder, const std::string& name,
                             std::vector<std::int32_t> ranks, const std::string& description,
                             Made made)
    : recorder_(recorder),
      ranks_(std::move(ranks)),
      group_(recorder.ring().make_group(name, ranks_, description, made)) {}

std::size_t RecordedGroup::KeyHash::operator()(const Key& key) const noexcept {
  std::size_t hash = 0xcbf29ce484222325U;
  for (const std::int64_t value : key) {
    hash = (hash ^ static_cast<std::size_t>(value)) * 0x100000001b3U;
    hash ^= hash >> 29U;
  }
  return hash;
}

std::int32_t RecordedGroup::global_rank(std::int64_t group_rank) const {
  // The transport reports a rank outside the group.
  if (group_rank < 0 || group_rank >= static_cast<std::int64_t>(ranks_.size())) return trace::kNone;
  return ranks_[static_cast<std::size_t>(group_rank)];
}

trace::RingWriter::SignatureRef RecordedGroup::signature(const BackendCall& call) {
  key_.clear();
  key_.push_back(static_cast<std::int64_t>(call.op));
  key_.push_back(call.reduce != nullptr ? call.reduce->op_ : trace::kNone);
  key_.push_back(call.root);
  append(key_, call.in);
  append(key_, call.out);
  append(key_, call.splits_in);
  append(key_, call.splits_out);
  if (const auto known = signatures_.find(key_); known != signatures_.end()) return known->second;

  trace::RingWriter::SignatureFields fields;
  fields.op = call.op;
  fields.in = shapes(call.in);
  fields.out = shapes(call.out);
  fields.has_in = !call.in.empty();
  fields.has_out = !call.out.empty();
  fields.dtypes = dtypes(call.in.empty() ? call.out : call.in);
  if (call.reduce != nullptr) fields.redop = redop_name(*call.reduce);
  fields.root = global_rank(call.root);
  if (call.splits_in != nullptr) fields.splits_in = *call.splits_in;
  if (call.splits_out != nullptr) fields.splits_out = *call.splits_out;
  return signatures_.emplace(key_, recorder_.ring().make_signature(fields)).first->second;
}

std::uint32_t RecordedGroup::issue(const BackendCall& call, const CallOrigin& origin) {
  const Recorder::Timed timed(recorder_);
  const std::lock_guard lock(mutex_);
  trace::RingWriter::Issue fields;
  fields.group = group_;
  fields.at = origin.at;
  fields.tag = origin.tag;
  fields.thread = origin.thread;
  fields.signature = signature(call);
  fields.is_async = call.is_async;
  fields.peer = global_rank(call.peer);
  fields.ptag = call.peer_tag;
  fields.seq = trace::is_point_to_point(call.op) ? next_p2p_++ : next_collective_++;
  return recorder_.issue(fields);
}

}  // namespace lockstep::runtime
