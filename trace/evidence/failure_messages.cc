#include "trace/evidence/failure_messages.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kMonitored = "failed to pass monitoredBarrier";
// "Rank 0 timed out in monitoredBarrier after 8000 ms.": it waits for one rank after the other.
constexpr std::string_view kMonitorTimedOut = "timed out in monitoredBarrier after";
constexpr std::string_view kStoreAddress = "while trying to connect to (";
constexpr std::string_view kProcess = "Process ";
constexpr std::string_view kCheckpointFailed = "CheckpointException ranks:dict_keys([";
constexpr std::string_view kTruncated = "message truncated : receiving";
constexpr std::string_view kRankTaken = "has already checked in";
constexpr std::string_view kLockedMemory = "ibv_reg_mr";
constexpr std::string_view kRankFailed = "RuntimeError: Rank ";
constexpr std::string_view kModelsDiffer = "DDP expects same model across all ranks";

// What mentions_a_peer() looks for.
constexpr auto kOfPeers = std::to_array<std::string_view>({
    // Sockets and Gloo.
    "closed by remote",
    "Remote peer closed",
    "Peer disconnected",
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "connect to peer",
    "Call to recv from",
    "connectFullMesh failed",
    "Application timeout",
    "pair closure",
    "got 0 bytes",
    "recvValue failed",
    "Timed out waiting",
    "Operation timed out",
    // c10d's store: what another rank was to put there, or the process that serves it.
    "Timed out receiving",
    "Timed out after",
    "timed out after",
    "has timed out",
    "Socket Timeout",
    "socket timeout",
    "wait timeout",
    "Wait timeout",
    "waiting for clients",
    "store based barrier",
    "Timed out initializing",
    "Stop_waiting response is expected",
    "DistStoreError",
    "DistNetworkError",
    // c10d's groups, and what compares their calls.
    kMonitored,
    kMonitorTimedOut,
    "reached monitoredBarrier, but",
    "Detected mismatch between collectives",
    "rank that exhausted inputs. Throwing",
    "aught collective operation timeout",
    "communicator was aborted",
    "aborted its NCCL communicators",
    "setting up NCCL communicator and retr",
    "Work timed out during finalize",
    "waiting for quorum",
    // NCCL.
    "Got completion from peer",
    "remote process exited",
    "remote process has exited",
    "NCCL error: remote",
    "ncclRemoteError",
    "ncclSystemError",
    // Huawei's HCCL: a peer's notification (2), connection (6), acknowledgement (13) or
    // communicator (15) did not come, or its call has other arguments (5). Ascend's runtime: a task
    // or a stream did not end in time, as all do that wait for a peer.
    "EI0002",
    "EI0005",
    "EI0006",
    "EI0013",
    "EI0015",
    "HCCL_E_TIMEOUT",
    "error code:107020",
    "error code:507046",
    "error code:507048",
    "error code is 107020",
    "error code is 507046",
    "error code is 507048",
    // Other libraries.
    "Horovod has been shut down",
    "MPI_ERR_PROC_FAILED",
    "MPI_ERR_REVOKED",
    "Barrier timed out. ",
    "tasks are unhealthy (stopped sending",
    // Launchers, and whoever reports another process' end.
    "ChildFailedError",
    "SignalException",
    "ProcessRaisedException",
    "RendezvousConnectionError",
    "RendezvousTimeoutError",
    "RendezvousClosedError",
    "ActorDiedError",
    "ActorUnavailableError",
    "RayActorError",
    "NodeDiedError",
    "GetTimeoutError",
    "WorkerCrashedError",
    "Training failed due to worker errors",
    "EngineDeadError",
    "due to an exception in a background process",
});

// "RuntimeError: Rank 2 failed: stage load: exception x", of collective_utils.py.
bool says_stage_failed(std::string_view exception) {
  const std::size_t at = exception.find(kRankFailed);
  if (at == kNpos) return false;
  const std::string_view rest = exception.substr(at + kRankFailed.size());
  return rest.substr(std::min(rest.find_first_not_of("0123456789"), rest.size()))
      .starts_with(" failed: ");
}

}  // namespace

bool mentions_a_peer(std::string_view message) {
  if (contains_text(message, "DataLoader")) return false;  // it waits for its own workers
  if (mentions_taken_port(message)) return false;
  return std::any_of(kOfPeers.begin(), kOfPeers.end(),
                     [&](std::string_view sign) { return contains_text(message, sign); });
}

