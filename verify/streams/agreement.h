// Agreement: can two calls, issued by two ranks at the same index of a group's sequence, belong to
// one collective? A field that a source did not record agrees with everything, so agreement is not
// transitive. But signatures that record the same fields agree only where these are equal: each
// gets a number once, and comparing them is comparing integers, however many different sizes a run
// has. Others are compared field by field, and the result is kept by pair.
//
// Sizes are counts of elements, not shapes: all-reduces of [4,8] and [32] agree. Whether input,
// output or both must agree depends on the operation (PyTorch, torch.distributed documentation).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

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

  // Whether differences() is kSame; faster.
  bool agree(trace::SignatureId a, trace::SignatureId b) {
    if (a == b || a.value == 0 || b.value == 0) return true;
    const Form x = form(a);
    const Form y = form(b);
    return x.recorded == y.recorded ? x.value == y.value : differences(a, b) == kSame;
  }

  const trace::Tables& tables() const { return tables_; }

 private:
  // What a signature says in the fields that its operation compares. `recorded` is the set of these
  // fields: of two signatures with equal sets, equal values agree, and no others.
  struct Form {
    std::uint32_t recorded = 0;
    std::uint32_t value = 0;  // 0: not looked up yet
  };

  Form form(trace::SignatureId id) {
    if (id.value >= forms_.size()) forms_.resize(tables_.signatures.size());
    Form& known = forms_[id.value];
    if (known.value == 0) known = make_form(id);
    return known;
  }
  Form make_form(trace::SignatureId id);

  const trace::Tables& tables_;
  std::vector<Form> forms_;  // by signature
  Interner<trace::IntList, trace::IntListId, trace::IntListHash> values_;
  std::unordered_map<std::uint64_t, unsigned> known_;
};

// Whether calls of two ranks agree, each in a group of its own: their roots are other ranks, at the
// same index of their groups.
bool agree_across_groups(Agreement& agreement, const trace::RankTrace& a, const trace::Call& x,
                         const trace::RankTrace& b, const trace::Call& y);

}  // namespace lockstep::verify
