// Reads Python pickles that hold only data. Nothing in a pickle is executed: opcodes that would
// look up a name, construct or call anything are refused.
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

// Whether the bytes begin a pickle of protocol 2 to 5.
bool looks_like_pickle(std::string_view bytes);

struct Pickle {
  DataTree tree;              // the data; of a damaged pickle, what came before the damage
  std::string damage;         // why it could not be read to its end; empty: it was
  std::size_t damage_at = 0;  // byte offset of the damage
};

// Reads a pickle. `bytes` must outlive the result, whose strings point into it. Tuples and sets
// become lists; integers beyond 63 bits and bytes objects become nothing. O(bytes) time; at most 96
// bytes of memory per byte, plus a constant. No recursion, so nesting may be arbitrarily deep.
// Errors: not a pickle, or one that would construct or call something (with the byte offset). A
// pickle that is cut off or damaged is not an error: see Pickle::damage.
Result<Pickle> read_pickle(std::string_view bytes, const std::string& file);

}  // namespace lockstep::trace
