// SweepBook: the rows of a sweep by point: those that its folder had, and those that come in, each
// written as it comes. What computes them: SweepRun (scenarios), compute_plans().
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "sim/sweep/ranking.h"
#include "sim/sweep/row.h"
#include "sim/sweep/training_plans.h"
#include "sim/sweep/variation.h"

// The folder of a sweep: sweep.json says what it is a sweep of, results.jsonl has a line for each
// point that was tried, written as it comes. docs/sweep.md has both formats.

namespace lockstep::sim {

// What the results of a folder hold for. Other keys and values may be varied another time; not so
// what is here.
struct SweepIdentity {
  std::string version;                          // of this program
  std::string scenario;                         // SHA-256 of the file
  std::map<std::string, std::string> machines;  // SHA-256, by file; others may come in later
  std::optional<int> steps;
  std::optional<bool> on_meta;
};

class SweepFolder {
 public:
  // Makes the folder where it is not there, and locks it as long as this object lives. A last line
  // that was cut off is taken away.
  // Errors: a folder that is not empty and no sweep's; a sweep of something else; another sweep
  // that runs in it; a line that is no row, with its number; what the system refuses.
  static Result<SweepFolder> open(const std::string& path, const SweepIdentity& identity);

  SweepFolder(SweepFolder&& other) noexcept;
  SweepFolder& operator=(SweepFolder&&) = delete;
  ~SweepFolder();

  const std::vector<Row>& rows() const { return rows_; }  // those that were there
  bool was_cut() const { return was_cut_; }
  // Written at once. Errors: no space.
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
  // Points that `folder` has rows of are known, but for those that failed. `on_row` after each that
  // is added. All references must outlive this object.
  SweepBook(const Variation& variation, Goal goal, SweepFolder& folder, Interrupts& interrupts,
            std::function<void()> on_row);

  const Variation& variation() const { return variation_; }
  bool interrupted() { return interrupts_.poll() != 0; }

  // What rows() speaks of.
  void ask(const std::vector<PointId>& points);
  // Null: not computed yet.
  const Row* find(PointId point) const;
  // `row` gets the point's machine and values. Errors: what cannot be written.
  Status add(PointId point, Row row);
  // Of the points that were asked for, in that order, but for those that are not computed.
  std::vector<Row> rows() const;

 private:
  const Variation& variation_;
  Goal goal_;
  SweepFolder& folder_;
  Interrupts& interrupts_;
  std::function<void()> on_row_;
  std::map<std::string, Row> rows_;  // by point_key()
  std::vector<PointId> asked_;
};

// A row in the book for each of the points; after the user's signal, fewer. Errors: add()'s.
Status compute_plans(const TrainingPlans& plans, const std::vector<PointId>& points,
                     SweepBook& book);

}  // namespace lockstep::sim
