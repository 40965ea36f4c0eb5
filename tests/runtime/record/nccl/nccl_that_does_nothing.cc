// A libnccl.so.2 without GPUs: communicators are numbers, calls do nothing. What a test has to see
// happens as in NCCL: places of splits, functions that call others of the library, refusals.
#include <stdlib.h>

#include <cstddef>
#include <string>

#include "runtime/record/nccl/nccl_interface.h"

using namespace lockstep::nccl;

struct lockstep::nccl::Communicator {
  int place, size;
};

namespace {

constexpr ResultCode kInvalidArgument = 4;

// Without other processes, what a split gives: NCCL_TEST_SPLIT is "PLACE/SIZE".
Communicator split_place() {
  const char* const text = ::getenv("NCCL_TEST_SPLIT");
  const std::string place = text != nullptr ? text : "0/1";
  return {std::stoi(place), std::stoi(place.substr(place.find('/') + 1))};
}

ResultCode refuse_too_many(std::size_t count) {
  constexpr std::size_t kMost = 1'000'000;
  return count > kMost ? kInvalidArgument : kSuccess;
}

thread_local ResultCode in_group = kSuccess;
thread_local int group_depth = 0;

ResultCode done(std::size_t count) {
  const ResultCode result = refuse_too_many(count);
  if (group_depth == 0) return result;
  if (result != kSuccess) in_group = result;
  return kSuccess;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,misc-unused-parameters): NCCL's names
#pragma GCC diagnostic ignored "-Wunused-parameter"
extern "C" {

ResultCode ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}
ResultCode ncclGroupEnd() {
  if (--group_depth > 0) return kSuccess;
  const ResultCode result = in_group;
  in_group = kSuccess;
  return result;
}
ResultCode ncclGetUniqueId(UniqueId* id) {
  *id = {};
  return kSuccess;
}
ResultCode ncclCommInitRank(Comm* comm, int size, UniqueId, int place) {
  *comm = new Communicator{place, size};
  return kSuccess;
}
ResultCode ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int place, void*) {
  return ncclCommInitRank(comm, size, id, place);  // of its own: seen by whoever stands in front
}
ResultCode ncclCommInitAll(Comm* comms, int devices, const int*) {
  for (int i = 0; i < devices; ++i) comms[i] = new Communicator{i, devices};
  return kSuccess;
}
ResultCode ncclCommSplit(Comm comm, int color, int key, Comm* child, void*) {
  *child = color < 0 ? nullptr : new Communicator(split_place());
  return kSuccess;
}
ResultCode ncclCommDestroy(Comm comm) {
  delete comm;
  return kSuccess;
}
ResultCode ncclCommUserRank(Comm comm, int* place) {
  *place = comm->place;
  return kSuccess;
}
ResultCode ncclCommCount(Comm comm, int* size) {
  *size = comm->size;
  return kSuccess;
}
ResultCode ncclAllReduce(const void*, void*, std::size_t count, int, int, Comm, Stream) {
  return done(count);
}
ResultCode ncclBroadcast(const void*, void*, std::size_t count, int, int, Comm, Stream) {
  return done(count);
}
ResultCode ncclReduceScatter(const void*, void*, std::size_t count, int, int, Comm, Stream) {
  return done(count);
}
ResultCode ncclAllGather(const void*, void*, std::size_t count, int, Comm, Stream) {
  return done(count);
}
ResultCode ncclSend(const void*, std::size_t count, int, int, Comm, Stream) { return done(count); }
ResultCode ncclRecv(void*, std::size_t count, int, int, Comm, Stream) { return done(count); }
// As some libraries have it: made of others of their functions.
ResultCode ncclAlltoAll(const void* in, void* out, std::size_t count, int type, Comm comm,
                        Stream stream) {
  ncclGroupStart();
  for (int peer = 0; peer < comm->size; ++peer) {
    ncclSend(in, count, type, peer, comm, stream);
    ncclRecv(out, count, type, peer, comm, stream);
  }
  return ncclGroupEnd();
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming,misc-unused-parameters)
