// The table of a study: strategy by remedy, what was right, what it cost, what was learned.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::reports {

// A run against the one process that does the same, and against the one that needs no remedy.
struct Accuracy {
  // Of the gradients that the optimiser gets, against the same remedy in one process: the largest
  // relative error before rounding has grown; where they part, that of the tensor that parts first.
  std::optional<double> gradient_error;
  std::optional<std::string> parted;  // that tensor
  // Where the training ended, against one process without remedy: the distance of the parameters as
  // a share of the way that they went, of BatchNorm's running statistics and of the held-out
  // images' embeddings as a share of their size.
  std::optional<double> image_drift, text_drift, batch_norm_drift, feature_drift;
};

// Of repeated measurements; at least one.
struct Spread {
  double median = 0, low = 0, high = 0;
};

// One row of a study's table.
struct Combination {
  std::string strategy, remedy;           // an empty remedy: no image is missing
  std::optional<std::string> impossible;  // why it is no job; nothing else is set then
  std::string end;                   // of the first run that did not complete, else "completed"
  bool completed = false;            // all runs
  std::optional<Accuracy> accuracy;  // where a watched run and its references completed
  std::size_t repeats = 0;           // timed runs
  std::optional<Spread> step_ms, bytes_per_step, peak_bytes, loss, recall_at_1;
};

// For a terminal of 80 columns: by strategy, once for what is right and once for what it costs.
// Combinations are in the order of their strategies.
std::string study_text(const std::vector<Combination>& combinations);
// One Markdown table with all columns.
std::string study_markdown(const std::vector<Combination>& combinations);
// An array of objects; every measurement with median, low and high. Bytes, milliseconds; shares
// between 0 and 1.
std::string study_json(const std::vector<Combination>& combinations);

}  // namespace lockstep::reports
