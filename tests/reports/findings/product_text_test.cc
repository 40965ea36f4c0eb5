#include "reports/findings/product_text.h"

#include <sstream>

#include <gmock/gmock.h>

#include "tests/verify/product/small_product.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;
using verify::SmallProduct;

std::string text_of(const SmallProduct& product, std::size_t width = 80) {
  const trace::Derivation derivation = product.derivation();
  const verify::ProductModel model(derivation);
  return product_text_report(model, verify::decide(model), {.width = width});
}

TEST(ProductText, HasTheConditionsAndBothSequences) {
  SmallProduct p(4);
  p.condition("image", "A:image A:text");
  p.condition("text", "A:text");
  const std::string text = text_of(p);
  EXPECT_THAT(text, HasSubstr("DIVERGES: small, 4 ranks, 2 conditions, any number of steps\n"));
  EXPECT_THAT(text, HasSubstr("step 0"));
  EXPECT_THAT(text, HasSubstr("> rank "));
  EXPECT_THAT(text, HasSubstr("    rank 1                                rank 0\n"
                              "  > all_reduce(image)\n"
                              "    all_reduce(text)                      all_reduce(text)\n"));
}

// The columns are narrow, and names of parameters differ in the middle.
TEST(ProductText, TheSidesShowTheDifferenceThatTheTextNames) {
  const std::string stem = "A:backbone.encoder.transformer.layers.";
  SmallProduct p(2);
  p.condition("image", stem + "11.attention.output.dense.weight");
  p.condition("text", stem + "12.attention.output.dense.weight");
  const std::string names = text_of(p);
  EXPECT_THAT(names, HasSubstr("backbone.encoder.transformer.layers.11.attention"));
  EXPECT_THAT(names, HasSubstr("backbone.encoder.transformer.layers.12.attention"));

  SmallProduct sizes(2);
  sizes.condition("image", stem + "11.attention.output.dense.weight:1048576");
  sizes.condition("text", stem + "11.attention.output.dense.weight:1048577");
  const std::string text = text_of(sizes);
  const std::string sides = text.substr(0, text.find("That run"));
  EXPECT_THAT(sides, HasSubstr("of 1048576 (sum)"));
  EXPECT_THAT(sides, HasSubstr("of 1048577 (sum)"));
}

TEST(ProductText, FitsTheTerminal) {
  SmallProduct p(4);
  p.condition("image", "A:image A:text");
  p.condition("text", "A:text");
  p.spec.program = "DDP that skips unused buckets on one rank of all of them";
  EXPECT_THAT(text_of(p), HasSubstr("DIVERGES: " + p.spec.program + ","));
  p.spec.program += std::string(100, 'x');
  for (const std::size_t width : {60U, 100U}) {
    std::istringstream lines(text_of(p, width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
  }
  EXPECT_THAT(text_of(p, 60), HasSubstr("    rank 1                      rank 0\n"));
}

}  // namespace
}  // namespace lockstep::reports
