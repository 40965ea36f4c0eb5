// A program that is linked with NCCL and knows nothing of Lockstep. It makes a communicator of all
// ranks (RANK, WORLD_SIZE) and does what its arguments say, in order:
//
//   all_reduce:COUNT  broadcast:COUNT:ROOT  all_gather:COUNT  reduce_scatter:COUNT all_to_all:COUNT
//   send:COUNT:PEER  recv:COUNT:PEER  group  end  missing
//   split:COLOR   what follows is of the split; world: again of all
//   destroy       the present one
//   kill          by SIGKILL
//   leave         by _exit(0), which runs no handlers
//   cuda          load a CUDA driver (cuda_that_counts.cc); with it:
//   stop, go, capture   the streams stand still; run again; are captured
//   await:FILE    until there is that file
//   config, all   first: make the first communicator by another function
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "runtime/record/nccl/nccl_interface.h"

using namespace lockstep::runtime::nccl;

extern "C" {
lockstep::runtime::nccl::ResultCode ncclGetUniqueId(lockstep::runtime::nccl::UniqueId* id);
lockstep::runtime::nccl::ResultCode ncclCommInitRank(lockstep::runtime::nccl::Comm* comm, int size,
                                                     lockstep::runtime::nccl::UniqueId id,
                                                     int group_rank);
lockstep::runtime::nccl::ResultCode ncclCommInitRankConfig(lockstep::runtime::nccl::Comm* comm,
                                                           int size,
                                                           lockstep::runtime::nccl::UniqueId id,
                                                           int group_rank, void* config);
lockstep::runtime::nccl::ResultCode ncclCommInitAll(lockstep::runtime::nccl::Comm* comms,
                                                    int devices, const int* list);
lockstep::runtime::nccl::ResultCode ncclCommSplit(lockstep::runtime::nccl::Comm comm, int color,
                                                  int key, lockstep::runtime::nccl::Comm* child,
                                                  void* config);
lockstep::runtime::nccl::ResultCode ncclCommDestroy(lockstep::runtime::nccl::Comm comm);
lockstep::runtime::nccl::ResultCode ncclGroupStart();
lockstep::runtime::nccl::ResultCode ncclGroupEnd();
lockstep::runtime::nccl::ResultCode ncclAllReduce(const void*, void*, std::size_t, int, int,
                                                  lockstep::runtime::nccl::Comm,
                                                  lockstep::runtime::nccl::Stream);
lockstep::runtime::nccl::ResultCode ncclBroadcast(const void*, void*, std::size_t, int, int,
                                                  lockstep::runtime::nccl::Comm,
                                                  lockstep::runtime::nccl::Stream);
lockstep::runtime::nccl::ResultCode ncclReduceScatter(const void*, void*, std::size_t, int, int,
                                                      lockstep::runtime::nccl::Comm,
                                                      lockstep::runtime::nccl::Stream);
lockstep::runtime::nccl::ResultCode ncclAllGather(const void*, void*, std::size_t, int,
                                                  lockstep::runtime::nccl::Comm,
                                                  lockstep::runtime::nccl::Stream);
lockstep::runtime::nccl::ResultCode ncclAlltoAll(const void*, void*, std::size_t, int,
                                                 lockstep::runtime::nccl::Comm,
                                                 lockstep::runtime::nccl::Stream);
lockstep::runtime::nccl::ResultCode ncclSend(const void*, std::size_t, int, int,
                                             lockstep::runtime::nccl::Comm,
                                             lockstep::runtime::nccl::Stream);
lockstep::runtime::nccl::ResultCode ncclRecv(void*, std::size_t, int, int,
                                             lockstep::runtime::nccl::Comm,
                                             lockstep::runtime::nccl::Stream);
}

namespace {

constexpr int kFloat32 = 7;
constexpr int kSum = 0;

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t colon = 0; colon != std::string::npos; begin = colon + 1) {
    colon = text.find(':', begin);
    out.push_back(text.substr(begin, colon - begin));
  }
  return out;
}

int number(const char* name) {
  const char* const text = ::getenv(name);
  return text != nullptr ? std::atoi(text) : 0;
}

