// A libnccl.so.2 without GPUs: communicators are numbers, calls do nothing. What a test has to see
// happens as in NCCL: group ranks of splits, functions that call others of the library, refusals.
#include <stdlib.h>

#include <cstddef>
#include <string>

#include "runtime/record/nccl/nccl_interface.h"

namespace nccl = lockstep::runtime::nccl;

struct nccl::Communicator {
  int group_rank, size;
};

namespace {

constexpr nccl::ResultCode kInvalidArgument = 4;

// Without other processes, what a split gives: NCCL_TEST_SPLIT is "GROUP_RANK/SIZE".
nccl::Communicator split_from_environment() {
  const char* const text = ::getenv("NCCL_TEST_SPLIT");
  const std::string group_rank = text != nullptr ? text : "0/1";
  return {std::stoi(group_rank), std::stoi(group_rank.substr(group_rank.find('/') + 1))};
}

nccl::ResultCode refuse_too_many(std::size_t count) {
  constexpr std::size_t kMax = 1'000'000;
  return count > kMax ? kInvalidArgument : nccl::kSuccess;
}

thread_local nccl::ResultCode in_group = nccl::kSuccess;
thread_local int group_depth = 0;

nccl::ResultCode done(std::size_t count) {
  const nccl::ResultCode result = refuse_too_many(count);
  if (group_depth == 0) return result;
  if (result != nccl::kSuccess) in_group = result;
  return nccl::kSuccess;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,misc-unused-parameters): NCCL's names
#pragma GCC diagnostic ignored "-Wunused-parameter"
extern "C" {

nccl::ResultCode ncclGroupStart() {
  ++group_depth;
  return nccl::kSuccess;
}
nccl::ResultCode ncclGroupEnd() {
  if (--group_depth > 0) return nccl::kSuccess;
  const nccl::ResultCode result = in_group;
  in_group = nccl::kSuccess;
  return result;
}
nccl::ResultCode ncclGetUniqueId(nccl::UniqueId* id) {
  *id = {};
  return nccl::kSuccess;
}
nccl::ResultCode ncclCommInitRank(nccl::Comm* comm, int size, nccl::UniqueId, int group_rank) {
  *comm = new nccl::Communicator{group_rank, size};
  return nccl::kSuccess;
}
nccl::ResultCode ncclCommInitRankConfig(nccl::Comm* comm, int size, nccl::UniqueId id,
                                        int group_rank, void*) {
  return ncclCommInitRank(comm, size, id,
                          group_rank);  // of its own: seen by whoever stands in front
}
nccl::ResultCode ncclCommInitAll(nccl::Comm* comms, int devices, const int*) {
  for (int i = 0; i < devices; ++i) comms[i] = new nccl::Communicator{i, devices};
  return nccl::kSuccess;
}
nccl::ResultCode ncclCommSplit(nccl::Comm comm, int color, int key, nccl::Comm* child, void*) {
  *child = color < 0 ? nullptr : new nccl::Communicator(split_from_environment());
  return nccl::kSuccess;
}
nccl::ResultCode ncclCommDestroy(nccl::Comm comm) {
  delete comm;
  return nccl::kSuccess;
}
nccl::ResultCode ncclCommUserRank(nccl::Comm comm, int* group_rank) {
  *group_rank = comm->group_rank;
  return nccl::kSuccess;
}
nccl::ResultCode ncclCommCuDevice(nccl::Comm comm, int* device) {
  *device = comm->group_rank;
  return nccl::kSuccess;
}
nccl::ResultCode ncclCommCount(nccl::Comm comm, int* size) {
  *size = comm->size;
  return nccl::kSuccess;
}
nccl::ResultCode ncclAllReduce(const void*, void*, std::size_t count, int, int, nccl::Comm,
                               nccl::Stream) {
  return done(count);
}
nccl::ResultCode ncclBroadcast(const void*, void*, std::size_t count, int, int, nccl::Comm,
                               nccl::Stream) {
  return done(count);
}
nccl::ResultCode ncclReduceScatter(const void*, void*, std::size_t count, int, int, nccl::Comm,
                                   nccl::Stream) {
  return done(count);
}
nccl::ResultCode ncclAllGather(const void*, void*, std::size_t count, int, nccl::Comm,
                               nccl::Stream) {
  return done(count);
}
nccl::ResultCode ncclSend(const void*, std::size_t count, int, int, nccl::Comm, nccl::Stream) {
  return done(count);
}
nccl::ResultCode ncclRecv(void*, std::size_t count, int, int, nccl::Comm, nccl::Stream) {
  return done(count);
}
// As some libraries have it: made of others of their functions.
nccl::ResultCode ncclAlltoAll(const void* in, void* out, std::size_t count, int type,
                              nccl::Comm comm, nccl::Stream stream) {
  ncclGroupStart();
  for (int peer = 0; peer < comm->size; ++peer) {
    ncclSend(in, count, type, peer, comm, stream);
    ncclRecv(out, count, type, peer, comm, stream);
  }
  return ncclGroupEnd();
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming,misc-unused-parameters)
