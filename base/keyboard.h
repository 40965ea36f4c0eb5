// Keyboard: keys as they are pressed, without waiting for Enter.
#pragma once

#include <termios.h>

#include <optional>
#include <string>

namespace lockstep {

enum class Key { up, down, left, right, page_up, page_down, home, end, enter, escape, character };

struct KeyPress {
  Key key = Key::character;
  char character = 0;  // of Key::character

  friend bool operator==(const KeyPress&, const KeyPress&) = default;
};

// Takes the first key off `bytes`, which a terminal sent. Nothing, and `bytes` is cleared: no key
// that is known. A lone escape byte is Key::escape.
std::optional<KeyPress> take_key(std::string& bytes);

// While it lives, the terminal behind standard input neither echoes keys nor waits for Enter.
// Ctrl-C still sends its signal. Does nothing if standard input is not a terminal.
class Keyboard {
 public:
  Keyboard();
  ~Keyboard();  // restores the terminal
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  // The next key; nothing if none was pressed. Never blocks.
  std::optional<KeyPress> next();

 private:
  std::optional<termios> before_;  // nothing: not a terminal
  std::string bytes_;              // sent, and not taken yet
};

}  // namespace lockstep
