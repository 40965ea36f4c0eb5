// The independent checker: does a certificate prove that a derivation is safe?
//
// Shares no code with decide() and write_certificate() but for the reading of traces and
// product.json and the hash function; it cuts, projects and digests on its own. Accepts only if
//   - every statement about the derivation is what the folder says, none missing, none added;
//   - in each situation every option of every member of a channel gives the stated calls there;
//   - the stated order holds each meeting of the step once, and no sequence waits for a meeting
//     before it comes to one that stands earlier in the order (or at the same place).
// That is all a proof needs: docs/product.md.
//
// One pass over the traces, and over each situation's sequences: linear.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/derivation.h"

namespace lockstep {

// `file` names the certificate in errors. An error is a refusal: the line, and why.
Status check_certificate(std::string_view text, const std::string& file,
                         const Derivation& derivation);

}  // namespace lockstep
