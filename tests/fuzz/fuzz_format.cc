#include "tests/fuzz/fuzz_format.h"

#include <algorithm>
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
#include "verify/verify.h"

namespace lockstep {

namespace {

// Judging costs what the size of the world is, and that is one number in a file.
constexpr std::int32_t kLargestFormatWorld = 256;

// What `lockstep convert` writes, as text and for Chakra, is a trace that reads without damage.
void convert(const trace::RankTrace& trace, const trace::Tables& tables) {
  std::ostringstream out;
  trace::write_text_trace(out, trace, tables);
  trace::Tables again;
  const Result<trace::RankTrace> read = trace::read_text_trace(out.view(), "fuzz", again);
  LOCKSTEP_CHECK(read, "what was converted can be read");
  LOCKSTEP_CHECK(read->damaged_count == 0,
                 "what was converted reads without damage: " + read->damaged.front().message);
  const Result<std::string> chakra = trace::chakra_trace(trace, tables);
  if (!chakra) return;
  const auto ranks = trace::chakra_format().read(
      {*chakra, fmt::format("fuzz.{}.et", trace.rank.value), trace.rank, true}, again);
  LOCKSTEP_CHECK(ranks, "what was written for Chakra can be read");
}

}  // namespace

void check_text(const std::string& report) {
  LOCKSTEP_CHECK(!report.empty(), "every report says something");
  LOCKSTEP_CHECK(to_utf8(report) == report, "reports are UTF-8");
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
  for (const trace::RankTrace& trace : traces) {
    dump(trace, tables);
    convert(trace, tables);
  }
  fuzz_judging(trace::assemble_run(std::move(tables), std::move(traces)));
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