bool mentions_taken_port(std::string_view message) {
  return contains_any(message, {"EADDRINUSE", "ddress already in use"});
}

bool mentions_timeout(std::string_view message) {
  return contains_any(
      message, {"Timed out waiting", "failed to pass monitoredBarrier in", kMonitorTimedOut});
}

Rank rank_said_by(std::string_view message) {
  for (const std::string_view store :
       {"store on Rank ", "store based barrier on rank: ", "store based barrier on rank "})
    if (contains_text(message, store)) return rank_behind(message, store);
  // "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms"
  constexpr std::string_view kMonitor = ": [Rank ";
  if (contains_text(message, "monitoredBarrier")) return rank_behind(message, kMonitor);
  constexpr std::string_view kRank = ": Rank ";
  const std::size_t at = message.find(kRank);
  if (at == kNpos || at != message.find(": ")) return Rank(kNone);
  const std::string_view rest = message.substr(at + kRank.size());
  const std::size_t digits = rest.find_first_not_of("0123456789");
  if (digits == kNpos || digits == 0) return Rank(kNone);
  const std::string_view behind = rest.substr(digits);
  const bool of_itself = behind.starts_with(": ") || behind.starts_with(", node ");
  return of_itself ? rank_behind(message, kRank) : Rank(kNone);
}

bool mentions_hardware(std::string_view message) {
  return contains_any(message, {"uncorrectable ECC", "uncorrectable NVLink",
                                "cudaErrorECCUncorrectable", "fallen off the bus", "GPU is lost",
                                "cudaErrorDevicesUnavailable", "CUDA error: hardware",
                                "Unable to determine the device handle", "HW Exception by GPU"});
}

bool mentions_unused_parameters(std::string_view message) {
  return contains_text(message, "Expected to have finished reduction in the prior iteration");
}

bool mentions_memory(std::string_view message) {
  return contains_any(message, {"OutOfMemoryError", "out of memory", "MemoryError",
                                "can't allocate memory", "Cannot allocate memory"});
}

PeerFailure peer_failure_in(std::string_view message) {
  const auto says = [&](std::string_view sign) { return contains_text(message, sign); };
  if (says("ChildFailedError") || says("due to worker errors")) return PeerFailure::child_failed;
  if (says("Watchdog caught")) return PeerFailure::call_timed_out;
  if (says("Detected mismatch between collectives")) return PeerFailure::calls_differ;
  // HCCL: "The arguments for collective communication are inconsistent between ranks".
  if (says("EI0005")) return PeerFailure::calls_differ;
  // Whom it waited for. A message may have several of these: the first here says most.
  if (says(kMonitored) || says(kMonitorTimedOut)) return PeerFailure::barrier_not_met;
  // "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv
  // from rank 0. Please check rank 0 logs for faulty rank."
  if (says("reached monitoredBarrier, but")) return PeerFailure::barrier_lost;
  if (says(kStoreAddress)) return PeerFailure::store_not_reached;
  if (says("elastic.rendezvous.api.Rendezvous")) return PeerFailure::nodes_not_met;
  if (hccl_wait_in(message)) return PeerFailure::hccl_peer_missing;
  if (says("setting up NCCL communicator and retr")) return PeerFailure::group_not_met;
  if (contains_any(message, {"store based barrier", "waiting for clients", "remote rank:"}))
    return PeerFailure::ranks_not_met;
  if (says("flag on TCPStore")) return PeerFailure::store_lost;
  if (says("got signal") || says("exhausted inputs. Throwing")) return PeerFailure::told_to_end;
  return contains_any(message, {"No route to host", "etwork is unreachable", "onnection timed out"})
             ? PeerFailure::peer_unreachable
             : PeerFailure::connection_lost;
}

std::string absent_from_barrier(std::string_view message) {
  const std::size_t at = message.find(kMonitored);
  const std::size_t who = at == kNpos ? kNpos : message.rfind("Rank", at);
  if (who == kNpos) return {};
  return fmt::format("r{}", trimmed(message.substr(who + 1, at - who - 1)));
}

std::string_view store_address_in(std::string_view message) {
  const std::size_t at = message.find(kStoreAddress);
  if (at == kNpos) return {};
  const std::string_view rest = message.substr(at + kStoreAddress.size());
  return rest.substr(0, rest.find(')'));
}

