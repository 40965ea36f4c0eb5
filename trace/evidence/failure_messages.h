// What messages of PyTorch, NCCL and HCCL say of a failure: their words in, something typed out, so
// that analyses need not know the words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/ids.h"

namespace lockstep::trace {

// Whether an exception is one that a peer's death, an abort or a timeout causes in other ranks
// (Gloo, NCCL, c10d, TCPStore), or one that all ranks raise at a mismatch: it does not tell who is
// at fault.
bool mentions_a_peer(std::string_view message);

// Whether it says that a peer did not come before Gloo's timeout was over.
bool mentions_timeout(std::string_view message);

// Whether a port was taken on which the process was to listen.
bool mentions_taken_port(std::string_view message);

// The rank that an exception says of itself: "AssertionError: Rank 11: found NaN in …" (Megatron),
// "… shared seed from the distribtued store on Rank 2. (world_size=3)"; kNone where it says none.
Rank rank_said_by(std::string_view message);

// Whether it is about memory that could not be had.
bool mentions_memory(std::string_view message);

// Whether it is about a GPU that is defective or gone, rather than about the program.
bool mentions_hardware(std::string_view message);

// DistributedDataParallel's message (torch/csrc/distributed/c10d/reducer.cpp).
bool mentions_unused_parameters(std::string_view message);

// An error that follows from what another process did, or did not do.
enum class PeerFailure : std::uint8_t {
  child_failed,       // torchrun says that a rank failed: it is none itself
  call_timed_out,     // by PyTorch's watchdog
  calls_differ,       // ranks made different calls, of which none is wrong for sure
  barrier_not_met,    // ranks did not come to monitored_barrier()
  barrier_lost,       // rank 0 ended or gave up in monitored_barrier(): its own message says why
  store_not_reached,  // nobody answers at the store's address
  nodes_not_met,      // the launchers of other nodes did not come
  hccl_peer_missing,  // a peer did not come to a call or a connection of HCCL
  group_not_met,      // rank 0 of a group did not put the group's NCCL id into the store
  ranks_not_met,      // other ranks did not start
  store_lost,         // the store's process ended
  told_to_end,        // a signal ended the process
  peer_unreachable,   // nothing answers at the peer's address, so it need not have ended
  connection_lost,    // any other
};

// What an error of RankNote::Kind::peer_lost, or a warning of NCCL, says of a peer.
PeerFailure peer_failure_in(std::string_view message);

// "Ranks 1, 2 failed to pass monitoredBarrier in 600000 ms": "ranks 1, 2"; empty: not told.
std::string absent_from_barrier(std::string_view message);

// "The client socket has timed out after 600s while trying to connect to (10.0.0.7, 29500).":
// "10.0.0.7, 29500"; empty: not told.
std::string_view store_address_in(std::string_view message);

// The keys for which a rank waited in the store until the timeout was over: of "wait timeout after
// 300000ms, keys: /default_pg/0//data_ready" it is "data_ready"; empty: not told.
std::string_view store_keys_in(std::string_view message);

// Of HCCL: behind it stands the device of a peer that ended or is stuck.
inline constexpr std::string_view kAbnormalDevice = "Cluster Exception Location[IP/ID]:[";

// What HCCL (Huawei) says of a peer that did not come. Source: the list of its errors in CANN's
// hcomm (REG_FORMAT_ERROR_MSG), and logs in public issues:
//
//   EI0002: [PID: 2969] … The wait execution of the Notify register times out. … from remote rank:
//       [24]. base information: [streamID:[109], …, tag[AllReduce_group_name_1654], …
//   there are(is) 1 abnormal device(s):
//       Cluster Exception Location[IP/ID]:[90.90.92.240/1], …, ExceptionType:[Heartbeat Lost
//       Occurred], Possible Reason:1. Process has exited, 2. Network Disconnected
struct HcclWait {
  bool to_connect = false;            // for a connection, and not in a call
  std::optional<std::int64_t> peer;   // its number in the group, where that is told
  std::string_view call;              // the operation and its group, views into the message …
  std::string_view device, happened;  // … "90.90.92.240/1", "Heartbeat Lost Occurred"
};
std::optional<HcclWait> hccl_wait_in(std::string_view message);

// "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] …": the rank, by its
// number in the group, from which the id was to come.
std::int64_t group_root_in(std::string_view message);

// How many processes came to where all ranks start or create a process group. Source:
// _store_based_barrier in PyTorch's distributed_c10d.py, which names the group since 2.1 and
// numbered it before, and TCPStore.cpp.
//
//   … in store based barrier on rank 0, for key: store_based_barrier_key:3 (world_size=4,
//       num_workers_joined=3, timeout=0:10:00 error=…
//   … in store based barrier on rank: 7, for key: store_based_barrier_key:32 (world_size=8,
//       worker_count=4, timeout=0:00:30)
//   … waiting for clients. 1/2 clients joined.
struct Arrivals {
  std::int64_t came = 0;
  std::int64_t expected = 0;
  bool are_ranks = false;  // false: clients of the store, as launchers may be
  std::string_view group;  // a view into the message; empty: the first, of all ranks
};
std::optional<Arrivals> arrivals_in(std::string_view message);

// "Rank 1 is running collective: …, but Rank 2 is running collective: …": the two.
struct DifferingRanks {
  std::int64_t one = 0;
  std::int64_t other = 0;
};
std::optional<DifferingRanks> differing_ranks_in(std::string_view message);

// "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, …) ran for
// 600026 milliseconds before timing out".
struct TimedOutCall {
  std::optional<std::int64_t> seq;
  std::string_view operation;            // a view into the message; empty: not told
  std::string_view library;              // "NCCL"; a view, too
  std::optional<std::int64_t> open_for;  // milliseconds

