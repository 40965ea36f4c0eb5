// Any bytes as a vocabulary and a text after it, with "\x1e\x1e" between them; without, as a text
// for a small vocabulary.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "runtime/data/wordpiece.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

namespace {

constexpr std::string_view kSeparator = "\x1e\x1e";
constexpr std::string_view kSmall =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nab\n##a\n##b\n##ing\ntest\n."
    "\n\xc3\x9f\n\xe4\xb8\xad";

void check_ids(const runtime::Vocabulary& vocabulary, const std::vector<runtime::TokenId>& ids,
               std::size_t most) {
  LOCKSTEP_CHECK(ids.size() >= 2 && ids.size() <= most, "from [CLS] to [SEP], within the limit");
  LOCKSTEP_CHECK(
      ids.front() == vocabulary.special().start && ids.back() == vocabulary.special().end,
      "[CLS] first, [SEP] last");
  for (const runtime::TokenId id : ids) {
    LOCKSTEP_CHECK(id >= 0 && static_cast<std::size_t>(id) < vocabulary.size(),
                   "ids are indices in the vocabulary");
  }
}

}  // namespace

void fuzz_wordpiece(std::string_view bytes) {
  constexpr std::size_t kShort = 6;
  const std::size_t at = bytes.find(kSeparator);
  const bool own = at != std::string_view::npos;
  const std::string text(own ? bytes.substr(at + kSeparator.size()) : bytes);
  Result<runtime::Vocabulary> vocabulary =
      runtime::Vocabulary::parse(std::string(own ? bytes.substr(0, at) : kSmall), "fuzz");
  if (!vocabulary) {
    LOCKSTEP_CHECK(!vocabulary.error().message.empty(), "an error says what is wrong");
    return;
  }
  const runtime::WordPiece tokenizer(std::move(*vocabulary));
  const auto all = tokenizer.encode(text, runtime::kLargestMaxLength);
  const auto few = tokenizer.encode(text, kShort);
  check_ids(tokenizer.vocabulary(), all, runtime::kLargestMaxLength);
  check_ids(tokenizer.vocabulary(), few, kShort);
  LOCKSTEP_CHECK(std::equal(few.begin(), few.end() - 1, all.begin()), "cutting cuts only");
}

}  // namespace lockstep
