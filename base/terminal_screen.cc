#include "base/terminal_screen.h"

#include <sys/ioctl.h>

namespace lockstep {

// The sequences are those of xterm (ctlseqs), which all terminals in use know.
namespace {
constexpr const char* kTakeOver = "\x1b[?1049h\x1b[?25l";  // another screen, no cursor
constexpr const char* kGiveBack = "\x1b[?25h\x1b[?1049l";
}  // namespace

ScreenSize terminal_size(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {size.ws_col, size.ws_row};
}

std::string drawn_over(const std::string& text) {
  std::string out = "\x1b[H";
  const std::size_t end = text.ends_with('\n') ? text.size() - 1 : text.size();
  for (std::size_t i = 0; i < end; ++i) {
    if (text[i] == '\n')
      out += "\x1b[K\r\n";
    else
      out += text[i];
  }
  return out + "\x1b[K\x1b[J";
}

TerminalScreen::TerminalScreen(std::ostream& out) : out_(out) { out_ << kTakeOver << std::flush; }
TerminalScreen::~TerminalScreen() { out_ << kGiveBack << std::flush; }

void TerminalScreen::draw(const std::string& text) { out_ << drawn_over(text) << std::flush; }

}  // namespace lockstep
