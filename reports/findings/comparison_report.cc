#include "reports/findings/comparison_report.h"

#include "base/amount.h"
#include "base/text.h"

namespace lockstep {

namespace {

std::string apart(double x) { return x == 0 ? "equal" : scientific(x); }

std::string kind(const TensorDifference& d) {
  return d.phase == Phase::param ? "parameter" : "gradient of";
}

std::string comparison_headline(const Comparison& c) {
  if (c.compared == 0 && !c.max_loss_difference) {
    return "NOTHING TO COMPARE: the runs have no recorded value in common\n";
  }
  if (c.compared == 0) {
    return "LOSSES ONLY: the runs have no recorded tensor in common (watch: {every: 1})\n";
  }
  if (!c.parted) {
    std::string out = "THE SAME up to rounding: " + plural(c.compared, "value") + " compared";
    if (c.drifted) out += ";\n  differences of rounding grow from step to step (marked !)";
    return out + "\n";
  }
  const TensorDifference& d = *c.parted;
  std::string out = "PARTED in step " + std::to_string(d.n) + ": " + kind(d) + " " +
                    printable(d.name) + " differs by " + (d.lower_bound ? "at least " : "about ") +
                    fixed(100 * d.error, d.error < 0.01 ? 4 : 1) + " % (rounding explains " +
                    fixed(100 * d.tolerance, 3) + " %); its norm is " + fixed(d.ratio, 4) +
                    " times the second run's";
  if (d.cosine) out += ", the cosine between them " + fixed(*d.cosine, 4);
  return wrap(out, 80, 2) + "\n";
}

std::string difference_cell(const std::optional<TensorDifference>& d) {
  if (!d) return "-";
  return apart(d->error) + (d->error > d->tolerance ? " !" : "");
}

std::string comparison_row(const std::string& n, const std::string& a, const std::string& b,
                           const std::string& gradient, const std::string& parameter,
                           const std::string& worst) {
  const auto padded = [](std::string text, std::size_t width) {
    if (text.size() < width) text.insert(0, width - text.size(), ' ');
    return text;
  };
  std::string name = worst;
  constexpr std::size_t kNameWidth = 26;
  if (name.size() > kNameWidth) name = "…" + name.substr(name.size() - kNameWidth + 1);
  return padded(n, 6) + padded(a, 10) + padded(b, 10) + padded(gradient, 12) +
         padded(parameter, 12) + "  " + name + "\n";
}

}  // namespace

std::string comparison_text(const Comparison& c, std::size_t lines) {
  std::string out = comparison_headline(c);
  if (c.max_loss_difference) {
    out += "losses at most " + apart(*c.max_loss_difference) + " apart\n";
  }
  if (c.only_in_one > 0) {
    out += plural(c.only_in_one, "tensor") + " that one run alone recorded left out\n";
  }
  if (c.steps.empty()) return out;
  out += "\n" +
         comparison_row("step", "loss 1", "loss 2", "gradients", "parameters", "worst gradient");
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    if (c.steps.size() > lines && i == lines / 2) {
      const std::size_t left_out = c.steps.size() - lines;
      out += "   ... " + plural(left_out, "more step") + "\n";
      i += left_out;
    }
    const StepDifference& s = c.steps[i];
    const auto loss = [](const std::optional<double>& x) { return x ? fixed(*x, 5) : "-"; };
    out += comparison_row(std::to_string(s.n), loss(s.loss_a), loss(s.loss_b),
                          difference_cell(s.gradient), difference_cell(s.parameter),
                          s.gradient ? printable(s.gradient->name) : "");
  }
  return out;
}

}  // namespace lockstep
