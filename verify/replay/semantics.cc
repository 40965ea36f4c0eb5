#include "verify/replay/semantics.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::verify {

namespace {

constexpr std::array kNames = {
    std::pair(CallSemantics::gloo, std::string_view("gloo")),
    std::pair(CallSemantics::nccl, std::string_view("nccl")),
    std::pair(CallSemantics::mpi, std::string_view("mpi")),
};

// Backends that queue calls on devices and let the host go on: NVIDIA's and AMD's, Intel's
// (torch-xpu-ops), Huawei's (torch_npu) and Habana's, Cambricon's (torch_mlu), Moore Threads'
// (torch_musa).
constexpr std::array<std::string_view, 5> kDeviceBackends = {"nccl", "xccl", "hccl", "cncl",
                                                             "mccl"};

}  // namespace

std::string_view to_string(CallSemantics semantics) {
  for (const auto& [value, name] : kNames) {
    if (value == semantics) return name;
  }
  return "";
}

std::optional<CallSemantics> call_semantics_from_name(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

CallSemantics recorded_semantics(const trace::Run& run) {
  const auto any = [&](const auto& holds) {
    return std::any_of(run.ranks.begin(), run.ranks.end(), holds);
  };
  if (any([](const trace::RankTrace& t) { return t.semantics == trace::Semantics::mpi; })) {
    return CallSemantics::mpi;
  }
  // torch.distributed writes several backends as "cpu:gloo,cuda:nccl".
  const auto names = [&](std::string_view backend) {
    return any(
        [&](const trace::RankTrace& t) { return t.backend.find(backend) != std::string::npos; });
  };
  if (std::any_of(kDeviceBackends.begin(), kDeviceBackends.end(), names))
    return CallSemantics::nccl;
  // A snapshot of running processes (Flight Recorder, RAS) shows device queues, unless it names
  // Gloo.
  if (any([](const trace::RankTrace& t) { return t.snapshot; }) && !names("gloo")) {
    return CallSemantics::nccl;
  }
  return CallSemantics::gloo;
}

bool is_over(const trace::Call& call, CallSemantics semantics) {
  return call.has(trace::kCompleted) ||
         (semantics != CallSemantics::nccl && call.has(trace::kWaitEnded));
}

bool records_completion(const trace::Run& run, CallSemantics semantics) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [&](const trace::RankTrace& trace) {
    // Where the ends of waits are recorded and none is there, no wait ended.
    const bool shows_waits = semantics != CallSemantics::nccl && trace.ends_of_waits;
    return trace.snapshot ||
           std::any_of(trace.calls.begin(), trace.calls.end(), [&](const trace::Call& call) {
             return is_over(call, semantics) || (shows_waits && call.has(trace::kWaitBegan));
           });
  });
}

bool is_any_source(const trace::Tables& tables, const trace::Call& call, CallSemantics semantics) {
  const trace::Op op = tables.op(call);
  if (op == trace::Op::recv_any) return true;
  return semantics == CallSemantics::mpi && (op == trace::Op::recv || op == trace::Op::probe) &&
         call.peer.value < 0;
}

bool returns_at_once(const trace::Tables& tables, const trace::Call& send, bool buffered) {
  const std::string& mode = tables.str(tables.signatures[send.signature].mode);
  if (mode == "buffered") return true;
  return buffered && mode != "sync";
}

bool message_differs(const trace::Signature& send, const trace::Signature& receive) {
  // Readers fill in the side that their source records: a send's tensor may be in or out.
  const auto given = send.in_elements != trace::kNone ? send.in_elements : send.out_elements;
  const auto taken =
      receive.out_elements != trace::kNone ? receive.out_elements : receive.in_elements;
  if (given != trace::kNone && taken != trace::kNone && given != taken) return true;
  if (send.count != trace::kNone && receive.count != trace::kNone && send.count > receive.count)
    return true;
  return send.dtypes.value != 0 && receive.dtypes.value != 0 && send.dtypes != receive.dtypes;
}

}  // namespace lockstep::verify
