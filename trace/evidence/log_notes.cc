#include "trace/evidence/log_notes.h"

namespace lockstep::trace {

std::optional<std::size_t> LogNotes::add(RankNote note) {
  constexpr std::size_t kMaxPerKind = 4;
  mark_what_much_output_follows();
  std::size_t& count = counts_[{note.rank, host_, note.pid, note.kind}];
  if (count >= kMaxPerKind) return std::nullopt;
  const std::size_t before = out_.notes.size();
  if (note.host.empty()) note.host = host_;
  note.location = {file_, line_};
  out_.add(std::move(note));
  if (out_.notes.size() == before) return std::nullopt;
  ++count;
  if (by_task_) task_notes_.push_back(before);
  return before;
}

// Exceptions of processes that nothing names are followed by other processes' output in any case.
// But where thousands of lines follow in which nothing is reported, the job went on for long: an
// import that failed and was caught. (What 512 ranks write until they hang as well is less.)
void LogNotes::mark_what_much_output_follows() {
  constexpr int kMuch = 2000;
  if (line_ - noted_at_ >= kMuch) {
    for (; followed_ < out_.notes.size(); ++followed_) {
      RankNote& note = out_.notes[followed_];
      const bool unnamed = note.rank.value == kNone && note.pid == kNone;
      note.output_follows = unnamed && note.kind == RankNote::Kind::exception;
    }
  }
  noted_at_ = line_;
}

void LogNotes::drop_task_numbers() {
  for (const std::size_t n : task_notes_) out_.notes[n].rank = Rank(kNone);
}

}  // namespace lockstep::trace
