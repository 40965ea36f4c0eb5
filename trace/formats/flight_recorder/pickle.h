// Reads Python pickles that hold only data. Nothing in a pickle is ever executed: opcodes that
// would look a name up, construct or call anything are refused.
//
// The format: Python's pickletools (Lib/pickletools.py documents every opcode). PyTorch's Flight
// Recorder writes protocol 2 (torch/csrc/jit/serialization/pickler.cpp); Python re-pickles up to
// protocol 5 are read too.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/formats/flight_recorder/data_tree.h"

namespace lockstep::trace {

// True for the first bytes of a pickle of protocol 2 to 5.
bool looks_like_pickle(std::string_view bytes);

struct Pickle {
  DataTree tree;              // of what came before, where it was cut off or is damaged
  std::string damage;         // why it could not be read to its end; empty: it could
  std::size_t damage_at = 0;  // byte offset of the damage
};

// `bytes` must outlive the result, whose strings point into it. O(bytes) time; memory at most 96
// times the bytes plus a constant. Tuples and sets become lists; integers beyond 64 bits and bytes
// objects become nothing. No recursion: depth costs nothing.
// Errors: not a pickle, or one that would construct or call something (with the byte offset).
Result<Pickle> read_pickle(std::string_view bytes, const std::string& file);

}  // namespace lockstep::trace
