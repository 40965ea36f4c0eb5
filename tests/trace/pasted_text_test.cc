// Text that was quoted, coloured, or copied out of a web page.
#include "trace/pasted_text.h"

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "trace/load.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

TEST(PastedText, BecomesWhatItWas) {
  EXPECT_EQ(without_wrapping("> a\n>\n> > b\n>>> c\n>d\n"), "a\n\nb\nc\n>d\n");
  EXPECT_EQ(without_wrapping("\x1b[31ma\x1b[0m\r\nb"), "a\r\nb");
  EXPECT_EQ(without_wrapping("ranks:\xC2\xA0&lt;0&gt; &amp;gt; &quot;x&quot;"),
            "ranks: <0> &gt; \"x\"");
  EXPECT_EQ(without_wrapping("{&#x27;loss&#x27;: 1}\n"), "{'loss': 1}\n");
  EXPECT_EQ(without_wrapping("**ERROR: a**\r\n***\n**KeyError: b\n"),
            "ERROR: a\n***\nKeyError: b\n");
  EXPECT_EQ(without_wrapping("&gt; a\n&gt; b\n&gt; c &amp; d\n"), "a\nb\nc & d\n");
}

TEST(PastedText, OtherTextStaysAsItIs) {
  for (const std::string_view text :
       {"", "> building the data set\nstep 1\n> building\n", "http://a/?b&amp;c", "a\xC3\xA9\n",
        "a > b\na > c\na > d\n", "*****\n** 1\n"})
    EXPECT_EQ(without_wrapping(text), std::nullopt) << text;
  EXPECT_EQ(without_wrapping(std::string_view("\0\x1b[31m> a\n> b\n> c\n", 18)), std::nullopt);
}

std::string text_of_note(const std::string& bytes) {
  TempDir dir;
  dir.write("pasted.txt", bytes);
  LoadOptions options;
  options.evidence = true;
  const Result<Run> run = load_run({dir.path()}, options);
  if (!run) return run.error().str();
  return run->notes.empty() ? "" : run->notes[0].text;
}

TEST(PastedText, IsReadAsTheFileWouldBe) {
  EXPECT_THAT(text_of_note("Here is the stack:\n\n"
                           "> Thread 1 (Thread 0x7f02 (LWP 103) \"python\"):\n"
                           "> #0  0x00007f01 in poll () from /lib/libc.so.6\n"
                           "> #1  0x00007f02 in c10d::TCPStore::get () from /lib/libtorch.so\n"),
              HasSubstr("c10d::TCPStore::get"));
  EXPECT_EQ(text_of_note("&gt; Traceback (most recent call last):\n"
                         "&gt; \xC2\xA0 File &quot;t.py&quot;, line 1, in f\n"
                         "&gt; ValueError: a &lt; b\n"),
            "ValueError: a < b");
}

}  // namespace
}  // namespace lockstep::trace
