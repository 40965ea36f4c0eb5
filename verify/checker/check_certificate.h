// The independent checker: does a certificate prove that a derivation is safe, or that a recorded
// run neither diverges nor deadlocks?
//
// Shares no code with what writes certificates but for the reading of traces and product.json and
// the hash function; it cuts, projects and digests on its own. Accepts only if
//   - every statement about the traces is what they say, none missing, none added;
//   - in each situation every option of every member of a channel gives the stated calls there;
//   - the stated order holds each meeting of the step once, and no sequence waits for a meeting
//     before it comes to one that stands earlier in the order (or at the same place).
// A recorded run is one situation, with one option a rank. That is all a proof needs:
// docs/certificates.md.
//
// One pass over the traces, and over each situation's sequences: linear. Memory follows the traces,
// whatever the certificate says.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/derivation.h"

namespace lockstep::verify {

enum class CertificateKind : std::uint8_t { program, run };
// By its second line; nothing where it says neither.
std::optional<CertificateKind> certificate_kind(std::string_view text);

// `file` names the certificate in errors. An error is a refusal: the line, and why.
Status check_certificate(std::string_view text, const std::string& file,
                         const trace::Derivation& derivation);

// Refuses besides: traces that are not all there, lost records, or do not end cleanly.
Status check_run_certificate(std::string_view text, const std::string& file, const trace::Run& run);

}  // namespace lockstep::verify
