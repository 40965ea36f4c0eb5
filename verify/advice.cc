#include "verify/advice.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "trace/formats/log_lines.h"
#include "trace/run.h"

namespace lockstep::verify {

std::string_view recorder_variables(std::string_view backend) {
  struct Library {
    std::string_view backend, variables;
  };
  // Sources: pytorch ProcessGroupNCCL.hpp (AMD's, too); Ascend/pytorch (torch_npu)
  // csrc/distributed/ProcessGroupHCCL.hpp; MooreThreads/torch_musa
  // csrc/distributed/ProcessGroupMCCL.h. The process groups of Intel (torch-xpu-ops, XCCL: dumps
  // through a pipe alone), Cambricon (torch_mlu, CNCL) and Habana write nothing on a timeout.
  static constexpr std::array<Library, 3> kLibraries = {
      {{"nccl", "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"},
       {"hccl", "TORCH_HCCL_TRACE_BUFFER_SIZE=2000 TORCH_HCCL_DUMP_ON_TIMEOUT=1"},
       {"mccl", "TORCH_MCCL_TRACE_BUFFER_SIZE=2000 TORCH_MCCL_DUMP_ON_TIMEOUT=1"}}};
  std::string lower(backend);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const Library& library : kLibraries)
    if (contains_text(lower, library.backend)) return library.variables;
  return {};
}

std::string peer_in(std::string_view text) {
  std::string_view peer;
  for (const std::string_view before :
       {std::string_view("remote peer "), std::string_view("recv from "),
        std::string_view("send to "), std::string_view("Connect to "),
        std::string_view("from peer "), std::string_view("to connect to (")}) {
    peer = trace::word_after(text, before);
    if (!peer.empty()) break;
  }
  if (peer.empty()) {
    const std::size_t open = text.rfind('[');
    const std::size_t close = open == std::string_view::npos ? open : text.find("]:", open);
    if (close != std::string_view::npos) peer = text.substr(open + 1, close - open - 1);
  }
  peer = peer.substr(0, peer.find('<'));
  const auto plain = [](char c) {
    return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '_';
  };
  const bool usable = !peer.empty() && !peer.starts_with('-') && peer != "localhost" &&
                      peer != "rank" && !peer.starts_with("127.") && peer.size() <= 64 &&
                      std::all_of(peer.begin(), peer.end(), plain);
  return usable ? std::string(peer) : "";
}

std::string command_at(const std::string& host) {
  const std::string there = peer_in(fmt::format("from peer {}", host));
  return there.empty() ? "" : fmt::format("ssh {} ", there);
}

