// The notes about ranks that a reader takes from the lines of one log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "trace/evidence/evidence.h"
#include "trace/run.h"

namespace lockstep::trace {

class LogNotes {
 public:
  explicit LogNotes(std::string file) : file_(std::move(file)) {}

  // The line of which notes are added from here on.
  void set_line(int number) { line_ = number; }
  int line() const { return line_; }
  // The host that the line's label names; empty: none. It is the notes' where they name no other.
  void set_host(std::string_view host) { host_ = host; }
  // Whether the ranks of notes from here on are a launcher's numbers of its tasks, which may turn
  // out to be no ranks.
  void set_by_task(bool by_task) { by_task_ = by_task; }

  // Adds a note about the line; its index. Nothing where there are enough of the kind about that
  // rank or process in the host's output: later ones mostly repeat the first.
  std::optional<std::size_t> add(RankNote note);

  RankNote& operator[](std::size_t n) { return out_.notes[n]; }
  std::size_t size() const { return out_.notes.size(); }
  auto begin() { return out_.notes.begin(); }
  auto end() { return out_.notes.end(); }

  bool any_by_task() const { return !task_notes_.empty(); }
  // The notes by tasks name no rank from now on.
  void drop_task_numbers();

  // The text ends at the line.
  void end_text() { mark_what_much_output_follows(); }
  FileEvidence take() && { return std::move(out_); }

 private:
  void mark_what_much_output_follows();

  std::string file_;
  FileEvidence out_;
  std::map<std::tuple<Rank, std::string, std::int64_t, RankNote::Kind>, std::size_t> counts_;
  std::vector<std::size_t> task_notes_;
  std::string host_;
  bool by_task_ = false;
  int line_ = 0;
  int noted_at_ = 0;          // the line of the last note
  std::size_t followed_ = 0;  // the notes before this one have been looked at
};

}  // namespace lockstep::trace
