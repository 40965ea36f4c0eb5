#include "runtime/worker/machine.h"

#include <sched.h>

#include <algorithm>
#include <array>

namespace lockstep::runtime {
namespace {

struct Row {
  std::string_view sign;  // in the text
  const char* message;
  const char* fix;
};

// The first that fits counts, so specific texts come before general ones.
constexpr std::array kRows = {
    Row{"CUDA out of memory", "the GPU has not enough memory free",
        "make \"batch_size\" smaller, or let fewer ranks share the GPU; nvidia-smi shows who else "
        "uses it"},
    Row{"CUDA error: out of memory", "the GPU has not enough memory free",
        "make \"batch_size\" smaller, or let fewer ranks share the GPU; nvidia-smi shows who else "
        "uses it"},
    Row{"CUDA driver version is insufficient", "the GPU's driver is too old for this CUDA",
        "install a newer driver, or build the worker against an older torch; the first line of "
        "nvidia-smi has the newest CUDA that the driver takes"},
    Row{"The NVIDIA driver on your system is too old", "the GPU's driver is too old for this CUDA",
        "install a newer driver, or build the worker against an older torch; the first line of "
        "nvidia-smi has the newest CUDA that the driver takes"},
    Row{"Found no NVIDIA driver", "there is no driver for a GPU on this machine",
        "write \"backend: gloo\" and leave --device out, or run it where there is a GPU"},
    Row{"No CUDA GPUs are available", "there is no GPU that this process may use",
        "nvidia-smi shows the GPUs, and CUDA_VISIBLE_DEVICES which of them are visible"},
    Row{"CUDA driver initialization failed", "the GPU's driver does not start",
        "nvidia-smi says why; in a container, start it with its GPUs (--gpus all)"},
    Row{"no CUDA-capable device", "there is no GPU that this process may use",
        "nvidia-smi shows the GPUs, and CUDA_VISIBLE_DEVICES which of them are visible"},
    Row{"no kernel image is available", "the worker was not built for this kind of GPU",
        "build it against a torch that knows the GPU's compute capability"},
    Row{"no socket interface found", "NCCL found no network interface to connect the ranks over",
        "set NCCL_SOCKET_IFNAME to one that `ip address` lists; on one machine: lo"},
    Row{"Duplicate GPU detected", "two ranks of NCCL were given the same GPU",
        "start one rank on each GPU (LOCAL_RANK says which); or, for testing, let ranks share: "
        "lockstep run --share-gpus"},
};

}  // namespace

std::optional<Error> known_failure(std::string_view text) {
  // Anywhere in the text: exceptions have stacks and addresses around the message.
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& one) {
    return text.find(one.sign) != std::string_view::npos;
  });
  if (row == kRows.end()) return std::nullopt;
  return Error{row->message, {}, row->fix};
}

void use_batch_scheduling() {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  const sched_param usual{};
  // Refused where a sandbox forbids it; the job is then as slow as it was.
  static_cast<void>(sched_setscheduler(0, SCHED_BATCH, &usual));
}

}  // namespace lockstep::runtime
