#include "sim/sweep/sweep_book.h"

#include <utility>

namespace lockstep {

SweepBook::SweepBook(const sweep::Variation& variation, sweep::Goal goal, SweepFolder& folder,
                     Interrupts& interrupts, std::function<void()> on_row)
    : variation_(variation),
      goal_(goal),
      folder_(folder),
      interrupts_(interrupts),
      on_row_(std::move(on_row)) {
  for (const sweep::Row& row : folder.rows())
    if (row.outcome != sweep::Outcome::failed)
      rows_.insert_or_assign(sweep::point_key(row.machine, row.values), row);
}

void SweepBook::ask(const std::vector<sweep::PointId>& points) {
  asked_.insert(asked_.end(), points.begin(), points.end());
}

const sweep::Row* SweepBook::find(sweep::PointId point) const {
  const auto found =
      rows_.find(sweep::point_key(variation_.machine_file(point), variation_.values(point)));
  return found == rows_.end() ? nullptr : &found->second;
}

Status SweepBook::add(sweep::PointId point, sweep::Row row) {
  row.machine = variation_.machine_file(point);
  row.values = variation_.values(point);
  if (const Status ok = folder_.append(sweep::row_line(row, sweep::fits(row, goal_))); !ok)
    return ok;
  std::string key = sweep::point_key(row.machine, row.values);
  rows_.insert_or_assign(std::move(key), std::move(row));
  on_row_();
  return Status::ok();
}

std::vector<sweep::Row> SweepBook::rows() const {
  std::vector<sweep::Row> out;
  for (const sweep::PointId point : asked_)
    if (const sweep::Row* row = find(point)) out.push_back(*row);
  return out;
}

Status compute_plans(const sweep::TrainingPlans& plans, const std::vector<sweep::PointId>& points,
                     SweepBook& book) {
  for (const sweep::PointId point : points) {
    if (book.interrupted()) return Status::ok();
    if (book.find(point) != nullptr) continue;
    if (const Status ok = book.add(point, plans.row(point)); !ok) return ok;
  }
  return Status::ok();
}

}  // namespace lockstep
