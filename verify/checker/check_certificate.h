// The independent checker: does a certificate prove that a derivation is safe, or that a recorded
// run neither diverges nor deadlocks?
//
// It shares no code with the writers of certificates, except for reading traces and product.json
// and the hash function; it divides, projects and hashes traces on its own. It accepts only if
//   - the statements about the traces are true and complete;
//   - in each situation, all options of all members of a channel give the stated calls there;
//   - the stated order contains each instance of the step once, and no sequence waits for an
//     instance before it reaches one that comes earlier in the order (or at the same position).
// A recorded run is one situation with one option per rank. A proof needs nothing more:
// docs/certificates.md.
//
// One pass over the traces and over each situation's sequences, so linear. Memory follows the size
// of the traces, whatever the certificate says.
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
