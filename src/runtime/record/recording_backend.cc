#include "runtime/record/recording_backend.h"

#include "runtime/record/recording_work.h"

namespace lockstep {
namespace {

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

// One name where all tensors agree, as the trace format has it; else one each.
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

std::vector<at::Tensor> flattened(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

std::size_t RecordingBackend::KeyHash::operator()(const Key& key) const noexcept {
  std::size_t hash = 0xcbf29ce484222325U;
  for (const std::int64_t value : key) {
    hash = (hash ^ static_cast<std::size_t>(value)) * 0x100000001b3U;
    hash ^= hash >> 29U;
  }
  return hash;
}

RecordingBackend::RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, Recorder& recorder,
                                   Group group, WorkWatch* watch)
    : Backend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      recorder_(recorder),
      watch_(watch),
      ranks_(std::move(group.ranks)),
      group_(recorder.ring().make_group(group.name, ranks_, group.description)) {
  LOCKSTEP_CHECK(static_cast<int>(ranks_.size()) == getSize(), "a group lists all its members");
}

std::int32_t RecordingBackend::global_rank(std::int64_t group_rank) const {
  // A rank outside the group is the transport's to refuse.
  if (group_rank < 0 || group_rank >= static_cast<std::int64_t>(ranks_.size())) return kNone;
  return ranks_[static_cast<std::size_t>(group_rank)];
}

RingWriter::SignatureRef RecordingBackend::signature(const Described& call) {
  key_.clear();
  key_.push_back(static_cast<std::int64_t>(call.op));
  key_.push_back(call.reduce != nullptr ? call.reduce->op_ : kNone);
  key_.push_back(call.root);
  append(key_, call.in);
  append(key_, call.out);
  append(key_, call.splits_in);
  append(key_, call.splits_out);
  if (const auto known = signatures_.find(key_); known != signatures_.end()) return known->second;

  RingWriter::SignatureFields fields;
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

std::uint32_t RecordingBackend::issue(const Described& call) {
  const Recorder::Timed timed(recorder_);
  const std::lock_guard lock(mutex_);
  RingWriter::Issue fields;
  fields.group = group_;
  fields.signature = signature(call);
  fields.is_async = call.is_async;
  fields.peer = global_rank(call.peer);
  fields.ptag = call.peer_tag;
  fields.seq = is_point_to_point(call.op) ? next_p2p_++ : next_collective_++;
  return recorder_.issue(fields);
}

RecordingBackend::WorkPtr RecordingBackend::record(const Described& call,
                                                   const std::function<WorkPtr()>& forward) {
  const std::uint32_t id = issue(call);
  WorkPtr inner;
  try {
    inner = forward();
  } catch (const std::exception& error) {
    recorder_.complete(id, message_of(error));
    recorder_.raised(message_of(error), id);
    throw;
  }
  return c10::make_intrusive<RecordingWork>(std::move(inner), recorder_, id, watch_);
}

RecordingBackend::WorkPtr RecordingBackend::broadcast(Tensors& tensors,
                                                      const c10d::BroadcastOptions& opts) {
  return record({.op = Op::broadcast,
                 .in = tensors,
                 .out = tensors,
                 .root = opts.rootRank,
                 .is_async = opts.asyncOp},
                [&] { return inner_->broadcast(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& opts) {
  return record({.op = Op::all_reduce,
                 .in = tensors,
                 .out = tensors,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->allreduce(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allreduce_sparse(Tensors& tensors,
                                                             const c10d::AllreduceOptions& opts) {
  return record({.op = Op::all_reduce,
                 .in = tensors,
                 .out = tensors,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->allreduce_sparse(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return record({.op = Op::all_reduce,
                 .in = tensors,
                 .out = tensors,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->allreduce_coalesced(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::reduce(Tensors& tensors,
                                                   const c10d::ReduceOptions& opts) {
  return record({.op = Op::reduce,
                 .in = tensors,
                 .out = tensors,
                 .reduce = &opts.reduceOp,
                 .root = opts.rootRank,
                 .is_async = opts.asyncOp},
                [&] { return inner_->reduce(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  const Tensors out = flattened(outputs);
  return record({.op = Op::all_gather, .in = inputs, .out = out, .is_async = opts.asyncOp},
                [&] { return inner_->allgather(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  return record(
      {.op = Op::all_gather_into_tensor, .in = input, .out = output, .is_async = opts.asyncOp},
      [&] { return inner_->_allgather_base(output, input, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Tensors out = flattened(outputs);
  return record({.op = Op::all_gather, .in = inputs, .out = out, .is_async = opts.asyncOp},
                [&] { return inner_->allgather_coalesced(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return record(
      {.op = Op::all_gather_into_tensor, .in = inputs, .out = outputs, .is_async = opts.asyncOp},
      [&] { return inner_->allgather_into_tensor_coalesced(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& opts) {
  const Tensors out = flattened(outputs);
  return record(
      {.op = Op::gather, .in = inputs, .out = out, .root = opts.rootRank, .is_async = opts.asyncOp},
      [&] { return inner_->gather(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& opts) {
  const Tensors in = flattened(inputs);
  return record({.op = Op::scatter,
                 .in = in,
                 .out = outputs,
                 .root = opts.rootRank,
                 .is_async = opts.asyncOp},
                [&] { return inner_->scatter(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  const Tensors in = flattened(inputs);
  return record({.op = Op::reduce_scatter,
                 .in = in,
                 .out = outputs,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->reduce_scatter(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return record({.op = Op::reduce_scatter_tensor,
                 .in = input,
                 .out = output,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->_reduce_scatter_base(output, input, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  return record({.op = Op::reduce_scatter_tensor,
                 .in = inputs,
                 .out = outputs,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<std::int64_t>& output_splits,
                                                          std::vector<std::int64_t>& input_splits,
                                                          const c10d::AllToAllOptions& opts) {
  return record(
      {.op = Op::all_to_all_single,
       .in = input,
       .out = output,
       .is_async = opts.asyncOp,
       .splits_in = &input_splits,
       .splits_out = &output_splits},
      [&] { return inner_->alltoall_base(output, input, output_splits, input_splits, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& opts) {
  return record({.op = Op::all_to_all, .in = inputs, .out = outputs, .is_async = opts.asyncOp},
                [&] { return inner_->alltoall(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::barrier(const c10d::BarrierOptions& opts) {
  return record({.op = Op::barrier, .is_async = opts.asyncOp},
                [&] { return inner_->barrier(opts); });
}

void RecordingBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const std::uint32_t id = issue({.op = Op::barrier, .is_async = false});
  recorder_.wait(id);
  try {
    inner_->monitoredBarrier(opts, wait_all_ranks);
  } catch (const std::exception& error) {
    recorder_.complete(id, message_of(error));
    recorder_.wait_failed(id, message_of(error));
    throw;
  }
  recorder_.complete(id);
  recorder_.waited(id);
}

RecordingBackend::WorkPtr RecordingBackend::send(Tensors& tensors, int destination, int tag) {
  return record({.op = Op::send, .in = tensors, .peer = destination, .peer_tag = tag},
                [&] { return inner_->send(tensors, destination, tag); });
}

RecordingBackend::WorkPtr RecordingBackend::recv(Tensors& tensors, int source, int tag) {
  return record({.op = Op::recv, .out = tensors, .peer = source, .peer_tag = tag},
                [&] { return inner_->recv(tensors, source, tag); });
}

RecordingBackend::WorkPtr RecordingBackend::recvAnysource(Tensors& tensors, int tag) {
  return record({.op = Op::recv_any, .out = tensors, .peer_tag = tag},
                [&] { return inner_->recvAnysource(tensors, tag); });
}

}  // namespace lockstep
