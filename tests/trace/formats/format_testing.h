// Runs from inline recordings of a foreign format, and what is said of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/trace_dump.h"
#include "trace/formats/format.h"
#include "trace/load.h"
#include "verify/rules/rules.h"
#include "verify/verify.h"

namespace lockstep::trace {

struct NamedFile {
  std::string name;
  std::string bytes;
};

inline TraceFile trace_file(const NamedFile& file) {
  return {file.bytes, file.name, rank_in_name(file.name)};
}

// What load_run makes of files with these contents: every one read, then all linked. A file that
// cannot be read fails the test.
inline Run run_of(const Format& format, const std::vector<NamedFile>& files) {
  Tables tables;
  std::vector<RankTrace> traces;
  for (const NamedFile& file : files) {
    Result<std::vector<RankTrace>> read = format.read(trace_file(file), tables);
    if (!read) {
      ADD_FAILURE() << read.error().str();
      continue;
    }
    for (RankTrace& trace : *read) traces.push_back(std::move(trace));
  }
  if (format.link != nullptr) format.link(traces, tables);
  return assemble_run(std::move(tables), std::move(traces));
}

// A report in short: the verdict, then a line per error or warning:
// "missing-collective world#3 by 2 (all_reduce)".
inline std::string judged(const Run& run) {
  const verify::Report report = verify::verify(run);
  std::string out(verify::to_string(report.verdict));
  for (const verify::Finding& finding : report.findings) {
    if (finding.severity == verify::Severity::note) continue;
    out += "\n" + std::string(verify::rule(finding.rule).name) + " " + finding.group;
    if (finding.seq) out += "#" + std::to_string(*finding.seq);
    out += " by";
    for (const Rank rank : finding.culprits) out += " " + std::to_string(rank.value);
  }
  return out;
}

// Reads, links, judges and dumps whatever comes of the bytes; errors are fine, crashes are not.
inline void digest(const Format& format, std::string_view bytes) {
  Tables tables;
  Result<std::vector<RankTrace>> read = format.read({bytes, "damaged_rank_0", Rank(0)}, tables);
  if (!read) {
    EXPECT_FALSE(read.error().message.empty());
    return;
  }
  if (format.link != nullptr) format.link(*read, tables);
  for (const RankTrace& trace : *read) lockstep::dump(trace, tables);
  verify::verify(assemble_run(std::move(tables), std::move(*read)));
}

// The file cut off at every byte, and with every bit flipped.
inline void survives_damage(const Format& format, const std::string& bytes) {
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    // A copy of that size, so that reading past it is seen.
    const std::string cut(bytes.data(), length);
    format.recognises(cut);
    digest(format, cut);
  }
  std::string damaged = bytes;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      damaged[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      digest(format, damaged);
    }
    damaged[at] = bytes[at];
  }
}

}  // namespace lockstep::trace
