// Evidence from inline files.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "trace/evidence/evidence.h"

namespace lockstep::trace {

// One line per note: "rank 3 out of memory @12: torch.OutOfMemoryError: …".
inline std::string notes_in_words(const FileEvidence& evidence) {
  std::string out;
  for (const RankNote& note : evidence.notes) {
    out += out.empty() ? "" : "\n";
    out += note.rank.value == kNone ? "some rank" : "rank " + std::to_string(note.rank.value);
    if (note.pid != kNone) out += " pid " + std::to_string(note.pid);
    if (!note.host.empty()) out += " on " + note.host;
    if (note.gpu != kNone) out += " GPU " + std::to_string(note.gpu);
    out += " " + std::string(to_string(note.kind)) + " @" + std::to_string(note.location.line) +
           ": " + note.text;
  }
  return out;
}

inline std::string notes_of(const EvidenceSource& source, std::string_view bytes,
                            std::optional<Rank> rank = std::nullopt) {
  EXPECT_TRUE(source.recognises(bytes, "some_file")) << bytes;
  return notes_in_words(source.read({bytes, "some_file", rank}));
}

// A traceback as Python writes it: four lines.
inline const std::string kLoggedTraceback =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 12, in <module>\n"
    "    main()\n"
    "ValueError: no more batches\n";

// The notes of ranks' output.
inline std::string read_log(const std::string& text) { return notes_of(rank_log_source(), text); }

// `text` with the label before each line.
inline std::string labelled(const std::string& label, const std::string& text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    out += label + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

// The file cut off at every byte, and with every bit flipped: anything may be read, nothing breaks.
inline void survives_damage(const EvidenceSource& source, const std::string& bytes) {
  const auto read = [&](const std::string& text) {
    source.recognises(text, "f");
    const FileEvidence evidence = source.read({text, "f", Rank(1)});
    EXPECT_LE(evidence.notes.size(), FileEvidence::kMaxNotes);
    for (const RankNote& note : evidence.notes) {
      EXPECT_LE(note.text.size(), RankNote::kLongest);
      EXPECT_GE(note.rank.value, kNone);
    }
  };
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    read(std::string(bytes.data(), length));
  }
  std::string damaged = bytes;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      damaged[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      read(damaged);
    }
    damaged[at] = bytes[at];
  }
}

}  // namespace lockstep::trace
