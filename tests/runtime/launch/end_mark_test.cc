#include "runtime/launch/run_folder.h"
#include "tests/runtime/launch/launch_testing.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::runtime {
namespace {

trace::End end_after_mark(const TempDir& folder, trace::End before) {
  trace::RingWriter::Options options;
  options.path = folder.file("rank_0.ring");
  auto ring = trace::RingWriter::create(options);
  if (before != trace::End::cut) (*ring)->finish(before);
  EXPECT_TRUE(mark_ended(options.path, trace::End::killed));
  return trace::RingTail::open(options.path)->end();
}

TEST(EndMark, is_written_where_there_is_none) {
  EXPECT_EQ(end_after_mark(TempDir(), trace::End::cut), trace::End::killed);
}

TEST(EndMark, tells_an_interruption_from_a_kill) {
  const TempDir folder;
  trace::RingWriter::Options options;
  options.path = folder.file("rank_0.ring");
  (void)trace::RingWriter::create(options);
  EXPECT_TRUE(mark_ended(options.path, trace::End::interrupted));
  EXPECT_EQ(trace::RingTail::open(options.path)->end(), trace::End::interrupted);
}

TEST(EndMark, that_the_worker_wrote_itself_stays) {
  EXPECT_EQ(end_after_mark(TempDir(), trace::End::clean), trace::End::clean);
  EXPECT_EQ(end_after_mark(TempDir(), trace::End::hung), trace::End::hung);
}

TEST(EndMark, is_not_written_into_other_files) {
  const TempDir folder;
  EXPECT_FALSE(mark_ended(folder.file("none"), trace::End::killed));
  const std::string text(8192, 'x');
  std::ofstream(folder.file("text")) << text;
  EXPECT_FALSE(mark_ended(folder.file("text"), trace::End::killed));
  EXPECT_EQ(TempDir::read(folder.file("text")), text);
  std::ofstream(folder.file("short")) << "LKSRING1";
  EXPECT_FALSE(mark_ended(folder.file("short"), trace::End::killed));
}

}  // namespace
}  // namespace lockstep::runtime
