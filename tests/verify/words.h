// Programs as words, a letter an operation, for tests that try all of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::verify {

// All words over the letters of at most that length, the empty one first, shorter ones first.
inline std::vector<std::string> words_over(const std::string& letters, std::size_t longest) {
  std::vector<std::string> out = {""};
  std::size_t first = 0;
  for (std::size_t n = 0; n < longest; ++n) {
    const std::size_t last = out.size();
    for (std::size_t i = first; i < last; ++i) {
      for (const char c : letters) out.push_back(out[i] + c);
    }
    first = last;
  }
  return out;
}

}  // namespace lockstep::verify
