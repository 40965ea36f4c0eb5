#include "reports/findings/product_text.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/reports.h"
#include "reports/table.h"
#include "verify/product/assignments.h"
#include "verify/streams/edits.h"

namespace lockstep::reports {

namespace {

constexpr std::size_t kAlignedCalls = 64;  // calls that are aligned
constexpr std::size_t kShownBefore = 2, kShownBehind = 2;
constexpr std::size_t kProgramColumns = 56;  // of the name that a program gives itself

std::string paragraph(const std::string& text, std::size_t width) {
  return fmt::format("  {}\n", wrap(text, width - 2, 4));
}

std::string product_headline(const verify::ProductModel& model,
                             const verify::ProductDecision& decision) {
  const trace::ProductSpec& spec = model.spec();
  std::string verdict(verify::to_string(decision.verdict));
  for (char& c : verdict) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::string program =
      spec.program.empty()
          ? ""
          : fmt::format("{}, ", shorten_middle(printable(spec.program), kProgramColumns));
  return fmt::format("{}: {}{}, {}, {}", verdict, program, plural(spec.world_size, "rank"),
                     plural(spec.conditions.size(), "condition"),
                     spec.only_steps ? plural(*spec.only_steps, "step") : "any number of steps");
}

// A table of the conditions, a row per rank and a column per step. The last steps are shown, since
// it diverges there; ranks that differ are always shown.
std::string table(const verify::ProductModel& model, const verify::Counterexample& example,
                  const ProductTextOptions& options) {
  const verify::Assignment& a = example.assignment;
  const std::size_t first =
      a.steps.size() > options.most_steps ? a.steps.size() - options.most_steps : 0;
  std::set<std::int32_t> ranks;
  for (const trace::Rank r : example.differing) {
    if (ranks.size() < options.most_ranks) ranks.insert(r.value);
  }
  for (std::int32_t r = 0; r < model.ranks() && ranks.size() < options.most_ranks; ++r)
    ranks.insert(r);
  const std::size_t steps = a.steps.size() - first;
  const std::size_t width =
      std::max<std::size_t>(6, (options.width - 12) / std::max<std::size_t>(steps, 1) - 2);
  std::vector<Column> columns = {{""}};
  for (std::size_t s = first; s < a.steps.size(); ++s)
    columns.push_back({shorten_middle(fmt::format("step {}", a.steps[s]), width)});
  Table out(std::move(columns));
  for (const std::int32_t r : ranks) {
    const bool differs =
        std::binary_search(example.differing.begin(), example.differing.end(), trace::Rank(r));
    std::vector<std::string> cells = {fmt::format("{} rank {}", differs ? '>' : ' ', r)};
    for (std::size_t s = first; s < a.steps.size(); ++s) {
      const verify::ProductOption& option = a.options[s][static_cast<std::size_t>(r)];
      cells.push_back(
          shorten_middle(printable(model.spec().conditions[option.condition.value].name), width));
    }
    out.add(std::move(cells));
  }
  const std::size_t hidden = static_cast<std::size_t>(model.ranks()) - ranks.size();
  return hidden == 0
             ? out.text(options.width)
             : fmt::format("{}  and {}\n", out.text(options.width), plural(hidden, "more rank"));
}

// Two sequences of calls in two columns, from a few calls before they diverge: a call that one of
// them leaves out is next to an empty cell.
std::string side_by_side(const verify::Counterexample& example, std::size_t width) {
  const std::vector<std::string>& x = example.reference->calls;
  const std::vector<std::string>& y = example.deviant->calls;
  const std::size_t column = (width - 8) / 2;
  std::string out;
  const auto row = [&](const std::string& left, const std::string& right, char mark) {
    // A table would cut the middle of two long calls, where most differences are. So both are shown
    // in full, one below the other.
    const bool differs = mark == '>' && left != right;
    if (differs && !left.empty() && !right.empty() &&
        shorten_middle(left, column) == shorten_middle(right, column)) {
      out += fmt::format("  {} {}\n  {} {}\n", mark, wrap(left, width - 4, 6), mark,
                         wrap(right, width - 4, 6));
      return;
    }
    std::string line =
        fmt::format("  {} {}  {}", mark, pad_right(shorten_middle(left, column), column),
                    shorten_middle(right, column));
    out.append(line, 0, line.find_last_not_of(' ') + 1).append("\n");
  };
  row(fmt::format("rank {}", example.reference->rank.value),
      fmt::format("rank {}", example.deviant->rank.value), ' ');
  const auto at = [](const std::vector<std::string>& calls, std::size_t i) {
    return i < calls.size() ? calls[i] : std::string();
  };
  std::size_t i = example.first_difference;
  std::size_t j = i;
  for (std::size_t k = i - std::min(i, kShownBefore); k < i; ++k) row(x[k], y[k], ' ');
  if (i < x.size() && j < y.size()) {
    verify::EditProblem problem;
    problem.reference = problem.seen = problem.owed = std::min(kAlignedCalls, x.size() - i);
    problem.deviant = std::min(kAlignedCalls, y.size() - j);
    problem.reference_ends = true;
    // The first pair differs by definition: there the sequences diverge.
    problem.compare_all([&](std::size_t a, std::size_t b) {
      const bool same = !(a == 0 && b == 0) && x[i + a] == y[j + b];
      return same ? std::uint8_t{0} : std::uint8_t{2};
    });
    const verify::FirstEdit edit = verify::first_edit(problem);
    for (std::size_t n = 0; n < std::min(edit.count, kAlignedCalls); ++n) {
      if (edit.kind == verify::FirstEdit::Kind::missing) {
        row(at(x, i++), "", '>');
      } else if (edit.kind == verify::FirstEdit::Kind::extra) {
        row("", at(y, j++), '>');
      } else {
        row(at(x, i++), at(y, j++), '>');
      }
    }
  }
  for (std::size_t n = 0; n < kShownBehind && (i < x.size() || j < y.size()); ++n, ++i, ++j)
    row(at(x, i), at(y, j), at(x, i) == at(y, j) ? ' ' : '>');
  if (i < x.size() || j < y.size()) row(i < x.size() ? "..." : "", j < y.size() ? "..." : "", ' ');
  return out;
}

std::string where(const verify::Counterexample& example) {
  switch (example.where) {
    case verify::Counterexample::Where::start:
      return "before step 0";
    case verify::Counterexample::Where::end:
      return "after the last step";
    case verify::Counterexample::Where::step:
      break;
  }
  return fmt::format("in step {}", example.step);
}

std::string counterexample_text(const verify::ProductModel& model,
                                const verify::Counterexample& example,
                                const ProductTextOptions& options) {
  std::string out = fmt::format(
      "{}\n\n",
      wrap("The shortest path to it that was found (> differs from the others):", options.width));
  out += fmt::format("{}\nWhat happens {}:\n", table(model, example, options), where(example));
  for (const std::string& reason : example.reason) out += paragraph(reason, options.width);
  if (!example.what.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : example.what) names.push_back(printable(name));
    out += paragraph(fmt::format("parameters concerned: {}", join_and(names, 6)), options.width);
  }
  if (example.reference && example.deviant)
    out += fmt::format("\n{}", side_by_side(example, options.width));
  TextOptions text;
  text.color = options.color;
  text.width = options.width;
  return fmt::format("{}\nThat run, judged like a recorded one:\n\n{}", out,
                     text_report(example.report, example.run, text));
}

trace::Run usual_run(const verify::ProductModel& model) {
  const std::optional<verify::Assignment> steps = verify::usual_steps(model);
  return steps ? verify::compose(model, *steps) : trace::Run{};
}

// The report without a counterexample: the verdict is about all runs, the counts are of one of
// them.
verify::Report report_without_findings(const verify::ProductDecision& decision,
                                       const trace::Run& run) {
  verify::Report out;
  if (decision.verdict == verify::ProductVerdict::inconclusive)
    out.verdict = verify::Verdict::inconclusive;
  out.unknown = decision.why;
  out.ranks_expected = run.world_size;
  for (const trace::RankTrace& trace : run.ranks) {
    out.ranks_read.push_back(trace.rank);
    out.events += trace.events.size();
  }
  return out;
}

}  // namespace

