// Characters that Unicode has added since the reference tokenizer's tables were made.
#pragma once

namespace lockstep {

// True for marks, punctuation and format characters that the Hugging Face tokenizers (whose tables
// are Unicode 8's) take for parts of words, as everything that they do not know. O(log n).
bool is_newer_than_reference(char32_t c);

}  // namespace lockstep
