// What a backend says by itself, from torch 2.15 on (c10d/Hooks.hpp): that a call has completed,
// and that it is about to abort because one failed or took too long.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "runtime/record/c10d/work_watch.h"

namespace lockstep {

// Whether it says any of that; never where torch is older.
bool can_tell(const c10d::Backend& backend);

// From now on `watch` looks as soon as the backend says that a call has completed, and once more
// before it aborts, so that what is in the trace is what there was. True where the backend tells
// completions. `watch` must outlive the backend. Once for a backend.
bool hook_into(c10d::Backend& backend, WorkWatch& watch);

}  // namespace lockstep
