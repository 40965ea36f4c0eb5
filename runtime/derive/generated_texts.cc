#include "runtime/derive/generated_texts.h"

namespace lockstep::runtime {

std::vector<GeneratedTexts> generated_texts(const Scenario& s) {
  const Scenario::Train::Generate& generate = s.train.generate;
  std::vector<std::int64_t> after;  // which steps; empty: each
  for (std::int64_t step = 0; step < s.train.steps && generate.every > 1; ++step) {
    if (s.generates_after(step)) after.push_back(step);
  }
  if (generate.every == 0 || (generate.every > 1 && after.empty())) return {{{}, {}, {}}};
  std::vector<GeneratedTexts> out;
  if (generate.synced) {
    const auto longest = [&](std::int64_t step) {
      int most = 0;
      for (int rank = 0; rank < s.ranks; ++rank)
        most = std::max(most, s.generated_tokens(rank, step));
      return most;
    };
    std::set<std::int64_t> named(after.begin(), after.end());
    for (const auto& end : generate.ends) {
      for (const std::int64_t step : end.steps) {
        if (s.generates_after(step)) named.insert(step);
      }
    }
    for (const std::int64_t step : named) out.push_back({{}, {step}, longest(step)});
    if (after.empty()) out.push_back({{}, {}, longest(s.train.steps)});  // which no rule names
  } else {
    for (const auto& end : generate.ends) {
      if (auto steps = in_both(end.steps, after))
        out.push_back({end.ranks, std::move(*steps), end.after});
    }
    out.push_back({{}, after, generate.tokens});
  }
  if (!after.empty()) out.push_back({{}, {}, {}});
  return out;
}

std::set<Tokens> lengths_of(const std::vector<GeneratedTexts>& texts) {
  std::set<Tokens> out;
  for (const GeneratedTexts& it : texts) out.insert(it.tokens);
  return out;
}

}  // namespace lockstep::runtime
