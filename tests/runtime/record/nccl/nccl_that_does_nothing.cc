// A libnccl.so.2 without GPUs: communicators are numbers, calls do nothing. What a test has to see
// happens as in NCCL: places of splits, functions that call others of the library, refusals.
#include <stdlib.h>

#include <cstddef>
#include <string>

#include "runtime/record/nccl/nccl_interface.h"

using namespace lockstep::runtime::nccl;

struct lockstep::runtime::nccl::Communicator {
  int group_rank, size;
};

namespace {

constexpr lockstep::runtime::nccl::ResultCode kInvalidArgument = 4;

// Without other processes, what a split gives: NCCL_TEST_SPLIT is "PLACE/SIZE".
lockstep::runtime::nccl::Communicator split_from_environment() {
  const char* const text = ::getenv("NCCL_TEST_SPLIT");
  const std::string group_rank = text != nullptr ? text : "0/1";
  return {std::stoi(group_rank), std::stoi(group_rank.substr(group_rank.find('/') + 1))};
}

lockstep::runtime::nccl::ResultCode refuse_too_many(std::size_t count) {
  constexpr std::size_t kMost = 1'000'000;
  return count > kMost ? kInvalidArgument : lockstep::runtime::nccl::kSuccess;
}

thread_local lockstep::runtime::nccl::ResultCode in_group = lockstep::runtime::nccl::kSuccess;
thread_local int group_depth = 0;

lockstep::runtime::nccl::ResultCode done(std::size_t count) {
  const lockstep::runtime::nccl::ResultCode result = refuse_too_many(count);
  if (group_depth == 0) return result;
  if (result != lockstep::runtime::nccl::kSuccess) in_group = result;
  return lockstep::runtime::nccl::kSuccess;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,misc-unused-parameters): NCCL's names
#pragma GCC diagnostic ignored "-Wunused-parameter"
extern "C" {

lockstep::runtime::nccl::ResultCode ncclGroupStart() {
  ++group_depth;
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclGroupEnd() {
  if (--group_depth > 0) return lockstep::runtime::nccl::kSuccess;
  const lockstep::runtime::nccl::ResultCode result = in_group;
  in_group = lockstep::runtime::nccl::kSuccess;
  return result;
}
lockstep::runtime::nccl::ResultCode ncclGetUniqueId(lockstep::runtime::nccl::UniqueId* id) {
  *id = {};
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclCommInitRank(lockstep::runtime::nccl::Comm* comm, int size,
                                                     lockstep::runtime::nccl::UniqueId,
                                                     int group_rank) {
  *comm = new lockstep::runtime::nccl::Communicator{group_rank, size};
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclCommInitRankConfig(lockstep::runtime::nccl::Comm* comm,
                                                           int size,
                                                           lockstep::runtime::nccl::UniqueId id,
                                                           int group_rank, void*) {
  return ncclCommInitRank(comm, size, id,
                          group_rank);  // of its own: seen by whoever stands in front
}
lockstep::runtime::nccl::ResultCode ncclCommInitAll(lockstep::runtime::nccl::Comm* comms,
                                                    int devices, const int*) {
  for (int i = 0; i < devices; ++i)
    comms[i] = new lockstep::runtime::nccl::Communicator{i, devices};
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclCommSplit(lockstep::runtime::nccl::Comm comm, int color,
                                                  int key, lockstep::runtime::nccl::Comm* child,
                                                  void*) {
  *child =
      color < 0 ? nullptr : new lockstep::runtime::nccl::Communicator(split_from_environment());
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclCommDestroy(lockstep::runtime::nccl::Comm comm) {
  delete comm;
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclCommUserRank(lockstep::runtime::nccl::Comm comm,
                                                     int* group_rank) {
  *group_rank = comm->group_rank;
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclCommCuDevice(lockstep::runtime::nccl::Comm comm,
                                                     int* device) {
  *device = comm->group_rank;
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclCommCount(lockstep::runtime::nccl::Comm comm, int* size) {
  *size = comm->size;
  return lockstep::runtime::nccl::kSuccess;
}
lockstep::runtime::nccl::ResultCode ncclAllReduce(const void*, void*, std::size_t count, int, int,
                                                  lockstep::runtime::nccl::Comm,
                                                  lockstep::runtime::nccl::Stream) {
  return done(count);
}
lockstep::runtime::nccl::ResultCode ncclBroadcast(const void*, void*, std::size_t count, int, int,
                                                  lockstep::runtime::nccl::Comm,
                                                  lockstep::runtime::nccl::Stream) {
  return done(count);
}
lockstep::runtime::nccl::ResultCode ncclReduceScatter(const void*, void*, std::size_t count, int,
                                                      int, lockstep::runtime::nccl::Comm,
                                                      lockstep::runtime::nccl::Stream) {
  return done(count);
}
lockstep::runtime::nccl::ResultCode ncclAllGather(const void*, void*, std::size_t count, int,
                                                  lockstep::runtime::nccl::Comm,
                                                  lockstep::runtime::nccl::Stream) {
  return done(count);
}
lockstep::runtime::nccl::ResultCode ncclSend(const void*, std::size_t count, int, int,
                                             lockstep::runtime::nccl::Comm,
                                             lockstep::runtime::nccl::Stream) {
  return done(count);
}
lockstep::runtime::nccl::ResultCode ncclRecv(void*, std::size_t count, int, int,
                                             lockstep::runtime::nccl::Comm,
                                             lockstep::runtime::nccl::Stream) {
  return done(count);
}
// As some libraries have it: made of others of their functions.
lockstep::runtime::nccl::ResultCode ncclAlltoAll(const void* in, void* out, std::size_t count,
                                                 int type, lockstep::runtime::nccl::Comm comm,
                                                 lockstep::runtime::nccl::Stream stream) {
  ncclGroupStart();
  for (int peer = 0; peer < comm->size; ++peer) {
    ncclSend(in, count, type, peer, comm, stream);
    ncclRecv(out, count, type, peer, comm, stream);
  }
  return ncclGroupEnd();
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming,misc-unused-parameters)