std::string product_text_report(const verify::ProductModel& model,
                                const verify::ProductDecision& decision,
                                const ProductTextOptions& options) {
  std::string out = fmt::format("{}\n", wrap(product_headline(model, decision), options.width, 2));
  if (decision.verdict == verify::ProductVerdict::safe) {
    out += paragraph(
        fmt::format(
            "no assignment of conditions to ranks diverges or deadlocks: {}, {}, {} examined",
            plural(decision.situations, "situation"),
            plural(decision.sequences, "different sequence"),
            plural(decision.instances, "collective")),
        options.width);
  }
  for (const std::string& reason : decision.why) out += paragraph(printable(reason), options.width);
  for (const std::string& assumption : model.spec().assumptions)
    out += paragraph(fmt::format("assumed: {}", printable(assumption)), options.width);
  if (decision.counterexample)
    out += fmt::format("\n{}", counterexample_text(model, *decision.counterexample, options));
  return out;
}

namespace {

// The verdict about all mixes, which the report of one run does not hold.
Supplement verdict_of_all(const verify::ProductModel& model,
                          const verify::ProductDecision& decision, const ProductTextOptions& text) {
  const trace::ProductSpec& spec = model.spec();
  nlohmann::ordered_json out;
  out["verdict"] = std::string(verify::to_string(decision.verdict));
  out["program"] = to_utf8(spec.program);
  out["ranks"] = spec.world_size;
  out["steps"] =
      spec.only_steps ? nlohmann::ordered_json(*spec.only_steps) : nlohmann::ordered_json();
  for (const auto& condition : spec.conditions)
    out["conditions"].push_back(to_utf8(condition.name));
  out["examined"] = {{"situations", decision.situations},
                     {"sequences", decision.sequences},
                     {"collectives", decision.instances}};
  out["assumptions"] = nlohmann::ordered_json::array();
  for (const std::string& assumption : spec.assumptions)
    out["assumptions"].push_back(to_utf8(assumption));
  out["why"] = nlohmann::ordered_json::array();
  for (const std::string& reason : decision.why) out["why"].push_back(to_utf8(reason));
  if (decision.counterexample) {
    const verify::Assignment& mix = decision.counterexample->assignment;
    for (std::size_t s = 0; s < mix.steps.size(); ++s) {
      nlohmann::ordered_json step = {{"step", mix.steps[s]}};
      for (const verify::ProductOption& option : mix.options[s])
        step["conditions_by_rank"].push_back(to_utf8(spec.conditions[option.condition.value].name));
      out["counterexample"].push_back(std::move(step));
    }
  }
  return {.title = "Every mix of batches",
          .text = product_text_report(model, decision, text),
          .key = "all_mixes",
          .json = out.dump(),
          .alone = !decision.counterexample};
}

}  // namespace

Status write_product_reports(const verify::ProductModel& model,
                             const verify::ProductDecision& decision, const ReportOptions& options,
                             const Filter& filter) {
  if (options.outputs.empty()) return Status::ok();
  ReportOptions files = options;
  files.quiet = true;
  files.supplement = verdict_of_all(model, decision, {});
  if (const auto& example = decision.counterexample)
    return write_reports(filtered(example->report, example->run, filter, today_utc()), example->run,
                         files);
  const trace::Run run = usual_run(model);
  return write_reports(filtered(report_without_findings(decision, run), run, filter, today_utc()),
                       run, files);
}

}  // namespace lockstep::reports
