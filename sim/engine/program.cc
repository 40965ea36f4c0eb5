#include "sim/engine/program.h"

namespace lockstep::sim {
namespace {

template <class Id>
bool agree_id(Id a, Id b) {
  return a == b || a.value == 0 || b.value == 0;
}
template <class Number>
bool agree_number(Number a, Number b) {
  return a == b || a == trace::kNone || b == trace::kNone;
}

}  // namespace

bool agree(const ProgramCall& a, const ProgramCall& b) {
  return a.op == b.op && agree_id(a.other_op, b.other_op) && agree_id(a.redop, b.redop) &&
         agree_id(a.dtypes, b.dtypes) && agree_number(a.elements, b.elements) &&
         agree_number(a.root, b.root);
}

}  // namespace lockstep::sim
