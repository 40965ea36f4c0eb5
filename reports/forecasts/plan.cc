#include "reports/forecasts/plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/csv_field.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "reports/html/stacked_charts.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;
using sim::ForecastPart;
using sim::PlanForecast;

constexpr std::size_t kHeadlineColumns = 12;  // of the headlines
constexpr std::size_t kParts = 32;            // of a part's name
constexpr std::size_t kFigure = 12;           // of a part's figure

std::string seconds(double value) {
  if (value < 1e-3) return fixed(value * 1e6, 1) + " us";
  return value < 1 ? fixed(value * 1e3, 2) + " ms" : fixed(value, value < 100 ? 3 : 1) + " s";
}

// Of what lasts minutes or hours.
std::string minutes(double value) {
  if (value < 60) return seconds(value);
  return value < 7200 ? fmt::format("{:.1f} min", value / 60)
                      : fmt::format("{:.1f} h", value / 3600);
}

std::string count(double value) {
  return value < 100 ? fixed(value, 2)
                     : grouped(static_cast<std::uint64_t>(std::llround(std::min(value, 1e18))));
}

std::string table_line(const std::string& what, const std::string& figure,
                       const std::string& more) {
  return "  " + pad_right(what, kParts) + pad_left(figure, kFigure) +
         (more.empty() ? "" : pad_left(more, 10)) + "\n";
}

std::string model_text(const sim::PlanForecast& f) {
  const sim::Transformer& m = f.plan.model;
  std::string out = f.plan.model_name.empty() ? "" : printable(f.plan.model_name) + ": ";
  out += plural(static_cast<std::uint64_t>(m.layers), "layer") + ", hidden " +
         std::to_string(m.hidden) + ", " + plural(static_cast<std::uint64_t>(m.heads), "head");
  if (m.kv_heads != m.heads) out += " (" + std::to_string(m.kv_heads) + " of keys and values)";
  out += std::string(", ") + (m.gated ? "gated " : "") + "ffn " + std::to_string(m.ffn) + ", " +
         grouped(static_cast<std::uint64_t>(m.vocabulary)) + " words; " +
         fixed(static_cast<double>(sim::parameters(m)) * 1e-9, 2) + " billion parameters";
  return out;
}

std::string layout_text(const sim::PlanForecast& f) {
  const sim::TrainingPlan& p = f.plan.plan;
  std::string out = plural(static_cast<std::uint64_t>(p.ranks()), "GPU") + " in nodes of " +
                    std::to_string(f.calibration.cost.ranks_per_node) + ": tensor " +
                    std::to_string(p.tensor);
  if (p.sequence_parallel) out += " with sequence parallelism";
  if (p.overlapped_tensor) out += ", async";
  if (p.context > 1) out += ", context " + std::to_string(p.context);
  out += ", pipeline " + std::to_string(p.pipeline);
  if (p.pipeline > 1) {
    out += " (" + std::string(sim::pipeline_schedule_name(p.schedule));
    out += p.chunks > 1 ? ", " + std::to_string(p.chunks) + " chunks)" : ")";
  }
  return out + ", data " + std::to_string(p.data) + ", ZeRO " +
         std::to_string(static_cast<int>(p.sharding));
}

std::string_view recompute_name(sim::Recompute recompute) {
  return recompute == sim::Recompute::full        ? "full"
         : recompute == sim::Recompute::selective ? "selective"
                                                  : "none";
}

std::string batch_text(const sim::PlanForecast& f) {
  const sim::TrainingPlan& p = f.plan.plan;
  return grouped(static_cast<std::uint64_t>(p.global_batch)) + " sequences of " +
         grouped(static_cast<std::uint64_t>(p.sequence)) + " tokens; " +
         plural(static_cast<std::uint64_t>(p.micro_batches()), "micro-batch", "micro-batches") +
         " of " + std::to_string(p.micro_batch) + " on each data-parallel rank; recompute " +
         std::string(recompute_name(p.recompute)) + (p.fp8 ? ", float8" : ", bfloat16") +
         (p.compiled ? ", compiled" : "");
}

// The largest part that a plan can change; what the libraries reserve is not one.
const sim::ForecastPart& largest(const sim::PlanForecast& f) {
  const auto size = [](const sim::ForecastPart& part) {
    return part.key == "reserved" ? 0 : part.value;
  };
  return *std::max_element(
      f.memory.begin(), f.memory.end(),
      [&](const sim::ForecastPart& a, const sim::ForecastPart& b) { return size(a) < size(b); });
}

// `text` to the right of a column of names.
std::string beside_names(const std::string& text) {
  const std::string lines = wrap(text, kReportColumns - kHeadlineColumns - 1);
  std::string out;
  for (const char c : lines)
    out += c == '\n' ? "\n" + std::string(kHeadlineColumns + 1, ' ') : std::string(1, c);
  return out + "\n";
}

