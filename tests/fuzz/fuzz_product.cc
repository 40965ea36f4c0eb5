// Any bytes as a derivation (fuzz_derivation.h): whatever was read can be decided and reported, and
// only what is safe has a certificate.
#include "base/check.h"
#include "reports/findings/product_text.h"
#include "tests/fuzz/fuzz_derivation.h"
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "verify/certificates/certificate.h"
#include "verify/product/decide.h"

namespace lockstep {

void fuzz_product(std::string_view bytes) {
  const std::vector<std::string_view> sections = sections_of(bytes);
  if (!sections.empty()) {
    if (const auto spec = trace::parse_product(sections.front(), "fuzz")) {
      const auto again = trace::parse_product(trace::product_text(*spec), "fuzz");
      LOCKSTEP_CHECK(again && trace::product_text(*again) == trace::product_text(*spec),
                     "what was read can be written");
    }
  }
  const Result<trace::Derivation> derivation = small_derivation(sections);
  if (!derivation) {
    LOCKSTEP_CHECK(!derivation.error().message.empty(), "an error says what is wrong");
    return;
  }
  const verify::ProductModel model(*derivation);
  const verify::ProductDecision decision = verify::decide(model);
  check_text(reports::product_text_report(model, decision));
  const Result<std::string> text = verify::write_certificate(model, decision);
  if (!text) return;
  LOCKSTEP_CHECK(decision.verdict == verify::ProductVerdict::safe,
                 "only safe programs have a certificate");
}

}  // namespace lockstep
