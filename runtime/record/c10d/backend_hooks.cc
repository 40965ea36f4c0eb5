#include "runtime/record/c10d/backend_hooks.h"

#include <chrono>
#include <cstdint>

namespace lockstep {

#ifdef C10D_BACKEND_HAS_HOOKS

namespace {

constexpr std::int64_t kHook = 0x6c6f636b73746570;  // ours among those of others: "lockstep"
// The backend holds locks that an answer may need; what is in the trace by then has to do.
constexpr std::chrono::milliseconds kLastLook(200);

}  // namespace

bool can_tell(const c10d::Backend& backend) {
  return backend.supportsAbortHooks() || backend.supportsCompletionHooks();
}

bool hook_into(c10d::Backend& backend, WorkWatch& watch) {
  if (backend.supportsAbortHooks())
    backend.registerAbortHook(kHook, [&watch] { watch.look_now(kLastLook); });
  if (!backend.supportsCompletionHooks()) return false;
  backend.registerCompletionHook(kHook,
                                 [&watch](const c10d::CompletionHookArgs&) { watch.look_soon(); });
  return true;
}

#else

bool can_tell(const c10d::Backend&) { return false; }

bool hook_into(c10d::Backend&, WorkWatch&) { return false; }

#endif

}  // namespace lockstep
