// The NCCL that this process would have called if we were not in front of it.
#pragma once

namespace lockstep {

// The function of that name behind this library: the next one in the program's search order, else
// that of a libnccl.so.2 that is loaded without being in it (Python's modules are). Null: there is
// none, which is said on standard error, once for each name.
void* find_real_nccl(const char* name);

}  // namespace lockstep