// Does what a function of the loaded driver is there for.
lockstep::runtime::nccl::ResultCode tell_driver(const char* name) {
  const auto found = reinterpret_cast<void (*)()>(::dlsym(RTLD_DEFAULT, name));
  if (found != nullptr) found();
  return found != nullptr ? lockstep::runtime::nccl::kSuccess : 1;
}

lockstep::runtime::nccl::ResultCode call(const std::vector<std::string>& parts,
                                         lockstep::runtime::nccl::Comm comm) {
  const std::string& what = parts[0];
  if (what == "await") {
    while (::access(parts[1].c_str(), F_OK) != 0) ::usleep(1000);
    return lockstep::runtime::nccl::kSuccess;
  }
  if (what == "cuda")
    return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != nullptr
               ? lockstep::runtime::nccl::kSuccess
               : 1;
  if (what == "stop") return tell_driver("stop_streams");
  if (what == "go") return tell_driver("run_streams");
  if (what == "capture") return tell_driver("begin_capture");
  const std::size_t count = parts.size() > 1 ? std::stoul(parts[1]) : 0;
  const int other = parts.size() > 2 ? std::stoi(parts[2]) : 0;
  if (what == "all_reduce")
    return ncclAllReduce(nullptr, nullptr, count, kFloat32, kSum, comm, nullptr);
  if (what == "broadcast")
    return ncclBroadcast(nullptr, nullptr, count, kFloat32, other, comm, nullptr);
  if (what == "all_gather") return ncclAllGather(nullptr, nullptr, count, kFloat32, comm, nullptr);
  if (what == "reduce_scatter")
    return ncclReduceScatter(nullptr, nullptr, count, kFloat32, kSum, comm, nullptr);
  if (what == "all_to_all") return ncclAlltoAll(nullptr, nullptr, count, kFloat32, comm, nullptr);
  if (what == "send") return ncclSend(nullptr, count, kFloat32, other, comm, nullptr);
  if (what == "recv") return ncclRecv(nullptr, count, kFloat32, other, comm, nullptr);
  if (what == "group") return ncclGroupStart();
  if (what == "end") return ncclGroupEnd();
  if (what == "destroy") return ncclCommDestroy(comm);
  if (what == "kill") ::raise(SIGKILL);
  if (what == "leave") ::_exit(0);
  // A function that this NCCL does not have, as whoever stands in front of it offers it.
  using Gather = lockstep::runtime::nccl::ResultCode (*)(const void*, void*, std::size_t, int, int,
                                                         lockstep::runtime::nccl::Comm,
                                                         lockstep::runtime::nccl::Stream);
  const auto gather = reinterpret_cast<Gather>(::dlsym(RTLD_DEFAULT, "ncclGather"));
  if (what == "missing" && gather != nullptr)
    return gather(nullptr, nullptr, count, kFloat32, 0, comm, nullptr) == 3
               ? lockstep::runtime::nccl::kSuccess
               : 1;
  std::fprintf(stderr, "what is %s?\n", what.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::runtime::nccl::UniqueId id;
  ncclGetUniqueId(&id);
  lockstep::runtime::nccl::Comm world = nullptr;
  int first = 1;
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "all") {
    lockstep::runtime::nccl::Comm both[2];
    ncclCommInitAll(both, 2, nullptr);
    ncclAllReduce(nullptr, nullptr, 8, kFloat32, kSum, both[0], nullptr);
    ncclAllReduce(nullptr, nullptr, 8, kFloat32, kSum, both[1], nullptr);
    return 0;
  }
  if (how == "config") {
    ++first;
    ncclCommInitRankConfig(&world, number("WORLD_SIZE"), id, number("RANK"), nullptr);
  } else {
    ncclCommInitRank(&world, number("WORLD_SIZE"), id, number("RANK"));
  }
  lockstep::runtime::nccl::Comm present = world;
  int failures = 0;
  for (int i = first; i < argc; ++i) {
    const std::vector<std::string> parts = parts_of(argv[i]);
    if (parts[0] == "world") {
      present = world;
    } else if (parts[0] == "split") {
      ncclCommSplit(world, std::stoi(parts[1]), 0, &present, nullptr);
    } else {
      failures += call(parts, present) != lockstep::runtime::nccl::kSuccess;
    }
  }
  return failures;
}