std::string basis_text(const sim::PlanForecast& f) {
  std::string out;
  const auto line = [&](const std::string& text) {
    out += "  " + wrap(text, kReportColumns - 2, 4) + "\n";
  };
  for (const std::string& sentence : f.basis()) line(sentence);
  for (const auto* parts : {&f.time, &f.memory})
    for (const sim::ForecastPart& part : *parts) line(part.what + ": " + part.rests_on);
  return out;
}

Json model_json(const sim::PlanFile& plan) {
  const sim::Transformer& m = plan.model;
  Json out;
  if (!plan.model_name.empty()) out["name"] = printable(plan.model_name);
  out["layers"] = m.layers;
  out["hidden"] = m.hidden;
  out["heads"] = m.heads;
  out["kv_heads"] = m.kv_heads;
  out["ffn"] = m.ffn;
  out["vocabulary"] = m.vocabulary;
  out["gated"] = m.gated;
  out["tied_embeddings"] = m.tied_embeddings;
  out["fused_attention"] = m.fused_attention;
  out["causal"] = m.causal;
  out["parameters"] = sim::parameters(m);
  return out;
}

Json layout_json(const sim::PlanForecast& f) {
  const sim::TrainingPlan& p = f.plan.plan;
  return {{"gpus", p.ranks()},
          {"gpus_per_node", f.calibration.cost.ranks_per_node},
          {"tensor", p.tensor},
          {"sequence_parallel", p.sequence_parallel},
          {"async_tensor", p.overlapped_tensor},
          {"overlap",
           {{"gradients", p.overlapped_gradients},
            {"context", p.overlapped_context},
            {"pipeline", p.overlapped_pipeline}}},
          {"context", p.context},
          {"pipeline",
           {{"stages", p.pipeline},
            {"schedule", sim::pipeline_schedule_name(p.schedule)},
            {"chunks", p.chunks}}},
          {"data", p.data},
          {"zero", static_cast<int>(p.sharding)},
          {"sequence", p.sequence},
          {"micro_batch", p.micro_batch},
          {"micro_batches", p.micro_batches()},
          {"global_batch", p.global_batch},
          {"recompute", recompute_name(p.recompute)},
          {"dtype", p.fp8 ? "float8" : "bfloat16"},
          {"compile", p.compiled}};
}

// `whole`: what the values sum up to, in `unit`.
Json parts_json(const std::vector<sim::ForecastPart>& parts, const char* unit, double whole) {
  Json out = Json::array();
  for (const sim::ForecastPart& part : parts)
    out.push_back({{"part", part.key},
                   {"what", part.what},
                   {unit, part.value},
                   {"share", part.value / whole},
                   {"rests_on", part.rests_on}});
  return out;
}

std::string exact(double value) {
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

}  // namespace

std::vector<PlanLine> plan_description(const sim::PlanForecast& f) {
  return {{"model", model_text(f)},
          {"layout", layout_text(f)},
          {"batch", batch_text(f)},
          {"calibration", printable(f.calibration.name)}};
}

std::vector<PlanLine> plan_headlines(const sim::PlanForecast& f) {
  std::vector<PlanLine> out = {
      {"step time", fmt::format("{} ({} to {} in four cases of five)", seconds(f.step.seconds),
                                seconds(f.least_seconds), seconds(f.most_seconds))},
      {"tokens/s",
       count(f.tokens_per_second) + ", " + count(f.tokens_per_second / f.gpus()) + " a GPU"},
      {"samples/s", count(f.samples_per_second)},
      {"MFU", percent(f.mfu)}};
  if (f.plan.plan.recompute != sim::Recompute::none) out.push_back({"HFU", percent(f.hfu)});
  if (f.plan.plan.pipeline > 1)
    out.push_back({"bubble", percent(f.bubble_share) + " of the pipeline's time"});
  if (f.goodput)
    out.push_back(
        {"goodput",
         fmt::format("{}: {} tokens/s; a failure every {}, a checkpoint after {} of work (best: "
                     "{}; by Young {}, by Daly {})",
                     percent(f.goodput->share), count(f.goodput->share * f.tokens_per_second),
                     minutes(f.goodput->mtbf), minutes(f.goodput->interval),
                     minutes(f.goodput->best), minutes(f.goodput->young),
                     minutes(f.goodput->daly))});
  out.push_back({"memory", amount(f.step.memory_bytes)});
  return out;
}

