#include "base/status_line.h"

#include <unistd.h>

#include <iostream>

#include "base/quantities.h"
#include "base/terminal.h"
#include "base/text.h"

namespace lockstep {

namespace {

// The longest beginning of `utf8` that takes at most so many columns.
std::string_view cut(std::string_view utf8, std::size_t columns) {
  while (columns_of(utf8) > columns) utf8.remove_suffix(1);
  return utf8;
}

}  // namespace

StatusLine::StatusLine(const Options& options)
    : StatusLine(std::cerr, ::isatty(STDERR_FILENO) == 1 ? terminal_size(STDERR_FILENO).width : 0,
                 options) {}

StatusLine::StatusLine(std::ostream& out, std::size_t columns, const Options& options)
    : out_(out),
      columns_(columns),
      options_(options),
      began_(std::chrono::steady_clock::now()),
      next_s_(columns > 0 ? 0 : kLogPause) {}

StatusLine::~StatusLine() { erase(); }

void StatusLine::show(std::string_view text) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
  show(text, elapsed.count());
}

void StatusLine::show(std::string_view text, double elapsed_s) {
  if (options_.silent || (columns_ == 0 && !options_.log) || elapsed_s < next_s_) return;
  if (columns_ == 0) {
    out_ << text << "  (" << duration_text(elapsed_s) << ")\n" << std::flush;
    next_s_ = elapsed_s + kLogPause;
    return;
  }
  // One less: in the last column the cursor stays on the character, which would be erased.
  text = cut(text, columns_ - 1);
  if (text == shown_) return;
  out_ << "\r" << text << "\x1b[K" << std::flush;
  shown_ = text;
  next_s_ = elapsed_s + kTerminalPause;
}

void StatusLine::erase() {
  if (!shown_.empty()) out_ << "\r\x1b[K" << std::flush;
  shown_.clear();
}

}  // namespace lockstep
