// The verdict about a product as text, at most 80 columns wide: the counterexample as a table of
// ranks and steps, the two sequences side by side where they part, and what verify() says of the
// run.
#pragma once

#include <string>

#include "verify/product/decide.h"

namespace lockstep {

struct ProductTextOptions {
  bool color = false;
  std::size_t most_ranks = 12;  // in the table; ranks that differ are always there
  std::size_t most_steps = 8;
};

std::string product_text_report(const ProductModel& model, const ProductDecision& decision,
                                const ProductTextOptions& options = {});

}  // namespace lockstep