std::string_view store_keys_in(std::string_view message) {
  constexpr std::string_view kWait = "wait timeout after ", kKeys = "ms, keys: ";
  const std::size_t at = message.find(kWait);
  const std::size_t keys = at == kNpos ? kNpos : message.find(kKeys, at);
  if (keys == kNpos) return {};
  std::string_view out = message.substr(keys + kKeys.size());
  // "/default_pg/0//" is what torch.distributed puts before a program's own key.
  const std::size_t prefix = out.find("//");
  if (out.starts_with('/') && prefix != kNpos && !contains_text(out, ","))
    out.remove_prefix(prefix + 2);
  return trimmed(out.substr(0, std::min(out.find_first_of("\n("), out.size())));
}

std::optional<HcclWait> hccl_wait_in(std::string_view message) {
  HcclWait out;
  out.to_connect = contains_text(message, "EI0006");
  if (!out.to_connect && !contains_text(message, "EI0002")) return std::nullopt;
  // "remote rank: [24]", in older messages "remote rank [24]"; "[unknown]" is none.
  out.peer = number_after(message, "remote rank: [");
  if (!out.peer) out.peer = number_after(message, "remote rank [");
  const auto between = [&](std::string_view begin) {
    const std::size_t at = message.find(begin);
    if (at == kNpos) return std::string_view();
    const std::string_view rest = message.substr(at + begin.size());
    const std::size_t end = rest.find(']');
    return end == kNpos ? std::string_view() : rest.substr(0, end);
  };
  out.call = between(" tag[");
  out.device = between(kAbnormalDevice);
  out.happened = between("ExceptionType:[");
  return out;
}

std::int64_t group_root_in(std::string_view message) {
  return number_after(message, "ncclUniqueId from [").value_or(0);
}

std::optional<Arrivals> arrivals_in(std::string_view message) {
  auto expected = number_after(message, "world_size=");
  auto came = number_after(message, "num_workers_joined=");
  const bool numbered = !came;
  if (!came) came = number_after(message, "worker_count=");
  const bool are_ranks = came.has_value();
  if (!came) came = number_after(message, "clients. ");
  if (!expected && came) expected = number_after(message, fmt::format("{}/", *came));
  if (!expected || !came || *expected > kMaxWorldSize) return std::nullopt;
  const std::string_view group = word_after(message, "store_based_barrier_key:");
  const bool first = group == "default_pg" || group == (numbered ? "1" : "0");
  return Arrivals{*came, *expected, are_ranks, first ? std::string_view() : group};
}

std::optional<DifferingRanks> differing_ranks_in(std::string_view message) {
  const auto one = number_after(message, "Rank ");
  const auto other = number_after(message, "but Rank ");
  if (!one || !other) return std::nullopt;
  return DifferingRanks{*one, *other};
}

TimedOutCall timed_out_call_in(std::string_view message) {
  TimedOutCall out{.seq = number_after(message, "SeqNum="),
                   .operation = word_after(message, "OpType="),
                   .library = {},
                   .open_for = std::nullopt};
  constexpr std::string_view kWork = "timeout: Work";
  if (const std::size_t at = message.find(kWork); at != kNpos) {
    const std::string_view rest = message.substr(at + kWork.size());
    out.library = rest.substr(0, std::min(rest.find('('), rest.size()));
  }
  constexpr std::string_view kRan = " ran for ";
  if (const std::size_t at = message.find(kRan);
      at != kNpos && contains_text(message.substr(at), "milliseconds"))
    out.open_for = number_after(message.substr(at), kRan);
  return out;
}

bool only_says_nccl_failed(std::string_view exception) {
  return contains_any(exception, {"unhandled cuda error", "unhandled system error",
                                  "internal error - please report", "ncclInternalError",
                                  "ncclUnhandledCudaError", "NCCL Error "});
}

bool is_failure_of_its_own(std::string_view nccl_warning) {
  return contains_any(nccl_warning,
                      {"Cuda failure", "CUDA calloc", "Got completion", "async event",
                       "Duplicate GPU", "ismatch", "no socket interface", "No space left on device",
                       kTruncated,  // by what a peer sent: sizes, or NCCL's settings, differ
                       kRankTaken, kLockedMemory, "shared memory segment",
                       "Call to ibv_modify_qp"});  // to connect: the fabric, no peer's end
}

