#include "verify/streams/sequence.h"

namespace lockstep::verify {

std::optional<Token> Sequence::ahead(std::size_t i) {
  if (i < size()) return token(i);
  if (!repetition_) repetition_ = find_repetition(size());
  if (*repetition_ == 0) return std::nullopt;
  const std::size_t rounds = (i - size()) / *repetition_ + 1;
  return repeated(i - rounds * *repetition_, rounds, *repetition_, size());
}

Token Sequence::repeated(std::size_t i, std::size_t rounds, std::size_t period,
                         std::size_t end) const {
  Token t = token(i);
  const std::int32_t now = call(end - 1).step;
  const std::int32_t before = call(end - 1 - period).step;
  // The step grows by as much in each round as it did in the last one.
  if (t.step != trace::kNone && now != trace::kNone && before != trace::kNone) {
    t.step += static_cast<std::int32_t>(rounds) * (now - before);
  }
  return t;
}

std::optional<Token> Sequence::habit(std::size_t i) {
  const std::size_t period = find_repetition(i);
  if (period == 0) return std::nullopt;
  return repeated(i - period, 1, period, i);
}

bool Sequence::seen_before(std::size_t i, const Token& like) {
  for (std::size_t back = 1; back <= i && back <= kHistory; ++back) {
    const Token t = token(i - back);
    if (t.what == like.what && agreement_.agree(t.signature, like.signature)) return true;
  }
  return false;
}

bool Sequence::seen_after(std::size_t i, const Token& like) {
  for (std::size_t j = i + 1; j < size() && j <= i + kHistory; ++j) {
    const Token t = token(j);
    if (t.what == like.what && agreement_.agree(t.signature, like.signature)) return true;
  }
  return false;
}

bool Sequence::alike(std::size_t i, std::size_t j) {
  const bool same_place =
      call(i).at == call(j).at || call(i).at.value == 0 || call(j).at.value == 0;
  return same_place && call(i).what == call(j).what &&
         agreement_.agree(call(i).signature, call(j).signature);
}

std::size_t Sequence::suffix(std::size_t last, std::size_t back) {
  std::size_t length = 0;
  while (length < kSuffix && last >= back + length) {
    const std::size_t i = last - length;
    // Steps advance at the same places, too.
    const bool in_step =
        call(last).step - call(i).step == call(last - back).step - call(i - back).step;
    if (!in_step || !alike(i, i - back)) break;
    ++length;
  }
  return length;
}

std::size_t Sequence::find_repetition(std::size_t end) {
  if (end < 2) return 0;
  const std::size_t last = end - 1;
  std::size_t best = 0;
  std::size_t longest = 0;
  for (std::size_t back = 1; back <= last && back <= kHistory && longest < kSuffix; ++back) {
    const std::size_t length = suffix(last, back);
    if (length <= longest) continue;
    longest = length;
    best = back;
  }
  return best;
}

std::optional<std::size_t> Sequence::distance_after(std::size_t end, const Token& first,
                                                    const Token& then) {
  const auto is = [&](const Token& a, const Token& b) {
    return a.what == b.what && agreement_.agree(a.signature, b.signature);
  };
  for (std::size_t back = 1; back <= end && back <= kHistory; ++back) {
    const std::size_t place = end - back;
    if (!is(token(place), first)) continue;
    for (std::size_t n = 1; n <= kNear && place + n < end; ++n) {
      if (is(token(place + n), then)) return n;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::verify
