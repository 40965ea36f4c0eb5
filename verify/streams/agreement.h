// Agreement: may two calls, issued by two ranks at the same place of a group's sequence, belong to
// one collective? Equal signatures are an integer compare; unequal ones are judged field by field
// once and remembered. What a source did not record is a wildcard.
//
// Sizes are about elements, not shapes: a [4,8] and a [32] all-reduce agree. Which of input and
// output must agree depends on the operation (PyTorch, torch.distributed documentation).
#pragma once

#include <cstdint>
#include <unordered_map>

#include "trace/run.h"

namespace lockstep::verify {

// What two calls differ in; a set of bits.
enum Difference : unsigned {
  kSame = 0,
  kDifferentOp = 1,
  kDifferentSize = 2,
  kDifferentDtype = 4,
  kDifferentRedop = 8,
  kDifferentRoot = 16,
};

class Agreement {
 public:
  // Keeps a reference to `tables`.
  explicit Agreement(const trace::Tables& tables) : tables_(tables) {}

  // The set of differences; kSame where the two may belong to one collective. An all-to-all's
  // splits legitimately differ from rank to rank and are not judged here (see splits_fit).
  unsigned differences(trace::SignatureId a, trace::SignatureId b);

  bool agree(trace::SignatureId a, trace::SignatureId b) {
    return a == b || differences(a, b) == kSame;
  }

  const trace::Tables& tables() const { return tables_; }

 private:
  const trace::Tables& tables_;
  std::unordered_map<std::uint64_t, unsigned> known_;
};

}  // namespace lockstep::verify
