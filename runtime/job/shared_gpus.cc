#include "runtime/job/shared_gpus.h"

namespace lockstep {

std::vector<std::pair<std::string, std::string>> sharing_environment(int rank) {
  return {{"LOCKSTEP_SHARE_GPUS", "1"},
          {"NCCL_HOSTID", "lockstep-rank-" + std::to_string(rank)},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_NET", "Socket"},  // else an InfiniBand card of the machine carries it
          {"NCCL_P2P_DISABLE", "1"},
          {"NCCL_SHM_DISABLE", "1"}};
}

}  // namespace lockstep
