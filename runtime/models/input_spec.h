// What goes into a model: the size of its pictures, and its sentences' tokens.
#pragma once

#include <cstdint>

namespace lockstep {

struct InputSpec {
  std::int64_t side = 0;        // pixels of a (square) picture
  std::int64_t vocabulary = 0;  // token ids are below it
  std::int64_t max_tokens = 0;  // of a sentence, with its first and last special token
  std::int64_t pad = 0;         // behind the end
  std::int64_t end = 0;         // the last token of each sentence
  std::int64_t mask = 0;        // stands for a word that is to be guessed
};

}  // namespace lockstep