Advice advice_about(std::string_view text, const std::string& host) {
  const std::string at = command_at(host);
  if (contains_text(text, "Memory access fault by GPU"))
    return {
        "a kernel read or wrote where it may not: mostly a defect of the program or a library, "
        "seldom of the GPU",
        at + "dmesg -T | grep -i amdgpu"};
  if (contains_text(text, "by GPU node-"))  // ROCm's words
    return {"the GPU or its driver hangs: reset it, or leave out the node",
            at + "rocm-smi --showrasinfo"};
  if (trace::mentions_hardware(text))
    return {"the GPU is defective or lost, not the program: reset it, or leave out the node",
            at + "nvidia-smi -q -d ECC,ROW_REMAPPER"};
  if (trace::mentions_unused_parameters(text)) return {};
  // "params[0] in this process with sizes [4, 8] appears not to match sizes of the same param in
  // process 0."
  if (trace::says_models_differ(text) || contains_text(text, "of the same param in process"))
    return {
        "build one model on every rank before DistributedDataParallel: the same layers, and the "
        "same parameters frozen (requires_grad), also of adapters",
        ""};
  if (trace::says_order_differs(text)) return {std::string(kRunSameUnits), ""};
  if (trace::says_shapes_differ(text))
    return {"pad to a common size first: accelerator.pad_across_processes()", ""};
  if (trace::says_inputs_exhausted(text))
    return {
        "give every rank the same number of batches (DistributedSampler with drop_last=True), or "
        "let the others go on: join() without throw_on_early_termination",
        ""};
  if (trace::says_sizes_differ(text))
    return {
        "compare the shapes, types and calls of all ranks at this line: pad to a common size, or "
        "exchange the sizes first; `lockstep record`, or Flight Recorder's dumps, show who differs",
        ""};
  if (trace::mentions_taken_port(text)) {
    auto port = trace::number_after(text, "port: ");
    if (!port) port = trace::number_after(text, "[::]:");
    return {
        "another process has that port: end what an earlier job left, or choose another one "
        "(--master-port, MASTER_PORT)",
        at + (port ? fmt::format("ss -ltnp 'sport = :{}'", *port) : std::string("ss -ltnp"))};
  }
  if (contains_any(text, {"Name or service not known", "name resolution", "host not found"}))
    return {
        "the name of another host is not known there: look at MASTER_ADDR; of pods, that host "
        "may not be up yet",
        ""};
  if (contains_any(text, {"found NaN", "Unexpected result nan", "found Inf"}))
    return {
        "this rank's values became NaN: look at its last batch, at the learning rate and, if it "
        "happens on one GPU alone, at that GPU",
        ""};
  if (contains_text(text, "No space left on device"))
    return {
        "a file system is full; of data loaders and NCCL it is mostly shared memory (docker run "
        "--shm-size)",
        at + "df -h /dev/shm /tmp ."};
  if (contains_any(text, {"/dev/shm", "Unexpected bus error encountered"}))
    return {"shared memory is too small (docker run --shm-size; of pods an emptyDir in memory)",
            at + "df -h /dev/shm"};
  if (contains_text(text, "DataLoader worker")) {
    const bool killed = contains_text(text, "signal: Killed");
    return {
        "a worker of its data loader ended: mostly for memory of the host, or shared memory that "
        "is too small (docker run --shm-size)",
        at + (killed ? "dmesg -T | grep -i 'killed process'" : "df -h /dev/shm")};
  }
  if (trace::says_rank_taken(text))
    return {
        "two processes have one rank: end all processes of earlier starts, and see that each has a "
        "RANK of its own and WORLD_SIZE is their number",
        ""};
  if (trace::says_memory_not_locked(text))
    return {
        "the process may not lock as much memory as the network adapter needs: ulimit -l unlimited "
        "(of containers: docker run --ulimit memlock=-1)",
        at + "ulimit -l"};
  if (contains_text(text, "ibv_modify_qp"))
    return {
        "the adapters of the two ends cannot reach each other: look at the link, at which adapters "
        "NCCL uses (NCCL_IB_HCA) and, on Ethernet, at NCCL_IB_GID_INDEX",
        at + "ibstat"};
  if (trace::mentions_memory(text))
    return {
        "use less memory there (smaller micro-batches, activation checkpointing), or find out "
        "why this rank needs more than the others",
        ""};
  if (contains_text(text, "return code = -7") || contains_text(text, "Bus error"))
    return {"a bus error is mostly shared memory that is too small (docker run --shm-size)",
            at + "df -h /dev/shm"};
  if (contains_text(text, "Got completion") || contains_text(text, "async event"))
    return {"the network adapter reports it: check the link, the cable and the switch of both ends",
            at + "ibstat"};
  if (contains_text(text, "Duplicate GPU"))
    return {"give each process a GPU of its own: torch.cuda.set_device(local_rank)", ""};
  return {};
}

Advice advice_about_blocked(const trace::RankNote& note) {
  constexpr std::string_view kEnd = "; no signal ends a process that hangs there";
  const std::string next = note.pid == trace::kNone ? ""
                                                    : fmt::format("{}sudo cat /proc/{}/stack",
                                                                  command_at(note.host), note.pid);
  const auto is_of = [&](std::initializer_list<std::string_view> modules) {
    return std::any_of(modules.begin(), modules.end(), [&](std::string_view module) {
      return contains_text(note.content, fmt::format("[{}", module));
    });
  };
  if (is_of({"nvidia", "amdgpu", "amdkfd", "habanalabs"}))
    return {fmt::format("the GPU's driver does not answer: look for its messages (Xid), reset the "
                        "GPU or start the node again{}",
                        kEnd),
            next};
  if (is_of({"mlx", "ib_", "rdma", "efa", "bnxt", "irdma"}))
    return {fmt::format("a network card or its driver does not answer: leave out the node{}", kEnd),
            next};
  if (is_of({"nfs", "sunrpc", "lustre", "ptlrpc", "obdclass", "osc", "lov", "mdc", "lnet", "fuse",
             "ceph", "libceph", "mmfs", "wekafs", "beegfs", "cifs", "xfs", "ext4", "nvme"}))
    return {fmt::format("a file system does not answer, of the data or of the checkpoints: see "
                        "whether its servers and its disks do{}",
                        kEnd),
            next};
  return {fmt::format("see what it waits for there: a disk, a file server, the GPU's driver or a "
                      "network card{}",
                      kEnd),
          next};
}

}  // namespace lockstep::verify
