// The table of a study, strategy by remedy: what was correct and what it cost.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::reports {

// A run compared with one process that does the same, and with one process that needs no remedy.
struct Accuracy {
  // Compared with the same remedy in one process, for the gradients that the optimizer gets: the
  // largest relative error before rounding errors have grown; if they diverge, that of the first
  // tensor that does.
  std::optional<double> gradient_error;
  std::optional<std::string> first_difference;  // that tensor
  // The end of the training, compared with one process without remedy. For the parameters: their
  // distance as a share of the way that they moved. For BatchNorm's running statistics and the
  // embeddings of held-out images: as a share of their size.
  std::optional<double> image_drift, text_drift, batch_norm_drift, feature_drift;
};

// Statistics of at least one measurement.
struct Spread {
  double median = 0, low = 0, high = 0;
};

// One row of a study's table.
struct Combination {
  std::string strategy, remedy;           // an empty remedy: no image is missing
  std::optional<std::string> impossible;  // why it cannot be a job; then nothing else is set
  std::string end;                   // of the first run that did not complete, else "completed"
  bool completed = false;            // all runs did
  std::optional<Accuracy> accuracy;  // if a watched run and its references completed
  std::size_t repeats = 0;           // timed runs
  std::optional<Spread> step_ms, bytes_per_step, peak_bytes, loss, recall_at_1;
};

// By strategy, one table for correctness and one for cost. Combinations are in the order of their
// strategies. At most `width` columns wide (from 80: fewer do not hold the figures).
std::string study_text(const std::vector<Combination>& combinations, std::size_t width);
// One Markdown table with all columns.
std::string study_markdown(const std::vector<Combination>& combinations);
// An array of objects; every measurement with median, low and high. In bytes, milliseconds, and
// shares between 0 and 1.
std::string study_json(const std::vector<Combination>& combinations);

}  // namespace lockstep::reports
