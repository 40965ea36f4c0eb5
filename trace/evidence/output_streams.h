// The outputs of processes that a log mixes: told apart by rank, host and label, and what is going
// on in each.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "trace/evidence/exceptions.h"
#include "trace/evidence/line_labels.h"
#include "trace/ids.h"

namespace lockstep::trace {

// The output of one rank, or the lines without a rank.
struct OutputStream {
  ExceptionReader exceptions;
  bool in_last_error = false;  // the next line is NCCL's last error
  // The last exception that may have ended the rank, as an index in the notes.
  std::optional<std::size_t> exception;
  std::vector<std::size_t> chain;  // the exceptions that led to the last one, and that one
  std::string who;                 // the process of the next exception, where a line named it

  // Whether the next line counts, whatever it is: of a rank, it shows that an exception was caught.
  bool goes_on(Rank rank) const {
    return !exceptions.idle() || in_last_error || (exception && rank.value != kNone);
  }
};

class OutputStreams {
 public:
  // Whose output a line is, as far as prefixes and launchers' labels tell.
  struct Source {
    Rank rank{kNone};
    std::string_view host;  // empty: not told
  };

  // Whether the next line counts, whatever it is.
  bool any_goes_on() const { return going_on_ > 0 || opened_; }

  // What stands before each line of a traceback, "(Worker pid=12) ", where it begins this line.
  // Empty for most lines. Learns the label from the first line of a traceback.
  std::string_view label_of(std::string_view text, Source source);

  // Calls change(stream) for the stream of lines with that label.
  template <class Change>
  void change(Source source, std::string_view label, Change&& change) {
    OutputStream& stream = streams_[{source.rank, std::string(source.host), std::string(label)}];
    if (stream.goes_on(source.rank)) --going_on_;
    change(stream);
    if (stream.goes_on(source.rank)) ++going_on_;
  }

 private:
  void continue_traceback(std::string_view text, Source source);

  std::map<std::tuple<Rank, std::string, std::string>, OutputStream> streams_;
  std::size_t going_on_ = 0;  // streams that do
  TracebackLabels labels_;
  // What stood before the first line of a traceback, until the next line of that rank.
  struct Opened {
    Rank rank;
    std::string host, text;
  };
  std::optional<Opened> opened_;
};

}  // namespace lockstep::trace
