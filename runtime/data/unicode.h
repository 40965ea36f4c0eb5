// Character classes that a BERT tokenizer needs, and its text normalisation. Properties are those
// of utf8proc (Unicode 15), except characters that are newer than the reference's tables.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::runtime {

using CodePoints = std::u32string;

// Code points of `bytes`; each invalid byte becomes U+FFFD.
CodePoints decode_utf8(std::string_view bytes);
void append_utf8(char32_t code_point, std::string& to);

bool is_space(char32_t c);        // Unicode's White_Space without control characters
bool is_punctuation(char32_t c);  // ASCII's symbols count, too
bool is_control(char32_t c);      // Cc, Cf, Co, Cs, but tab, line feed and carriage return

// BertNormalizer of the Hugging Face tokenizers (clean_text, handle_chinese_chars, strip_accents,
// lowercase): drops U+0000, U+FFFD and control characters, turns every space into a blank, puts
// blanks around CJK ideographs, decomposes (NFD), drops non-spacing marks, lower-cases. "Café, 中"
// → "cafe,  中 ". O(n log n) in the worst case, for runs of combining marks.
CodePoints bert_normalized(const CodePoints& text);

}  // namespace lockstep::runtime
