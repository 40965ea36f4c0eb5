#include "nccl/real_nccl.h"

#include <dlfcn.h>

#include <cstdio>

namespace lockstep {

void* find_real_nccl(const char* name) {
  if (void* const next = ::dlsym(RTLD_NEXT, name)) return next;
  // Never loads one: that would be another NCCL than the program's.
  if (void* const loaded = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)) {
    if (void* const found = ::dlsym(loaded, name)) return found;
  }
  std::fprintf(stderr, "liblockstep_nccl: this process has no NCCL with %s\n", name);
  return nullptr;
}

}  // namespace lockstep