  bool operator==(const TimedOutCall&) const = default;
};
TimedOutCall timed_out_call_in(std::string_view message);

// Exceptions that only say that NCCL failed; its own warnings say why.
bool only_says_nccl_failed(std::string_view exception);

// Warnings of NCCL that are no consequence of another process' end.
bool is_failure_of_its_own(std::string_view nccl_warning);

// Whether a warning of NCCL is about a peer or the connection to it. Others, that are no failure of
// their own either, need not have mattered: "Could not enable P2P between dev 0 and dev 1".
bool warns_of_a_peer(std::string_view nccl_warning);

// "Bootstrap Root : rank 3 of 8 ranks has already checked in": two processes have one rank.
bool says_rank_taken(std::string_view nccl_warning);

// "Call to ibv_reg_mr failed with error Cannot allocate memory": the process may not lock as much.
bool says_memory_not_locked(std::string_view nccl_warning);

// Whether the connection to a peer was closed, as the peer's end does.
bool says_peer_closed(std::string_view exception);

// Whether Gloo or NCCL says that another rank sent more than this one's call expected: the two made
// different calls, and nothing shows which is wrong.
bool says_sizes_differ(std::string_view exception);

// Whether DistributedDataParallel found models that differ. It raises on all ranks.
bool says_models_differ(std::string_view exception);

// Whether FullyShardedDataParallel found that ranks run its units in different orders. It raises on
// all ranks. Source: _check_order in torch/distributed/fsdp/_exec_order_utils.py.
bool says_order_differs(std::string_view exception);

// Whether Hugging Face's Accelerate, in its debug mode, found that ranks pass tensors of different
// shapes. It raises on all ranks. Source: verify_operation in accelerate/utils/operations.py.
bool says_shapes_differ(std::string_view exception);

// What ends such an exception's text where not all shapes are in it.
inline constexpr std::string_view kMoreShapes = ", …";

// Whether all ranks of a group raise it, for what some of them are or did: the three above, and
// what torch.distributed.checkpoint and collective_utils.py tell of a rank that failed.
bool raised_by_all(std::string_view exception);

// The ranks that differ from most of a job's `world_size` ranks, by the exceptions that its ranks
// raised: the one that most others call inconsistent, or those that a message tells; sorted. Empty:
// none stands out. O(their bytes).
//
//   … rank 0 is all-gathering 3 parameters while rank 2 is all-gathering 1 parameters
//       the first pair that differs: ranks 0 and 1 agree
//   …; accelerate.utils.operations.gather: Process 0: [1, 5], Process 2: [1, 2, 5]
//       as note_process_shape() of exception_details.h tells it: who differs from process 0
//   CheckpointException ranks:dict_keys([2]), RuntimeError: Rank 2 failed: stage load
//       who failed
std::vector<Rank> odd_ranks(const std::vector<std::string_view>& exceptions,
                            std::int32_t world_size);

// Whether Join found that this rank has no more inputs, so that it makes the others raise, too:
// "Rank 1 exhausted all inputs." Source: torch/distributed/algorithms/join.py.
bool says_inputs_exhausted(std::string_view exception);

}  // namespace lockstep::trace