std::string plan_fit(const sim::PlanForecast& f) {
  if (!f.gpu_memory) return {};
  const auto has = static_cast<double>(f.gpu_memory->value);
  const double missing = f.missing_bytes();
  if (missing == 0)
    return "fits " + amount(has) + ", " + amount(has - f.step.memory_bytes) + " are left";
  const sim::ForecastPart& most = largest(f);
  if (!f.surely_too_large())
    return fmt::format(
        "may not fit {}: {} too much on stage {}, which is within the {:.0f} % by which measured "
        "peaks differ from predictions",
        amount(has), amount(missing), f.step.memory.stage, 100 * sim::kMemorySpread);
  return fmt::format("does not fit {}: {} too much on stage {}; the most are {}, {}", amount(has),
                     amount(missing), f.step.memory.stage, most.what, amount(most.value));
}

std::string plan_text(const sim::PlanForecast& f) {
  std::string out = wrap(printable(f.plan.name), kReportColumns) + "\n\n";
  const auto lines = [&](const std::vector<PlanLine>& of) {
    for (const PlanLine& line : of)
      out += pad_right(line.what, kHeadlineColumns) + " " + beside_names(line.value);
  };
  lines(plan_description(f));
  out += "\n";
  lines(plan_headlines(f));
  if (const std::string fit = plan_fit(f); !fit.empty())
    out += std::string(kHeadlineColumns + 1, ' ') + beside_names(fit);
  out += "\nwhere the step's time goes, mean over the GPUs\n";
  for (const sim::ForecastPart& part : f.time)
    out += table_line(part.what, seconds(part.value), percent(part.value / f.step.seconds));
  out += table_line("together", seconds(f.step.seconds), percent(1));
  out += "\nmemory of a GPU" +
         (f.plan.plan.pipeline > 1
              ? " of stage " + std::to_string(f.step.memory.stage) + ", the fullest"
              : std::string()) +
         "\n";
  for (const sim::ForecastPart& part : f.memory)
    out += table_line(part.what, amount(part.value), percent(part.value / f.step.memory_bytes));
  out += table_line("together", amount(f.step.memory_bytes), percent(1));
  return out + "\nwhat this rests on (docs/simulate-workloads.md)\n" + basis_text(f);
}

