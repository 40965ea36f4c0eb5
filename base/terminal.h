// The user's terminal: colours, a screen that is redrawn, signs of life, and keys.
#pragma once

#include <termios.h>

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>

namespace lockstep {

// Paint: terminal colours, or nothing.

// The text is the same whether `on` or not; the writer decides by wants_color().
struct Paint {
  bool on = false;

  std::string bold(std::string_view text) const { return wrapped(text, "1"); }
  std::string dim(std::string_view text) const { return wrapped(text, "2"); }
  std::string red(std::string_view text) const { return wrapped(text, "1;31"); }
  std::string yellow(std::string_view text) const { return wrapped(text, "1;33"); }
  std::string green(std::string_view text) const { return wrapped(text, "1;32"); }

 private:
  std::string wrapped(std::string_view text, std::string_view code) const {
    if (!on || text.empty()) return std::string(text);
    return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
  }
};

// True on a terminal that can show colour, unless NO_COLOR is set (https://no-color.org).
// `no_color` and `term` are the values of these variables; null: not set.
bool wants_color(bool is_terminal, const char* no_color, const char* term);

// wants_color() for this process's standard output.
bool stdout_wants_color();

// TerminalScreen: text that is redrawn again and again, on the terminal's alternate screen. When it
// ends, the user's earlier lines come back.

struct ScreenSize {
  std::size_t width = 80;
  std::size_t height = 0;  // lines; 0: no bound
};

// The size of the terminal behind the descriptor; 80 columns and no bound if it is not a terminal
// or does not say.
ScreenSize terminal_size(int descriptor);

// The columns that text on standard output may take: those of the terminal, from 60 to 200 (longer
// lines are hard to read); 80 where it is not a terminal, so that files and logs are the same
// anywhere.
std::size_t stdout_columns();

// An error's text (Error::str()) with its lines wrapped at `columns`, fixes behind "fix: ".
std::string fit_error(std::string_view text, std::size_t columns);

// Prints "lockstep: ", the error's text and a line break on standard error: fitted to the terminal
// if it is one, else as it is, so that programs find each part in one line.
void print_error(std::string_view text);

// The bytes that make a terminal show exactly `text`: from the first line on, erasing the rest of
// each line and everything below.
std::string drawn_over(const std::string& text);

class TerminalScreen {
 public:
  // Takes over the terminal behind `out`, which is not owned and must outlive this.
  explicit TerminalScreen(std::ostream& out);
  ~TerminalScreen();  // restores the terminal
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  void draw(const std::string& text);

 private:
  std::ostream& out_;
};

// ProgressLine: shows the user at a terminal that a slow command is still working.

// While it lives, and after the first second, a line on standard error counts the seconds; it is
// erased at the end. Does nothing if standard error is not a terminal. Uses a thread of its own.
class ProgressLine {
 public:
  explicit ProgressLine(std::string doing);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void show();

  std::string doing_;  // "reading traces"
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

// Keyboard: keys as they are pressed, without waiting for Enter.

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
