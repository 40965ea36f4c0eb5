// SweepBook: the rows of a sweep by point: those that its folder had and new ones, each written as
// it comes. SweepRun (scenarios) and compute_plans() compute them.
//
// A row may take many seconds to compute, and Ctrl-C should end the sweep at once. So another
// thread (base/ends_at_once.h) may report the rows meanwhile: the thread that computes holds the
// book, except while it computes one row or waits for a worker.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "sim/sweep/plan_grid.h"
#include "sim/sweep/ranking.h"
#include "sim/sweep/row.h"
#include "sim/sweep/variation.h"

namespace lockstep::sim {

// The folder of a sweep: sweep.json says what is swept, results.jsonl has a line per point that was
// tried, written as it comes. docs/sweep.md has both formats.

// What all results of a folder have in common. A continued sweep may vary other keys and values,
// but this must be equal.
struct SweepIdentity {
  std::string version;                          // of this program
  std::string scenario;                         // SHA-256 of the file
  std::map<std::string, std::string> machines;  // SHA-256, by file; others may come in later
  std::optional<int> steps;
  std::optional<bool> on_meta;
};

class SweepFolder {
 public:
  // Makes the folder if needed, and locks it while this object lives. Removes a last line that was
  // cut off. Errors: a folder that is neither empty nor a sweep's; a sweep of something else;
  // another sweep that runs in it; a line that is not a row, with its number; what the system
  // refuses.
  static Result<SweepFolder> open(const std::string& path, const SweepIdentity& identity);

  SweepFolder(SweepFolder&& other) noexcept;
  SweepFolder& operator=(SweepFolder&&) = delete;
  ~SweepFolder();

  const std::vector<Row>& rows() const { return rows_; }  // those that were there
  bool was_cut() const { return was_cut_; }
  // Writes the line immediately. Errors: no space.
  Status append(const std::string& line);

 private:
  SweepFolder(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  Status read_rows();

  std::string path_;  // of results.jsonl
  int descriptor_;
  std::vector<Row> rows_;
  bool was_cut_ = false;
};

class SweepBook {
 public:
  // Points with rows in `folder` are known, except failed ones. Calls `on_rows` with the number of
  // rows that have come to those asked for. References are not owned and must outlive this object.
  SweepBook(const Variation& variation, Goal goal, SweepFolder& folder, Interrupts& interrupts,
            std::function<void(std::size_t)> on_rows);

  const Variation& variation() const { return variation_; }
  bool interrupted() { return interrupts_.poll() != 0; }
  Interrupts& interrupts() { return interrupts_; }

  // Nobody else uses the book while the result lives, nor what `on_rows` counts.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  // Lets go of the held book while `work` runs, which does not use it, and returns its result.
  template <class Work>
  auto without(Work work) {
    struct Release {
      explicit Release(std::mutex& held) : mutex(held) { mutex.unlock(); }
      ~Release() { mutex.lock(); }
      Release(const Release&) = delete;
      Release& operator=(const Release&) = delete;
      std::mutex& mutex;
    } const released(mutex_);
    return work();
  }

  // Adds to the points that rows() returns. Those that have a row already count at once.
  void ask(const std::vector<PointId>& points);
  // The row of a point; null if not computed yet.
  const Row* find(PointId point) const;
  // Adds a row; sets its machine and values to the point's. Errors: what cannot be written.
  Status add(PointId point, Row row);
  // The rows of the points that were asked for, in that order, as far as they are computed.
  std::vector<Row> rows() const;

 private:
  const Variation& variation_;
  Goal goal_;
  SweepFolder& folder_;
  Interrupts& interrupts_;
  std::function<void(std::size_t)> on_rows_;
  std::mutex mutex_;
  std::map<std::string, Row> rows_;  // by point_key()
  std::vector<PointId> asked_;
};

// Computes a row for each of the points; fewer after a signal from the user. `checks`: one for all
// calls of a sweep. Holds the book except while it computes. Errors: add()'s.
Status compute_plans(const PlanGrid& plans, const std::vector<PointId>& points,
                     ModalityChecks& checks, SweepBook& book);

}  // namespace lockstep::sim
