#include "base/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_line.h"
#include "base/text.h"

namespace lockstep {

namespace {

// Sequences of xterm (ctlseqs), which all terminals in use know.
constexpr const char* kTakeOver = "\x1b[?1049h\x1b[?25l";  // another screen, no cursor
constexpr const char* kGiveBack = "\x1b[?25h\x1b[?1049l";

// What terminals send for keys without a character (ctlseqs, in both cursor modes).
constexpr std::pair<std::string_view, Key> kSequences[] = {
    {"\x1b[A", Key::up},         {"\x1b[B", Key::down}, {"\x1b[C", Key::right},
    {"\x1b[D", Key::left},       {"\x1bOA", Key::up},   {"\x1bOB", Key::down},
    {"\x1bOC", Key::right},      {"\x1bOD", Key::left}, {"\x1b[5~", Key::page_up},
    {"\x1b[6~", Key::page_down}, {"\x1b[H", Key::home}, {"\x1bOH", Key::home},
    {"\x1b[1~", Key::home},      {"\x1b[F", Key::end},  {"\x1bOF", Key::end},
    {"\x1b[4~", Key::end},
};

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
  constexpr std::size_t kMin = 60;
  constexpr std::size_t kMax = 200;
  return std::clamp(terminal_size(STDOUT_FILENO).width, kMin, kMax);
}

std::string fit_error(std::string_view text, std::size_t columns) {
  constexpr std::string_view kFix = "fix: ";
  std::string out;
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t indent = begin + (line.substr(begin).starts_with(kFix) ? kFix.size() : 2);
    out.append(out.empty() ? "" : "\n")
        .append(begin, ' ')
        .append(wrap(line.substr(begin), columns, indent, begin));
  }
  return out;
}

void print_error(std::string_view text) {
  std::string out = "lockstep: ";
  out += text;
  if (::isatty(STDERR_FILENO) == 1)
    out = fit_error(out, std::max<std::size_t>(terminal_size(STDERR_FILENO).width, 40));
  std::cerr << out << "\n";
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

ProgressLine::ProgressLine(std::string doing) : doing_(std::move(doing)) {
  if (::isatty(STDERR_FILENO) == 1) thread_ = std::thread([this] { show(); });
}

ProgressLine::~ProgressLine() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void ProgressLine::show() {
  std::unique_lock lock(mutex_);
  StatusLine line({});
  int seconds = 0;
  while (!ended_.wait_for(lock, std::chrono::seconds(1), [this] { return over_; }))
    line.show(doing_ + ": " + std::to_string(++seconds) + " s");
}

std::optional<KeyPress> take_key(std::string& bytes) {
  if (bytes.empty()) return std::nullopt;
  for (const auto& [sequence, key] : kSequences) {
    if (!bytes.starts_with(sequence)) continue;
    bytes.erase(0, sequence.size());
    return KeyPress{key};
  }
  const char first = bytes.front();
  if (first == '\x1b') {
    // Drops everything that was read with an unknown sequence: its rest would be read as
    // characters.
    const bool alone = bytes.size() == 1;
    bytes.clear();
    return alone ? std::optional(KeyPress{Key::escape}) : std::nullopt;
  }
  bytes.erase(0, 1);
  if (first == '\r' || first == '\n') return KeyPress{Key::enter};
  return KeyPress{Key::character, first};
}

Keyboard::Keyboard() {
  termios now{};
  if (::isatty(STDIN_FILENO) != 1 || ::tcgetattr(STDIN_FILENO, &now) != 0) return;
  before_ = now;
  now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  now.c_cc[VMIN] = 0;
  now.c_cc[VTIME] = 0;
  // Disables Ctrl-Z, which would leave the shell with a terminal in this mode.
  now.c_cc[VSUSP] = _POSIX_VDISABLE;
  if (::tcsetattr(STDIN_FILENO, TCSANOW, &now) != 0) before_.reset();
}

Keyboard::~Keyboard() {
  if (before_) ::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

std::optional<KeyPress> Keyboard::next() {
  if (!before_) return std::nullopt;
  pollfd waiting{STDIN_FILENO, POLLIN, 0};
  while (bytes_.size() < 64 && ::poll(&waiting, 1, 0) > 0 && (waiting.revents & POLLIN) != 0) {
    std::array<char, 64> room{};
    const ssize_t got = ::read(STDIN_FILENO, room.data(), room.size());
    if (got <= 0) break;
    bytes_.append(room.data(), static_cast<std::size_t>(got));
  }
  return take_key(bytes_);
}

}  // namespace lockstep
