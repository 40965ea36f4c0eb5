#include "verify/sequence.h"

namespace lockstep {

std::optional<Token> Sequence::ahead(std::size_t i) {
  if (i < size()) return token(i);
  if (!repetition_) repetition_ = find_repetition(size());
  if (*repetition_ == 0) return std::nullopt;
  Token t = token(size() - *repetition_ + (i - size()) % *repetition_);
  t.step = kNone;
  return t;
}

std::optional<Token> Sequence::habit(std::size_t i) {
  const std::size_t period = find_repetition(i);
  if (period == 0) return std::nullopt;
  Token t = token(i - period);
  t.step = kNone;
  return t;
}

bool Sequence::seen_before(std::size_t i, const Token& like) {
  for (std::size_t back = 1; back <= i && back <= kHistory; ++back) {
    const Token t = token(i - back);
    if (t.what == like.what && agreement_.agree(t.signature, like.signature)) return true;
  }
  return false;
}

bool Sequence::alike(std::size_t i, std::size_t j) {
  return call(i).what == call(j).what && agreement_.agree(call(i).signature, call(j).signature);
}

std::size_t Sequence::find_repetition(std::size_t end) {
  if (end < 2) return 0;
  const std::size_t last = end - 1;
  std::size_t weak = 0;
  for (std::size_t back = 1; back <= last && back <= kHistory; ++back) {
    if (!alike(last, last - back)) continue;
    if (weak == 0) weak = back;
    if (last >= back + 1 && alike(last - 1, last - back - 1)) return back;
  }
  return weak;
}

}  // namespace lockstep
