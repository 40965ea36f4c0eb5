// The bodies of digests, with a checksum that fits them: without one, nothing else is ever read.
#include <string>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "tests/support/trace_dump.h"
#include "trace/formats/digest/digest.h"
#include "trace/load.h"

namespace lockstep {

void fuzz_digest(std::string_view bytes) {
  const std::string body(bytes);
  const std::string file = "LKSDIG01" + sha256(body) + body;
  trace::Tables tables;
  Result<trace::Recording> read =
      trace::digest_format().read_recording({file, "fuzz.digest", {}}, tables);
  if (!read) {
    LOCKSTEP_CHECK(!read.error().message.empty(), "an error says what is wrong");
    return;
  }
  for (const trace::RankTrace& trace : read->traces) dump(trace, tables);
  // What was read is a digest's content: it can be written, and reads as the same again.
  const std::string name(read->format->name);
  const std::string written =
      trace::write_digest(read->traces, tables, {name, read->unreadable}).bytes;
  trace::Tables others;
  const Result<trace::ReadDigest> again = trace::read_digest(written, "again", others);
  LOCKSTEP_CHECK(again, "what was written can be read");
  LOCKSTEP_CHECK(trace::write_digest(again->traces, others, again->origin).bytes == written,
                 "and is the same");
  if (read->format->link != nullptr) read->format->link(read->traces, tables);
  fuzz_judging(trace::assemble_run(std::move(tables), std::move(read->traces)));
}

}  // namespace lockstep