bool warns_of_a_peer(std::string_view nccl_warning) {
  return contains_any(nccl_warning, {"peer", "onnect", "closed", "refused", "reset", "timed out",
                                     "imeout", "aborted", "No route", "unreachable", "ocket"});
}

bool says_rank_taken(std::string_view nccl_warning) {
  return contains_text(nccl_warning, kRankTaken);
}

bool says_memory_not_locked(std::string_view nccl_warning) {
  return contains_text(nccl_warning, kLockedMemory) &&
         contains_text(nccl_warning, "annot allocate memory");
}

bool says_peer_closed(std::string_view exception) {
  return mentions_a_peer(exception) &&
         contains_any(exception, {"onnection closed by peer", "onnection reset by peer"});
}

bool says_sizes_differ(std::string_view exception) {
  return contains_text(exception, "Received data size doesn't match expected size") ||
         contains_text(exception, kTruncated);
}

bool says_models_differ(std::string_view exception) {
  return contains_text(exception, kModelsDiffer);
}

bool says_order_differs(std::string_view exception) {
  return contains_text(exception, "Forward order differs across ranks");
}

bool says_shapes_differ(std::string_view exception) {
  return contains_text(exception, "Cannot apply desired operation due to shape mismatches");
}

bool raised_by_all(std::string_view exception) {
  return says_models_differ(exception) || says_order_differs(exception) ||
         says_shapes_differ(exception) || contains_text(exception, kCheckpointFailed) ||
         says_stage_failed(exception);
}

bool says_inputs_exhausted(std::string_view exception) {
  return contains_text(exception, " exhausted all inputs.");
}

namespace {

// The rank that DistributedDataParallel calls inconsistent: "Rank 0 has 6 params, while rank 1 has
// inconsistent 4 params".
std::optional<std::int64_t> inconsistent_rank_in(std::string_view exception) {
  if (!says_models_differ(exception)) return std::nullopt;
  return number_after(exception, "params, while rank ");
}

std::vector<Rank> odd_by_order(std::string_view exception, std::int32_t world_size) {
  const auto one = number_after(exception, "across ranks: rank ");
  const auto other = number_after(exception, " while rank ");
  // Those before the other agree with rank 0. Where they are most, the other is odd for sure.
  if (one != 0 || !other || *other >= world_size || 2 * *other <= world_size) return {};
  return {Rank(static_cast<std::int32_t>(*other))};
}

std::vector<Rank> odd_by_shape(std::string_view exception, std::int32_t world_size) {
  if (exception.ends_with(kMoreShapes)) return {};
  std::vector<Rank> differ;  // from rank 0, in order
  while (!exception.empty()) {
    const std::size_t at = exception.find(kProcess);
    if (at == kNpos) break;
    exception.remove_prefix(at);
    const auto process = number_after(exception, kProcess);
    exception.remove_prefix(kProcess.size());
    if (process && *process > 0 && *process < world_size)
      differ.emplace_back(static_cast<std::int32_t>(*process));
  }
  const auto count = static_cast<std::int32_t>(differ.size());
  if (2 * count < world_size) return differ;
  const bool all_others = count == world_size - 1 && world_size > 2;
  return all_others ? std::vector<Rank>{Rank(0)} : std::vector<Rank>{};
}

}  // namespace

std::vector<Rank> odd_ranks(const std::vector<std::string_view>& exceptions,
                            std::int32_t world_size) {
  std::map<std::int64_t, std::int64_t> votes;
  std::vector<Rank> told;
  for (const std::string_view exception : exceptions) {
    if (const auto named = inconsistent_rank_in(exception);
        named && 2 * ++votes[*named] > world_size && is_possible_rank(*named, world_size))
      return {Rank(static_cast<std::int32_t>(*named))};
    if (!told.empty()) continue;
    if (says_order_differs(exception)) told = odd_by_order(exception, world_size);
    if (says_shapes_differ(exception)) told = odd_by_shape(exception, world_size);
    if (const std::size_t at = exception.find(kCheckpointFailed); at != kNpos)
      told = listed_ranks(exception.substr(at + kCheckpointFailed.size()));
    if (says_stage_failed(exception)) told = {rank_behind(exception, kRankFailed)};
  }
  std::erase(told, Rank(kNone));
  std::sort(told.begin(), told.end());
  // Where all did the same, none stands out.
  if (static_cast<std::int32_t>(told.size()) >= world_size && told.back().value < world_size)
    told.clear();
  return told;
}

}  // namespace lockstep::trace
