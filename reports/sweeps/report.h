// The report of a sweep: the plans that were tried, the best first, and what happened to the
// others.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/tables.h"
#include "sim/sweep/ranking.h"
#include "sim/sweep/row.h"
#include "sim/sweep/search.h"

namespace lockstep::reports {

struct Summary {
  std::string scenario;           // its name, or the plan's
  bool transformers = false;      // of a plan file: rows have TransformerFigures
  std::vector<std::string> keys;  // varied keys, in the order of the columns
  bool several_machines = false;  // then the machine's file is a column
  sim::PointId grid_points = 0;
  bool exhaustive = true;  // all points were asked for
  std::uint64_t seed = 0;  // of the search, if not exhaustive
  bool interrupted = false;
  sim::Goal goal;
  std::vector<sim::Row> rows;  // of the points that were tried
};

// At most `width` columns wide (from 60): the best 40 rows, the Pareto front, and the reasons of
// rows that do not train.
std::string sweep_text(const Summary& summary, std::size_t width = kReportColumns);
// A line per row, with the varied keys as columns; RFC 4180, with a header.
std::string sweep_csv(const Summary& summary);
// All of it, rows sorted as in the text.
std::string sweep_json(const Summary& summary);
// A page with the front as a chart, and the tables of the text.
std::string sweep_html(const Summary& summary);

// Shared by the forms of the report: a row's fields, and rows with equal reasons.

// The columns that identify a point, and a row's values in them: the varied keys, abbreviated if
// unambiguous ("batch_size"), and the machine if there are several.
std::vector<std::string> value_heads(const Summary& summary);
std::vector<std::string> value_cells(const Summary& summary, const sim::Row& row);
// "ranks=4 strategy=ddp": the same in one text.
std::string point_text(const Summary& summary, const sim::Row& row);

// "48 of 48 points", "40 of 1,200 points; a search with seed 7, which is not exhaustive".
std::string tried_text(const Summary& summary);
std::string objective_text(sim::Objective objective);  // "samples/s"
std::string memory_text(const Summary& summary);       // what Row::memory_bytes counts

struct Reason {
  std::string text;
  std::vector<std::size_t> rows;  // at least one
};
// Most frequent first.
std::vector<Reason> by_reason(const Summary& summary, const std::vector<std::size_t>& rows);

}  // namespace lockstep::reports
