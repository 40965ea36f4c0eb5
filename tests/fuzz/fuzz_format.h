// The way of foreign recordings through the program, from bytes to reports: the same for every
// format.
#pragma once

#include <string>
#include <string_view>

#include "trace/formats/format.h"

namespace lockstep {

// `bytes` as up to four files of that format, separated by two record separators (0x1E): read, put
// together as load_run does with several threads, linked, dumped (which follows every index and
// id), converted to text and Chakra and read again, and judged. `work`: TraceFile::work.
void fuzz_format(const trace::Format& format, std::string_view bytes, bool work = false);

// Judges the run, and writes the report as JSON. A world that is too large to be judged in a
// fuzzer's time is passed over.
void fuzz_judging(const trace::Run& run);

// Ends the program where the report is empty or no UTF-8.
void check_text(const std::string& report);

}  // namespace lockstep
