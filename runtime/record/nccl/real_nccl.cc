#include "runtime/record/nccl/real_nccl.h"

#include <dlfcn.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace lockstep {

namespace {

bool first_time(const char* name) {
  static std::mutex mutex;
  // Never destroyed: calls may come until the process is gone.
  static auto* const said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return said->insert(name).second;
}

}  // namespace

void* find_real_nccl(const char* name) {
  if (void* const next = ::dlsym(RTLD_NEXT, name)) return next;
  // Never loads one: that would be another NCCL than the program's.
  if (void* const loaded = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)) {
    if (void* const found = ::dlsym(loaded, name)) return found;
  }
  if (first_time(name))
    std::fprintf(stderr, "liblockstep_nccl: this process has no NCCL with %s\n", name);
  return nullptr;
}

}  // namespace lockstep
