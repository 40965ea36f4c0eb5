// Any bytes as a derivation (fuzz_derivation.h): whatever was read can be decided and reported, and
// what is said to be safe has a certificate that the checker accepts.
#include "base/check.h"
#include "reports/findings/product_text.h"
#include "tests/fuzz/fuzz_derivation.h"
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "verify/certificates/certificate.h"
#include "verify/checker/check_certificate.h"
#include "verify/product/decide.h"

namespace lockstep {

void fuzz_product(std::string_view bytes) {
  const std::vector<std::string_view> sections = sections_of(bytes);
  if (!sections.empty()) {
    if (const auto spec = parse_product(sections.front(), "fuzz")) {
      const auto again = parse_product(product_text(*spec), "fuzz");
      LOCKSTEP_CHECK(again && product_text(*again) == product_text(*spec),
                     "what was read can be written");
    }
  }
  const Result<Derivation> derivation = small_derivation(sections);
  if (!derivation) {
    LOCKSTEP_CHECK(!derivation.error().message.empty(), "an error says what is wrong");
    return;
  }
  const ProductModel model(*derivation);
  const ProductDecision decision = decide(model);
  check_text(product_text_report(model, decision));
  const Result<std::string> text = write_certificate(model, decision);
  if (!text) return;
  LOCKSTEP_CHECK(decision.verdict == ProductVerdict::safe, "only safe programs have a certificate");
  LOCKSTEP_CHECK(check_certificate(*text, "fuzz", *derivation), "a certificate is accepted");
}

}  // namespace lockstep
