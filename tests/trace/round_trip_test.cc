// The text form, written: what it looks like, and that reading it back gives the same trace.
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/random_trace.h"
#include "tests/support/trace_dump.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep::trace {
namespace {

std::string written(const RankTrace& trace, const Tables& tables) {
  std::ostringstream out;
  write_text_trace(out, trace, tables);
  return out.str();
}

// Reads `text` and writes it again.
std::string rewritten(const std::string& text) {
  Tables tables;
  const Result<RankTrace> trace = read_text_trace(text, "t", tables);
  EXPECT_TRUE(trace);
  return trace ? written(*trace, tables) : "";
}

TEST(TextWriter, WritesTheKeysOfTheFormatInItsOrder) {
  const std::string text =
      R"({"header":1,"rank":0,"world_size":2,"backend":"gloo","clock":"ns","host":"h","pid":7,"program":"p","dropped":3,"semantics":"mpi"}
{"group":"world","ranks":[0,1],"desc":"all"}
{"ev":"issue","id":0,"g":"world","op":"all_reduce","t":5,"in":[[4],[]],"out":[[4]],"count":3,"dtype":"float32","redop":"sum","root":1,"peer":1,"ptag":-1,"mode":"sync","splits_in":[1],"splits_out":[2],"async":true,"coalesced":1,"stream":"s","thread":2,"what":["w"],"at":"a:1","step":0,"tag":"x","hash":"000000000000009f","sketch":[0.1,-2]}
{"ev":"complete","id":0,"t":6,"from":1,"fromtag":2}
{"ev":"exception","what":"boom","id":0,"t":7}
{"ev":"step","n":1,"loss":0.1,"samples":2,"t":8}
{"ev":"state","n":1,"name":"w","hash":"0000000000000001","norm":1e+300,"shape":[2],"dtype":"float32","kind":"buffer","when":"synced","sharded":true,"sketch":[1]}
{"ev":"data","n":1,"indices":[1,2]}
{"ev":"modality","n":1,"has":["image","text"]}
{"ev":"span","name":"f","dur":3,"stream":"c","t":9}
{"end":"hung"}
)";
  EXPECT_EQ(rewritten(text), text);
}

// A copy of another format says what only that format tells.
TEST(TextWriter, WritesWhatACopyKeepsOfItsOriginal) {
  const std::string text =
      R"({"header":1,"rank":0,"world_size":2,"clock":"ns","dropped":3,"converted":"flight-recorder","snapshot":true,"sized":false,"first_number":1,"created":0,"ends_of_waits":true,"longest_open":5,"longest_completed":0,"unrecorded":[1,2],"open_ended":true,"inconclusive":"why","conflicts":["a"],"damaged":3,"damage":["b"],"progress":["world"],"enqueued":[9],"started":[-1],"completed":[8]}
{"group":"world","ranks":[0,1]}
{"ev":"issue","id":0,"g":"world","op":"all_reduce","seq":7}
{"ev":"issue","id":1,"g":"world","op":"all_reduce"}
{"end":"hung"}
)";
  EXPECT_EQ(rewritten(text), text);
  Tables tables;
  const Result<RankTrace> trace = read_text_trace(text, "t", tables);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->world_size, kNone);
  EXPECT_EQ(trace->damaged_count, 3U);
  EXPECT_EQ(trace->calls[1].seq, 8U);
  EXPECT_EQ(trace->first_seq.at(trace->calls[0].group), 7U);
}

TEST(TextWriter, WhatWasCutOffGetsNoEndMark) {
  EXPECT_EQ(rewritten("{\"header\":1,\"rank\":0,\"world_size\":1}"),
            "{\"header\":1,\"rank\":0,\"world_size\":1,\"clock\":\"ns\"}\n");
}

TEST(TextWriter, WritesInvalidUtf8AndNanAsValidJson) {
  Tables tables;
  RankTrace trace;
  trace.rank = Rank(0);
  trace.world_size = 1;
  trace.program = "a\xFF\"\x1F";
  trace.steps.push_back({1, std::numeric_limits<double>::quiet_NaN(), std::nullopt});
  trace.events.push_back({kNoTime, 0, EventKind::step});
  EXPECT_EQ(written(trace, tables),
            "{\"header\":1,\"rank\":0,\"world_size\":1,\"clock\":\"ns\","
            "\"program\":\"a\uFFFD\\\"\\u001f\"}\n{\"ev\":\"step\",\"n\":1}\n");
}

TEST(RoundTrip, RandomTracesComeBackEqual) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Tables tables;
    const RankTrace trace = random_trace(seed, tables);
    Tables other_tables;
    const Result<RankTrace> again = read_text_trace(written(trace, tables), "t", other_tables);
    ASSERT_TRUE(again) << again.error().str();
    ASSERT_EQ(dump(*again, other_tables), dump(trace, tables));
  }
}

// A file that was cut off anywhere still gives all whole lines before the cut.
TEST(RoundTrip, CutAtEveryByte) {
  Tables tables;
  std::string text;
  for (std::uint32_t seed = 0; text.size() < 3000; ++seed) {
    text = written(random_trace(seed, tables), tables);
  }
  const std::size_t header = text.find('\n');
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    SCOPED_TRACE("cut at " + std::to_string(cut));
    Tables cut_tables;
    const Result<RankTrace> trace =
        read_text_trace(std::string_view(text).substr(0, cut), "t", cut_tables);
    ASSERT_EQ(static_cast<bool>(trace), cut >= header);
    if (!trace) continue;
    const bool between_lines = text[cut] == '\n' || (cut > 0 && text[cut - 1] == '\n');
    ASSERT_EQ(trace->damaged_count, between_lines ? 0U : 1U);
  }
}

TEST(RoundTrip, WhatIsReadFromFlippedBitsIsConsistent) {
  Tables tables;
  const std::string text = written(random_trace(7, tables), tables).substr(0, 2000);
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    Tables fresh;
    const Result<RankTrace> trace = read_text_trace(flipped, "t", fresh);
    if (!trace) continue;  // the header was hit
    Tables again_tables;
    const Result<RankTrace> again = read_text_trace(written(*trace, fresh), "t", again_tables);
    ASSERT_TRUE(again) << "bit " << bit;
    ASSERT_EQ(again->damaged_count, 0U) << "bit " << bit;
  }
}

}  // namespace
}  // namespace lockstep::trace
