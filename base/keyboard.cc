#include "base/keyboard.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

// What terminals send for keys without a character (xterm's ctlseqs, in both cursor modes).
constexpr std::pair<std::string_view, Key> kSequences[] = {
    {"\x1b[A", Key::up},         {"\x1b[B", Key::down}, {"\x1b[C", Key::right},
    {"\x1b[D", Key::left},       {"\x1bOA", Key::up},   {"\x1bOB", Key::down},
    {"\x1bOC", Key::right},      {"\x1bOD", Key::left}, {"\x1b[5~", Key::page_up},
    {"\x1b[6~", Key::page_down}, {"\x1b[H", Key::home}, {"\x1bOH", Key::home},
    {"\x1b[1~", Key::home},      {"\x1b[F", Key::end},  {"\x1bOF", Key::end},
    {"\x1b[4~", Key::end},
};

}  // namespace

std::optional<KeyPress> take_key(std::string& bytes) {
  if (bytes.empty()) return std::nullopt;
  for (const auto& [sequence, key] : kSequences) {
    if (!bytes.starts_with(sequence)) continue;
    bytes.erase(0, sequence.size());
    return KeyPress{key};
  }
  const char first = bytes.front();
  if (first == '\x1b') {
    // A sequence that is not known is dropped with all that was sent with it: its rest would be
    // read as characters.
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
  // Ctrl-Z would leave the shell with a terminal in this mode.
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
