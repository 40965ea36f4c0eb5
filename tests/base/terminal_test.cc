#include "base/terminal.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(FitError, IndentsWrappedFixesAndKeepsShortLines) {
  EXPECT_EQ(fit_error("lockstep: error: no\n  fix: did you mean one of ring and text?", 30),
            "lockstep: error: no\n  fix: did you mean one of\n       ring and text?");
  EXPECT_EQ(fit_error("a/very/long/path: error: it is not there", 20),
            "a/very/long/path:\n  error: it is not\n  there");
}

TEST(TakeKey, KnowsWhatTerminalsSend) {
  std::string bytes = "\x1b[A\x1bOBq\r\x1b[5~";
  EXPECT_EQ(take_key(bytes), KeyPress{Key::up});
  EXPECT_EQ(take_key(bytes), KeyPress{Key::down});
  EXPECT_EQ(take_key(bytes), (KeyPress{Key::character, 'q'}));
  EXPECT_EQ(take_key(bytes), KeyPress{Key::enter});
  EXPECT_EQ(take_key(bytes), KeyPress{Key::page_up});
  EXPECT_EQ(take_key(bytes), std::nullopt);
}

TEST(TakeKey, ALoneEscapeIsAKeyAnUnknownSequenceIsNot) {
  std::string bytes = "\x1b";
  EXPECT_EQ(take_key(bytes), KeyPress{Key::escape});
  bytes = "\x1b[24~q";  // F12; its rest must not be read as characters
  EXPECT_EQ(take_key(bytes), std::nullopt);
  EXPECT_TRUE(bytes.empty());
}

}  // namespace
}  // namespace lockstep
