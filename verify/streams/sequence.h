// Sequence: one class's calls in one group, continued beyond its end by what followed the last time
// the same calls came by. Training repeats itself: what a rank would have called next, had it not
// hung, is what it called then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "trace/run.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

// What is compared of a call.
struct Token {
  trace::SignatureId signature;
  trace::NameListId what;
  std::int32_t step = trace::kNone;
};

class Sequence {
 public:
  static constexpr std::size_t kHistory = 4096;  // calls looked back, or far ahead
  static constexpr std::size_t kSuffix = 64;     // calls by which two places are compared
  static constexpr std::size_t kNear = 16;       // calls between two that belong together

  // Keeps references to all three.
  Sequence(const trace::Run& run, const Stream& stream, Agreement& agreement)
      : calls_(run.ranks[stream.rank_index].calls), stream_(stream), agreement_(agreement) {}

  std::uint32_t rank_index() const { return stream_.rank_index; }
  std::size_t size() const { return stream_.calls.size(); }
  Token token(std::size_t i) const {
    const trace::Call& c = call(i);
    return {c.signature, c.what, c.step};
  }

  // The call at i; beyond the end the call that is expected there.
  std::optional<Token> ahead(std::size_t i);

  // What the sequence's own past says should come at i; nothing where it has no such past.
  std::optional<Token> habit(std::size_t i);

  // Whether a call like this one comes before i.
  bool seen_before(std::size_t i, const Token& like);

  // Whether a call like this one comes after i.
  bool seen_after(std::size_t i, const Token& like);

  // How far behind a call like `first` one like `then` came, the last time that it came within a
  // few calls, before `end`.
  std::optional<std::size_t> distance_after(std::size_t end, const Token& first, const Token& then);

 private:
  const trace::Call& call(std::size_t i) const { return calls_[stream_.calls[i]]; }
  // By operation, size, parameters and source line.
  bool alike(std::size_t i, std::size_t j);
  // The call at i as it comes again so many rounds of `period` calls later; the rounds are those up
  // to `end`.
  Token repeated(std::size_t i, std::size_t rounds, std::size_t period, std::size_t end) const;
  // How many calls up to `last` look like those up to `last - back`.
  std::size_t suffix(std::size_t last, std::size_t back);
  // The distance to the earlier place whose calls look most like those up to `end`; 0: none.
  std::size_t find_repetition(std::size_t end);

  const std::vector<trace::Call>& calls_;
  const Stream& stream_;
  Agreement& agreement_;
  std::optional<std::size_t> repetition_;  // behind the end, once asked for
};

}  // namespace lockstep::verify
