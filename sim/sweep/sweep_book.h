// SweepBook: the rows of a sweep by point: those that its folder had, and those that come in, each
// written as it comes. What computes them: SweepRun (scenarios), compute_plans().
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "sim/sweep/ranking.h"
#include "sim/sweep/sweep_folder.h"
#include "sim/sweep/training_plans.h"
#include "sim/sweep/variation.h"

namespace lockstep {

class SweepBook {
 public:
  // Points that `folder` has rows of are known, but for those that failed. `on_row` after each that
  // is added. All references must outlive this object.
  SweepBook(const sweep::Variation& variation, sweep::Goal goal, SweepFolder& folder,
            Interrupts& interrupts, std::function<void()> on_row);

  const sweep::Variation& variation() const { return variation_; }
  bool interrupted() { return interrupts_.poll() != 0; }

  // What rows() speaks of.
  void ask(const std::vector<sweep::PointId>& points);
  // Null: not computed yet.
  const sweep::Row* find(sweep::PointId point) const;
  // `row` gets the point's machine and values. Errors: what cannot be written.
  Status add(sweep::PointId point, sweep::Row row);
  // Of the points that were asked for, in that order, but for those that are not computed.
  std::vector<sweep::Row> rows() const;

 private:
  const sweep::Variation& variation_;
  sweep::Goal goal_;
  SweepFolder& folder_;
  Interrupts& interrupts_;
  std::function<void()> on_row_;
  std::map<std::string, sweep::Row> rows_;  // by sweep::point_key()
  std::vector<sweep::PointId> asked_;
};

// A row in the book for each of the points; after the user's signal, fewer. Errors: add()'s.
Status compute_plans(const sweep::TrainingPlans& plans, const std::vector<sweep::PointId>& points,
                     SweepBook& book);

}  // namespace lockstep
