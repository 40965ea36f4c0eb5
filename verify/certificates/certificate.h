// The certificate of a safe program: the witness that check_certificate() accepts or refuses.
//
// A text with one statement per line, described in docs/certificates.md. It states what was
// examined (conditions, constraint, histories, assumptions), the SHA-256 of every sequence, the
// calls of all members on each channel in each situation, and an order of the step's collectives
// and messages that every sequence respects.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "verify/product/decide.h"
#include "verify/product/evaluation.h"
#include "verify/product/sequence_table.h"

namespace lockstep::verify {

// Writes the certificate. Errors: the decision is not `safe`, or no single order fits all
// assignments.
Result<std::string> write_certificate(const ProductModel& model, const ProductDecision& decision);

// The lines that certificates of programs and of recorded runs have in common; docs/certificates.md
// describes them. A text grows line by line and is sealed by its digest.

// A name as one word: all but letters, digits and a few signs as %XX.
std::string certificate_word(const std::string& text);

// For comma_list(); std::to_string() has overloads.
inline std::string number_text(std::int64_t n) { return std::to_string(n); }

// Items with commas between them; "-": none.
template <class List, class Show>
std::string comma_list(const List& list, Show show) {
  std::string out;
  for (const auto& item : list) out += (out.empty() ? "" : ",") + show(item);
  return out.empty() ? "-" : out;
}

class CertificateText {
 public:
  // Keeps a reference to `table`.
  explicit CertificateText(const SequenceTable& table);

  void line(const std::string& text) { out_ += text + "\n"; }
  // Members in group order, as the ranks declare them.
  void groups(std::span<const trace::Run> runs);
  // SHA-256 of a sequence's canonical text. O(its items), the first time.
  const std::string& digest(std::uint32_t sequence);
  // The calls of all ranks on each channel (`agree` lines), and an order of the instances that all
  // choices respect (`meet` lines). Requires that there is one. O(items of the distinct sequences).
  void meetings(const Evaluation& evaluation, bool device);
  // The text with its last line.
  std::string sealed() &&;

 private:
  static std::string channel_name(const ProductChannel& channel);

  const SequenceTable& table_;
  std::vector<std::string> keys_, channels_;
  std::map<std::uint32_t, std::string> digests_;  // by sequence
  std::string out_;
};

}  // namespace lockstep::verify
