// TerminalScreen: a screen of text that is drawn over again and again, on a terminal of its own
// that vanishes with it, so that the user's earlier lines come back.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>

namespace lockstep {

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

}  // namespace lockstep
