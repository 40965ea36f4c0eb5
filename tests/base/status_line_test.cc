#include "base/status_line.h"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(StatusLine, OnATerminalEachTextOverwritesTheLastAndTheEndErasesIt) {
  std::ostringstream out;
  {
    StatusLine line(out, 80, {});
    line.show("1 of 2", 0);
    line.show("2 of 2", 1);
  }
  EXPECT_EQ(out.str(), "\r1 of 2\x1b[K\r2 of 2\x1b[K\r\x1b[K");
}

TEST(StatusLine, IsErasedOnceBeforeOtherOutputAndNotWhereNothingWasShown) {
  std::ostringstream out;
  {
    StatusLine line(out, 80, {.log = true});
    line.erase();
    line.show("1 of 2", 0);
    line.erase();
    out << "a warning\n";
  }
  EXPECT_EQ(out.str(), "\r1 of 2\x1b[K\r\x1b[Ka warning\n");
}

TEST(StatusLine, IsNotDrawnTwiceNorTooOften) {
  std::ostringstream out;
  StatusLine line(out, 80, {});
  line.show("0", 0);
  line.show("1", StatusLine::kTerminalPause / 2);  // too soon
  line.show("2", StatusLine::kTerminalPause);
  line.show("2", 3);  // shown already
  EXPECT_EQ(out.str(), "\r0\x1b[K\r2\x1b[K");
}

TEST(StatusLine, FitsTheTerminalAndCutsNoCharacter) {
  std::ostringstream out;
  StatusLine line(out, 6, {});
  line.show("12345", 0);
  line.show("123456", 1);                 // the same, as far as it fits
  line.show("a\u00d7b\u00d7c\u00d7", 2);  // each × takes two bytes
  EXPECT_EQ(out.str(), "\r12345\x1b[K\ra\u00d7b\u00d7c\x1b[K");
}

TEST(StatusLine, ElsewhereThereIsNothingOrALogWithALineEveryFewSeconds) {
  std::ostringstream nothing, log;
  {
    StatusLine no_line(nothing, 0, {});
    StatusLine line(log, 0, {.log = true});
    for (int second = 0; second < 12; ++second) {
      no_line.show("step " + std::to_string(second), second);
      line.show("step " + std::to_string(second), second);
    }
  }
  EXPECT_EQ(nothing.str(), "");
  EXPECT_EQ(log.str(), "step 5  (5 s)\nstep 10  (10 s)\n");
}

TEST(StatusLine, SilentIsSilentEverywhere) {
  std::ostringstream out;
  {
    StatusLine on_terminal(out, 80, {.silent = true});
    StatusLine in_log(out, 0, {.silent = true, .log = true});
    on_terminal.show("1", 10);
    in_log.show("1", 10);
  }
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace lockstep
