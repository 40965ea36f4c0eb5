#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

namespace lockstep {

// Sequences of xterm (ctlseqs), which all terminals in use know.
namespace {
constexpr const char* kTakeOver = "\x1b[?1049h\x1b[?25l";  // another screen, no cursor
constexpr const char* kGiveBack = "\x1b[?25h\x1b[?1049l";
}  // namespace

bool wants_color(bool is_terminal, const char* no_color, const char* term) {
  const bool refused = no_color != nullptr && *no_color != '\0';
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  return is_terminal && !refused && !dumb;
}

bool stdout_wants_color() {
  return wants_color(::isatty(STDOUT_FILENO) == 1, std::getenv("NO_COLOR"), std::getenv("TERM"));
}

ScreenSize terminal_size(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {size.ws_col, size.ws_row};
}

std::size_t stdout_columns() {
  constexpr std::size_t kFewest = 60;
  constexpr std::size_t kMost = 200;
  return std::clamp(terminal_size(STDOUT_FILENO).width, kFewest, kMost);
}

std::string drawn_over(const std::string& text) {
  // Overwriting line by line does not flicker as clearing the screen does. The last line ends
  // without a line feed, which would scroll a full screen.
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

Patience::Patience(std::string doing) : doing_(std::move(doing)) {
  if (::isatty(STDERR_FILENO) == 1) thread_ = std::thread([this] { show(); });
}

Patience::~Patience() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Patience::show() {
  std::unique_lock lock(mutex_);
  int seconds = 0;
  while (!ended_.wait_for(lock, std::chrono::seconds(1), [this] { return over_; }))
    std::cerr << "\r" << doing_ << ": " << ++seconds << " s" << std::flush;
  // Erases the line.
  if (seconds > 0) std::cerr << "\r\x1b[K" << std::flush;
}

}  // namespace lockstep
