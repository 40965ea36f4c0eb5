// The classes of characters that a BERT tokenizer asks for, and its normalisation of text.
// Properties come from utf8proc (Unicode 15), but for what is newer than the reference's tables.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::runtime {

using CodePoints = std::u32string;

// Code points of `bytes`; each invalid byte becomes U+FFFD.
CodePoints decode_utf8(std::string_view bytes);
void append_utf8(char32_t code_point, std::string& to);

bool is_space(char32_t c);        // Unicode's White_Space without control characters
bool is_cjk(char32_t c);          // the ideographs that BERT splits one by one
bool is_punctuation(char32_t c);  // ASCII's symbols count, too
bool is_control(char32_t c);      // Cc, Cf, Co, Cs, but tab, line feed and carriage return

// BertNormalizer of the Hugging Face tokenizers (clean_text, handle_chinese_chars, strip_accents,
// lowercase): drops U+0000, U+FFFD and control characters, makes every space a blank, puts blanks
// around CJK ideographs, decomposes (NFD), drops non-spacing marks, lower-cases.
// O(n log n) at worst, in runs of combining marks.
CodePoints bert_normalized(const CodePoints& text);

// Characters that Unicode has added since the reference tokenizer's tables were made.

// True for marks, punctuation and format characters that the Hugging Face tokenizers (whose tables
// are Unicode 8's) take for parts of words, as everything that they do not know. O(log n).
bool is_newer_than_reference(char32_t c);

}  // namespace lockstep::runtime
