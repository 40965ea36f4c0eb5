// Several ranks of NCCL on one GPU, for testing.
//
// NCCL refuses two ranks on one device because it takes them for processes of one host. With a
// host's identity each, it takes them for ranks of different hosts and connects them over sockets:
// slow, so that times mean nothing, but with NCCL's own semantics.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// What a rank's environment needs for it, as names and values. LOCKSTEP_SHARE_GPUS is the worker's
// own: it takes the device of its local rank modulo the devices that there are.
std::vector<std::pair<std::string, std::string>> sharing_environment(int rank);

}  // namespace lockstep
