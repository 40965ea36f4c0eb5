#include "tests/fuzz/fuzz_format.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"
#include "reports/findings/reports.h"
#include "tests/fuzz/targets.h"
#include "tests/support/trace_dump.h"
#include "trace/formats/chakra/writer.h"
#include "trace/formats/format.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"
#include "trace/run.h"
#include "verify/rules/rules.h"
#include "verify/verify.h"

namespace lockstep {

namespace {

// Judging costs what the size of the world is, and that is one number in a file.
constexpr std::int32_t kLargestFormatWorld = 256;

// What `lockstep convert` writes as text is a trace that reads as it was written, with the damage
// of the original and no other.
trace::RankTrace copy_as_text(trace::RankTrace trace, const trace::Tables& tables,
                              const trace::Format& format, trace::Tables& of_copy) {
  trace.converted_from = format.name;
  std::ostringstream out;
  trace::write_text_trace(out, trace, tables);
  Result<trace::RankTrace> read = trace::read_text_trace(out.view(), trace.source, of_copy);
  LOCKSTEP_CHECK(read, "what was converted can be read");
  LOCKSTEP_CHECK(read->damaged_count == trace.damaged_count,
                 "what was converted reads without damage: " + read->damaged.back().message);
  return std::move(*read);
}

// What is written for Chakra can be read.
void convert_to_chakra(const trace::RankTrace& trace, const trace::Tables& tables) {
  trace::Tables again;
  const Result<std::string> chakra = trace::chakra_trace(trace, tables);
  if (!chakra) return;
  const auto ranks = trace::chakra_format().read(
      {*chakra, fmt::format("fuzz.{}.et", trace.rank.value), trace.rank, true}, again);
  LOCKSTEP_CHECK(ranks, "what was written for Chakra can be read");
}

// What a report says, without the places in files.
std::string gist(const verify::Report& report) {
  std::string out(to_string(report.verdict));
  for (const verify::Finding& f : report.findings) {
    out += fmt::format("\n{} {} {} in {}, seq {}: {}: {}; by", verify::rule(f.rule).name,
                       to_string(f.severity), to_string(f.certainty), f.group,
                       f.seq.value_or(UINT64_MAX), f.headline, f.message);
    for (const trace::Rank rank : f.culprits) out += fmt::format(" {}", rank.value);
  }
  return out;
}

// Verifying a copy must say the same as verifying the original.
void check_copy(const trace::Run& run, const trace::Run& copy) {
  if (run.world_size > kLargestFormatWorld) return;
  const std::string original = gist(verify::verify(run));
  const std::string copied = gist(verify::verify(copy));
  LOCKSTEP_CHECK(original == copied,
                 "a copy says the same: " + original + "\n--- the copy:\n" + copied);
}

}  // namespace

void check_text(const std::string& report) {
  LOCKSTEP_CHECK(!report.empty(), "every report says something");
  LOCKSTEP_CHECK(is_utf8(report), "reports are UTF-8");
}

void fuzz_judging(const trace::Run& run) {
  if (run.world_size > kLargestFormatWorld) return;
  check_text(reports::json_report(verify::verify(run)));
}

void fuzz_format(const trace::Format& format, std::string_view bytes, bool work) {
  constexpr std::string_view kSeparator = "\x1e\x1e";
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (std::int32_t rank = 0; rank < 4 && !bytes.empty(); ++rank) {
    const std::size_t length = bytes.find(kSeparator);
    // A copy of that size: reading past its end is seen.
    const std::string file(bytes.substr(0, length));
    bytes.remove_prefix(length == std::string_view::npos ? bytes.size()
                                                         : length + kSeparator.size());
    format.recognises(file);
    trace::recognise(file);
    trace::Tables own;
    auto read =
        format.read({file, "fuzz_rank_" + std::to_string(rank), trace::Rank(rank), work}, own);
    if (!read) {
      LOCKSTEP_CHECK(!read.error().message.empty(), "an error says what is wrong");
      continue;
    }
    trace::move_to_tables(tables, own, *read);
    std::move(read->begin(), read->end(), std::back_inserter(traces));
  }
  if (format.link != nullptr) format.link(traces, tables);
  std::vector<trace::RankTrace> copies;
  trace::Tables of_copies;
  for (const trace::RankTrace& trace : traces) {
    dump(trace, tables);
    convert_to_chakra(trace, tables);
    copies.push_back(copy_as_text(trace, tables, format, of_copies));
  }
  const trace::Run run = trace::assemble_run(std::move(tables), std::move(traces));
  fuzz_judging(run);
  check_copy(run, trace::assemble_run(std::move(of_copies), std::move(copies)));
}

// Flight Recorder dumps, pickle and JSON.
void fuzz_flight_recorder(std::string_view bytes) {
  fuzz_format(trace::flight_recorder_format(), bytes);
}

// Profiles of torch.profiler.
void fuzz_kineto(std::string_view bytes) {
  fuzz_format(trace::kineto_format(), bytes);
  fuzz_format(trace::kineto_format(), bytes, /*work=*/true);
}

// Reports of Nsight Systems.
void fuzz_nsys(std::string_view bytes) {
  fuzz_format(trace::nsys_format(), bytes);
  fuzz_format(trace::nsys_format(), bytes, /*work=*/true);
}

// Chakra execution traces.
void fuzz_chakra(std::string_view bytes) {
  fuzz_format(trace::chakra_format(), bytes);
  fuzz_format(trace::chakra_format(), bytes, /*work=*/true);
}

// NCCL's logs.
void fuzz_nccl_log(std::string_view bytes) { fuzz_format(trace::nccl_log_format(), bytes); }

// Messages of PyTorch's NCCL watchdog.
void fuzz_watchdog_log(std::string_view bytes) { fuzz_format(trace::watchdog_log_format(), bytes); }

// PyTorch's DETAIL messages.
void fuzz_detail_log(std::string_view bytes) { fuzz_format(trace::detail_log_format(), bytes); }

// PyTorch's execution traces.
void fuzz_execution_trace(std::string_view bytes) {
  fuzz_format(trace::execution_trace_format(), bytes);
}

// torchcomms' collective log.
void fuzz_clog(std::string_view bytes) { fuzz_format(trace::clog_format(), bytes); }

}  // namespace lockstep
