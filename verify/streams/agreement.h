// Agreement: can two calls, issued by two ranks at the same index of a group's sequence, belong to
// one collective? Equal signatures cost an integer comparison. Different ones are compared field by
// field once, and the result is cached. A field that a source did not record agrees with
// everything.
//
// Sizes are counts of elements, not shapes: all-reduces of [4,8] and [32] agree. Whether input,
// output or both must agree depends on the operation (PyTorch, torch.distributed documentation).
#pragma once

#include <cstdint>
#include <unordered_map>

#include "trace/run.h"

namespace lockstep::verify {

// The fields in which two calls differ: a set of bits.
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

  // The set of differences; kSame where the two calls may belong to one collective. The splits of
  // an all-to-all legitimately differ between ranks: verify/matching/splits.cc judges them.
  unsigned differences(trace::SignatureId a, trace::SignatureId b);

  bool agree(trace::SignatureId a, trace::SignatureId b) {
    return a == b || differences(a, b) == kSame;
  }

  const trace::Tables& tables() const { return tables_; }

 private:
  const trace::Tables& tables_;
  std::unordered_map<std::uint64_t, unsigned> known_;
};

// Whether calls of two ranks agree, each in a group of its own: their roots are other ranks, at the
// same index of their groups.
bool agree_across_groups(Agreement& agreement, const trace::RankTrace& a, const trace::Call& x,
                         const trace::RankTrace& b, const trace::Call& y);

}  // namespace lockstep::verify