std::string plan_json(const sim::PlanForecast& f) {
  Json out;
  out["plan"] = printable(f.plan.name);
  out["calibration"] = printable(f.calibration.name);
  out["model"] = model_json(f.plan);
  out["layout"] = layout_json(f);
  out["step_time_s"] = f.step.seconds;
  out["step_time_interval_s"] = {f.least_seconds, f.most_seconds};
  out["tokens_per_s"] = f.tokens_per_second;
  out["tokens_per_s_per_gpu"] = f.tokens_per_second / f.gpus();
  out["samples_per_s"] = f.samples_per_second;
  out["mfu"] = f.mfu;
  out["hfu"] = f.hfu;
  out["bubble_share"] = f.bubble_share;
  if (f.goodput)
    out["goodput"] = {{"share", f.goodput->share},
                      {"tokens_per_s", f.goodput->share * f.tokens_per_second},
                      {"mtbf_s", f.goodput->mtbf},
                      {"interval_s", f.goodput->interval},
                      {"best_interval_s", f.goodput->best},
                      {"young_interval_s", f.goodput->young},
                      {"daly_interval_s", f.goodput->daly}};
  out["time"] = parts_json(f.time, "seconds", f.step.seconds);
  Json& memory = out["memory"];
  memory["stage"] = f.step.memory.stage;
  memory["bytes"] = f.step.memory_bytes;
  if (f.gpu_memory) {
    memory["gpu_bytes"] = f.gpu_memory->value;
    memory["fits"] = f.missing_bytes() == 0;
    memory["surely_too_large"] = f.surely_too_large();
    memory["missing_bytes"] = f.missing_bytes();
  }
  memory["largest"] = largest(f).key;
  memory["parts"] = parts_json(f.memory, "bytes", f.step.memory_bytes);
  out["rests_on"] = f.basis();
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string plan_csv(const sim::PlanForecast& f) {
  std::string out = "quantity,value,unit,rests_on\r\n";
  const auto line = [&](const std::string& quantity, double value, const char* unit,
                        const std::string& rests_on) {
    out +=
        csv_field(quantity) + "," + exact(value) + "," + unit + "," + csv_field(rests_on) + "\r\n";
  };
  line("step_time", f.step.seconds, "s", "");
  line("tokens_per_second", f.tokens_per_second, "1/s", "");
  line("tokens_per_second_per_gpu", f.tokens_per_second / f.gpus(), "1/s", "");
  line("samples_per_second", f.samples_per_second, "1/s", "");
  line("mfu", f.mfu, "1", "");
  line("hfu", f.hfu, "1", "");
  line("bubble_share", f.bubble_share, "1", "");
  for (const sim::ForecastPart& part : f.time)
    line("time." + part.key, part.value, "s", part.rests_on);
  line("memory", f.step.memory_bytes, "B", "");
  for (const sim::ForecastPart& part : f.memory)
    line("memory." + part.key, part.value, "B", part.rests_on);
  if (f.gpu_memory) line("memory_missing", f.missing_bytes(), "B", "");
  return out;
}

// The page of `lockstep simulate plan`.

namespace {

using html::element;
using html::text;
using sim::ForecastPart;
using sim::PlanForecast;

// The parts that share a series in the bar: there are fewer styles than parts of a step.
const std::map<std::string_view, std::size_t>& series_of_part() {
  static const std::map<std::string_view, std::size_t> out = {
      {"layers", 0},        {"recompute", 0},         {"logits", 0},
      {"host", 1},          {"tensor_parallel", 2},   {"context_parallel", 3},
      {"data_parallel", 4}, {"pipeline_transfer", 5}, {"pipeline_bubble", 6},
      {"optimizer", 7},     {"overhead", 7}};
  return out;
}

const std::vector<html::Series>& time_series() {
  static const std::vector<html::Series> out = {
      {"computes", 0},         {"waits for the host", 1},    {"tensor parallel", 2},
      {"context parallel", 3}, {"data parallel", 4},         {"between stages", 5},
      {"bubble", 6},           {"optimizer, once a step", 7}};
  return out;
}

std::string plan_card(std::string_view title, const std::string& content) {
  return "<section class=\"card\"><h2>" + html::text(title) + "</h2>" + content + "</section>\n";
}

std::string parts_table(const std::string& name, const std::vector<sim::ForecastPart>& parts,
                        double whole, std::string (*words)(double)) {
  std::string rows;
  for (const sim::ForecastPart& part : parts)
    rows += "<tr>" + html::element("td", "", html::text(part.what)) +
            html::element("td", "n", html::text(words(part.value))) +
            html::element("td", "n", html::text(fixed(100 * part.value / whole, 1) + " %")) +
            html::element("td", "", html::text(part.rests_on)) + "</tr>\n";
  rows += "<tr><td>together</td>" + html::element("td", "n", html::text(words(whole))) +
          "<td class=\"n\">100.0 %</td><td></td></tr>\n";
  return html::scroller(name,
                        "<table><thead><tr><th></th><th class=\"n\"></th><th class=\"n\">share</th>"
                        "<th>rests on</th></tr></thead><tbody>\n" +
                            rows + "</tbody></table>");
}

std::string time_card(const sim::PlanForecast& f) {
  // Parts that share a series are added up in the bar; the table below keeps them apart.
  html::StackedBar bar{"a step", std::vector<double>(time_series().size(), 0)};
  for (const sim::ForecastPart& part : f.time)
    bar.parts[series_of_part().at(part.key)] += part.value;
  return plan_card("Where the step's time goes",
                   html::stacked_bars("parts of a step", time_series(), {bar}, f.step.seconds) +
                       parts_table("parts of a step", f.time, f.step.seconds, milliseconds));
}

std::string memory_card(const sim::PlanForecast& f) {
  std::vector<html::Series> series;
  html::StackedBar bar{"stage " + std::to_string(f.step.memory.stage), {}};
  for (const sim::ForecastPart& part : f.memory) {
    series.push_back({part.what, series.size()});
    bar.parts.push_back(part.value);
  }
  const std::string fit = plan_fit(f);
  return plan_card(
      "Memory of a GPU of the fullest stage",
      (fit.empty() ? "" : html::element("p", "caption", html::sentence(fit) + ".")) +
          html::stacked_bars("parts of a GPU's memory", series, {bar}, f.step.memory_bytes) +
          parts_table("parts of a GPU's memory", f.memory, f.step.memory_bytes, amount));
}

std::string numbers_list(const std::vector<PlanLine>& lines) {
  std::string out;
  for (const PlanLine& line : lines)
    out += "<div>" + html::element("dt", "", html::text(line.what)) +
           html::element("dd", "", html::text(line.value)) + "</div>";
  return html::element("dl", "numbers", out);
}

}  // namespace

std::string plan_html(const sim::PlanForecast& f) {
  std::string description, basis;
  for (const PlanLine& line : plan_description(f))
    description += html::element("li", "", html::text(line.what + ": " + line.value)) + "\n";
  for (const std::string& sentence : f.basis())
    basis += html::element("li", "", html::sentence(sentence) + ".") + "\n";
  return html::page("Lockstep plan: " + f.plan.name,
                    "<p class=\"brand\">Lockstep plan</p>\n<main>\n<header class=\"verdict\">" +
                        html::element("h1", "", html::text(f.plan.name)) +
                        numbers_list(plan_headlines(f)) + "</header>\n" +
                        plan_card("Plan", html::element("ul", "plain", description)) +
                        time_card(f) + memory_card(f) +
                        plan_card("What this rests on", html::element("ul", "plain", basis)) +
                        "</main>\n<footer><p>" +
                        html::text("lockstep " + std::string(tool_version())) + "</p></footer>\n");
}

}  // namespace lockstep::reports
