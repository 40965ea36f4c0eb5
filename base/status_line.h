// StatusLine: a line on the terminal that says how far a slow command is. The next one overwrites
// it.
//
//   StatusLine line({.silent = quiet});
//   for (…) line.show(done + " of " + total + " points");
//                        // erased at the end; by erase() where something else is printed before
#pragma once

#include <chrono>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

namespace lockstep {

class StatusLine {
 public:
  struct Options {
    bool silent = false;  // shows nothing
    bool log = false;     // not on a terminal: now and then a line of its own, instead of nothing
  };

  // On standard error.
  explicit StatusLine(const Options& options);
  // On `out`, which must outlive this, as on a terminal that wide. 0: it is not a terminal.
  StatusLine(std::ostream& out, std::size_t columns, const Options& options);
  ~StatusLine();  // erases the line
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  // Shows `text`, which has no line break, cut to the terminal's width. Left out if that is shown
  // already, or if it comes less than kTerminalPause after the last one; in a log kLogPause, and
  // its lines say how much time has passed. So it may be called at every turn of a loop.
  void show(std::string_view text);
  // The same, with the time since the command began.
  void show(std::string_view text, double elapsed_s);

  // Erases the line from the terminal. Call it before anything else is printed there.
  void erase();

  static constexpr double kTerminalPause = 0.05;  // seconds; the eye sees no more
  static constexpr double kLogPause = 5;          // seconds; a log keeps every line

 private:
  std::ostream& out_;
  std::size_t columns_;  // 0: not a terminal
  Options options_;
  std::chrono::steady_clock::time_point began_;
  std::string shown_;  // on the terminal now; empty: nothing
  double next_s_;      // not before this time is anything shown
};

}  // namespace lockstep
