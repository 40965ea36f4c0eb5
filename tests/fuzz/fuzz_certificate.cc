// Any bytes as a certificate and what it speaks of, behind a blank line: the traces of a run, or a
// derivation (fuzz_derivation.h). Sealed anew, so that the digest is not what refuses it. What the
// checker accepts is safe by everything else that can tell.
#include <string>

#include "base/check.h"
#include "base/sha256.h"
#include "tests/fuzz/fuzz_derivation.h"
#include "tests/fuzz/targets.h"
#include "verify/checker/check_certificate.h"
#include "verify/product/decide.h"
#include "verify/verify.h"

namespace lockstep {

namespace {

// Without its last line, which becomes the digest of the others.
std::string sealed(std::string_view text) {
  std::string out(text.substr(0, text.empty() ? 0 : text.rfind('\n', text.size() - 2) + 1));
  return out + "end " + sha256(out) + "\n";
}

void check_of_run(const std::string& text, const trace::Run& run) {
  constexpr std::int32_t kLargestWorld = 256;  // missing ranks cost time, and nothing else
  if (run.world_size > kLargestWorld) return;
  if (!verify::check_run_certificate(text, "fuzz", run)) return;
  LOCKSTEP_CHECK(!verify::proves_stuck(verify::verify(run)),
                 "what is proven to be safe is not proven stuck");
}

}  // namespace

void fuzz_certificate(std::string_view bytes) {
  std::vector<std::string_view> sections = sections_of(bytes);
  if (sections.empty()) return;
  const std::string_view given = sections.front();
  sections.erase(sections.begin());
  const std::string text = sealed(given);
  if (verify::certificate_kind(given) != verify::CertificateKind::program) {
    const trace::Run run = run_of_sections(sections);
    check_of_run(std::string(given), run);
    check_of_run(text, run);
    return;
  }
  const Result<trace::Derivation> derivation = small_derivation(sections);
  if (!derivation) return;
  const bool plain = static_cast<bool>(verify::check_certificate(given, "fuzz", *derivation));
  const bool accepted = static_cast<bool>(verify::check_certificate(text, "fuzz", *derivation));
  LOCKSTEP_CHECK(!plain || accepted, "a right seal is not what refuses");
  if (!accepted) return;
  const verify::ProductModel model(*derivation);
  LOCKSTEP_CHECK(verify::decide(model).verdict == verify::ProductVerdict::safe,
                 "what is accepted is safe");
}

}  // namespace lockstep
