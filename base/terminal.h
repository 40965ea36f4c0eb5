// Paint: terminal colours, or nothing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>

namespace lockstep {

// Whoever writes to a terminal decides `on`; the text is the same either way.
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

// Colour only on a terminal that can show it, and never against NO_COLOR (https://no-color.org).
// `no_color` and `term` are those variables; null: not set.
bool wants_color(bool is_terminal, const char* no_color, const char* term);

// wants_color() for this process's standard output.
bool stdout_wants_color();

// TerminalScreen: a screen of text that is drawn over again and again, on a terminal of its own
// that vanishes with it, so that the user's earlier lines come back.

struct ScreenSize {
  std::size_t width = 80;
  std::size_t height = 0;  // lines; 0: as many as it takes
};

// The size of the terminal behind the descriptor; 80 columns and no bound where there is none, or
// where it does not say.
ScreenSize terminal_size(int descriptor);

// `text` as what makes a terminal show just that: from the first line on, each line's rest erased,
// and what stood below.
std::string drawn_over(const std::string& text);

class TerminalScreen {
 public:
  // Takes over the terminal behind `out`, which must outlive this.
  explicit TerminalScreen(std::ostream& out);
  ~TerminalScreen();  // gives it back as it was
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  void draw(const std::string& text);

 private:
  std::ostream& out_;
};

// Patience: tells somebody at a terminal that a command still works, once it takes long.

// From its construction to its destruction; after a second of silence a line on standard error
// counts the seconds, and goes away at the end. Does nothing where standard error is no terminal.
class Patience {
 public:
  explicit Patience(std::string doing);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  void show();

  std::string doing_;  // "reading traces"
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace lockstep
