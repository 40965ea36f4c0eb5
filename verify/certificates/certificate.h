// The certificate of a safe program: the witness that check_certificate() accepts or refuses.
//
// A text, a statement a line; docs/certificates.md describes it. It says what was looked at
// (conditions, constraint, histories, assumptions), the SHA-256 of every sequence, what all members
// do on each channel in each situation, and an order of the step's meetings that every sequence
// respects.
#pragma once

#include <string>

#include "base/result.h"
#include "verify/product/decide.h"

namespace lockstep {

// Errors: the decision is not `safe`, or no one order suits all assignments.
Result<std::string> write_certificate(const ProductModel& model, const ProductDecision& decision);

}  // namespace lockstep
