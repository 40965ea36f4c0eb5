// The certificate of a safe program: what check_certificate.py accepts or refuses.
//
// A JSON object, described in docs/certificates.md. It states what was examined (product.json, what
// was not recorded), the SHA-256 of every sequence, and for each situation an order of the step's
// collectives and messages that every sequence respects.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "trace/run.h"
#include "verify/product/decide.h"
#include "verify/product/evaluation.h"
#include "verify/product/sequence_table.h"

namespace lockstep::verify {

// Writes the certificate. `product`: the text of product.json, which becomes part of it; empty:
// product_text() of the specification. Errors: the decision is not `safe`, or no single order fits
// all assignments.
Result<std::string> write_certificate(const ProductModel& model, const ProductDecision& decision,
                                      const std::string& product = {});

// check_certificate.py, which `lockstep check-certificate` runs.
std::string_view certificate_checker();

// What certificates of programs and of recorded runs have in common.
class CertificateText {
 public:
  // Keeps a reference to `table`. The runs: all that it was read from.
  CertificateText(const SequenceTable& table, std::span<const trace::Run> runs);

  void claim(const std::string& name, nlohmann::ordered_json value);
  // What nobody recorded of how many calls, what the formats never record, the ranks whose waits
  // are missing.
  void claim_unrecorded(std::span<const trace::Run> runs, const std::vector<std::int32_t>& waits);
  // Claims that a rank makes this sequence in the part.
  void sequence(const std::string& part, std::int32_t rank, SequenceId sequence);
  // An order of the instances of a situation that all choices respect. Requires that there is one.
  // O(items of the distinct sequences).
  void order(const std::string& situation, const Evaluation& evaluation, bool device);
  std::string text() const;

 private:
  std::string channel_name(const ProductChannel& channel) const;
  const std::string& digest(SequenceId sequence);

  const SequenceTable& table_;
  std::map<std::string, trace::RankList> groups_;
  std::int32_t world_size_ = 0;
  std::vector<std::string> channels_;        // names, by ChannelId
  std::vector<nlohmann::json> shared_keys_;  // as SequenceTable::shared_keys
  std::map<SequenceId, std::string> digests_;
  nlohmann::ordered_json claims_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json sequences_ = nlohmann::ordered_json::object();  // by part and digest
  nlohmann::ordered_json orders_ = nlohmann::ordered_json::object();     // by situation
};

}  // namespace lockstep::verify
