#include "reports/forecasts/plan.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/forecasts/parts.h"
#include "reports/forecasts/step_picture.h"
#include "reports/html/charts.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "reports/table.h"
#include "sim/transformer/step_reason.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;

std::string model_text(const sim::PlanForecast& f) {
  const sim::Transformer& m = f.plan.model;
  std::string out =
      f.plan.model_name.empty() ? "" : fmt::format("{}: ", printable(f.plan.model_name));
  out += fmt::format("{}, hidden {}, {}", plural(m.layers, "layer"), grouped(m.hidden),
                     plural(m.heads, "head"));
  if (m.kv_heads != m.heads) out += fmt::format(" ({} of keys and values)", m.kv_heads);
  out += fmt::format(", {}ffn {}", m.gated ? "gated " : "", grouped(m.ffn));
  if (m.experts > 0)
    out += fmt::format(" in each of {}, {} for a token", plural(m.experts, "expert"),
                       m.experts_per_token);
  out += fmt::format(", {} {}; {} billion parameters", grouped(m.vocabulary),
                     m.diffusion ? "values a token" : "words",
                     number_text(static_cast<double>(sim::parameters(m)) * 1e-9));
  if (m.experts > 0 || m.side_parameters > 0)
    out += fmt::format(", {} of them for a token",
                       number_text(static_cast<double>(sim::active_parameters(m)) * 1e-9));
  return out;
}

std::string layout_text(const sim::PlanForecast& f) {
  const sim::TrainingPlan& p = f.plan.plan;
  std::string out = fmt::format("{} in nodes of {}: tensor {}", plural(p.ranks(), "GPU"),
                                f.calibration.cost.ranks_per_node, p.tensor);
  if (p.sequence_parallel) out += " with sequence parallelism";
  if (p.overlapped_tensor) out += ", async";
  return out + layout_beyond_tensor(p, p.chunks > 1 ? fmt::format(", {} chunks", p.chunks) : "");
}

std::string_view recompute_name(sim::Recompute recompute) {
  return sim::kRecomputeNames[static_cast<std::size_t>(recompute)];
}

std::string batch_text(const sim::PlanForecast& f) {
  const sim::TrainingPlan& p = f.plan.plan;
  return fmt::format(
      "{} sequences of {} tokens; {} of {} on each data-parallel rank; recompute {}, {}{}{}",
      grouped(p.global_batch), grouped(p.sequence),
      plural(p.micro_batches(), "micro-batch", "micro-batches"), p.micro_batch,
      recompute_name(p.recompute), p.fp8 ? "float8" : "bfloat16", p.compiled ? ", compiled" : "",
      p.plain_kernels ? ", PyTorch's kernels" : "");
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

PartsOfWhole time_parts(const sim::PlanForecast& f) {
  return {f.time, f.step.seconds, duration_text};
}

PartsOfWhole memory_parts(const sim::PlanForecast& f) {
  return {f.memory, f.need.bytes, bytes_text};
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
  if (m.experts > 0) {
    out["experts"] = m.experts;
    out["experts_per_token"] = m.experts_per_token;
  }
  if (m.side_parameters > 0) out["side_parameters"] = m.side_parameters;
  if (m.two_stream_layers > 0) out["two_stream_layers"] = m.two_stream_layers;
  if (m.experts > 0 || m.side_parameters > 0) out["active_parameters"] = sim::active_parameters(m);
  out["gated"] = m.gated;
  out["tied_embeddings"] = m.tied_embeddings;
  out["fused_attention"] = m.fused_attention;
  out["causal"] = m.causal;
  if (m.diffusion) out["diffusion"] = true;
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
          {"expert", p.expert},
          {"expert_skew", p.expert_skew},
          {"pipeline",
           {{"stages", p.pipeline},
            {"schedule", sim::pipeline_schedule_name(p.schedule)},
            {"chunks", p.chunks}}},
          {"data", p.data},
          {"zero", static_cast<int>(p.sharding)},
          {"scatter", p.scatters_each_micro_batch ? "micro_batch" : "step"},
          {"sequence", p.sequence},
          {"micro_batch", p.micro_batch},
          {"micro_batches", p.micro_batches()},
          {"global_batch", p.global_batch},
          {"recompute", recompute_name(p.recompute)},
          {"dtype", p.fp8 ? "float8" : "bfloat16"},
          {"compile", p.compiled},
          {"kernels", p.plain_kernels ? "pytorch" : "fused"}};
}

// The plan, in a few words each.
std::vector<NamedFigure> plan_description(const sim::PlanForecast& f) {
  return {{"model", model_text(f)},
          {"layout", layout_text(f)},
          {"batch", batch_text(f)},
          {"calibration", printable(f.calibration.name)}};
}

std::vector<NamedFigure> plan_headlines(const sim::PlanForecast& f) {
  std::vector<NamedFigure> out = {
      {"step time", step_time_text(f.step.seconds, f.range)},
      {"tokens/s", fmt::format("{}, {} per GPU", number_text(f.tokens_per_second),
                               number_text(f.tokens_per_second / f.gpus()))},
      {"samples/s", number_text(f.samples_per_second)},
      {"MFU", percent(f.mfu)}};
  // Without recomputation the hardware carries out what the model needs, and HFU is MFU.
  if (f.plan.plan.recompute != sim::Recompute::none) out.push_back({"HFU", percent(f.hfu)});
  if (f.plan.plan.pipeline > 1)
    out.push_back({"bubble", fmt::format("{} of the pipeline's time", percent(f.bubble_share))});
  if (f.goodput) out.push_back({"goodput", goodput_text(*f.goodput, f.tokens_per_second)});
  out.push_back({"memory", bytes_text(f.need.bytes)});
  return out;
}

// What fits, and of what surely does not, what takes the most; empty: the GPU's memory is not
// known.
std::string plan_fit(const sim::PlanForecast& f) {
  if (!f.need.gpu) return {};
  const std::string fit = fit_text(f.need, fmt::format("stage {}", f.step.memory.stage));
  if (!f.need.surely_too_large()) return fit;
  const sim::ForecastPart& most = largest(f);
  return fmt::format("{}; the most are {}, {}", fit, most.what, bytes_text(most.value));
}

}  // namespace

std::string plan_text(const sim::PlanForecast& f, std::size_t width) {
  std::vector<NamedFigure> headlines = plan_headlines(f);
  if (const std::string fit = plan_fit(f); !fit.empty()) headlines.push_back({"", fit});
  headlines.push_back({"reason", sim::reason_of(f)});
  const std::string stage =
      f.plan.plan.pipeline > 1 ? fmt::format(" of stage {}, the fullest", f.step.memory.stage) : "";
  return fmt::format(
      "{}\n\n{}\n{}\nwhere the step's time goes, mean over the GPUs\n{}\nmemory of a GPU{}\n{}\n"
      "what this rests on (docs/simulate-workloads.md)\n{}",
      wrap(printable(plan_title(f.plan)), width), figures_text(plan_description(f), width),
      figures_text(headlines, width), parts_text(time_parts(f), width), stage,
      parts_text(memory_parts(f), width), basis_text(f.basis(), {&f.time, &f.memory}, width));
}

std::string plan_json(const sim::PlanForecast& f) {
  Json out;
  out["plan"] = printable(f.plan.name);
  if (!f.plan.settings.empty()) out["settings"] = f.plan.settings;
  out["calibration"] = printable(f.calibration.name);
  out["model"] = model_json(f.plan);
  out["layout"] = layout_json(f);
  out["step_time_s"] = f.step.seconds;
  out["step_time_interval_s"] = {f.range.least, f.range.most};
  out["tokens_per_s"] = f.tokens_per_second;
  out["tokens_per_s_per_gpu"] = f.tokens_per_second / f.gpus();
  out["samples_per_s"] = f.samples_per_second;
  out["mfu"] = f.mfu;
  out["hfu"] = f.hfu;
  out["bubble_share"] = f.bubble_share;
  if (f.goodput) out["goodput"] = goodput_json(*f.goodput, f.tokens_per_second);
  out["reason"] = sim::reason_of(f);
  out["time"] = parts_json(time_parts(f), "seconds");
  Json& memory = out["memory"];
  memory["stage"] = f.step.memory.stage;
  memory["bytes"] = f.need.bytes;
  add_fit(memory, f.need);
  memory["largest"] = largest(f).key;
  memory["parts"] = parts_json(memory_parts(f), "bytes");
  out["rests_on"] = f.basis();
  return fmt::format("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

std::string plan_csv(const sim::PlanForecast& f) {
  Table out(columns({"quantity"}, {"value"}, {"unit", "rests_on"}));
  const auto line = [&](const std::string& quantity, double value, const char* unit,
                        const std::string& rests_on) {
    out.add({quantity, fmt::format("{}", value), unit, rests_on});
  };
  line("step_time", f.step.seconds, "s", "");
  line("tokens_per_second", f.tokens_per_second, "1/s", "");
  line("tokens_per_second_per_gpu", f.tokens_per_second / f.gpus(), "1/s", "");
  line("samples_per_second", f.samples_per_second, "1/s", "");
  line("mfu", f.mfu, "1", "");
  line("hfu", f.hfu, "1", "");
  line("bubble_share", f.bubble_share, "1", "");
  for (const sim::ForecastPart& part : f.time)
    line(fmt::format("time.{}", part.key), part.value, "s", part.rests_on);
  line("memory", f.need.bytes, "B", "");
  for (const sim::ForecastPart& part : f.memory)
    line(fmt::format("memory.{}", part.key), part.value, "B", part.rests_on);
  if (f.need.gpu) line("memory_missing", f.need.missing(), "B", "");
  return out.csv();
}

// The page of `lockstep simulate plan`.

namespace {

// The parts that share a series in the bar: there are fewer styles than parts of a step.
const std::map<std::string_view, std::size_t>& series_of_part() {
  static const std::map<std::string_view, std::size_t> out = {{"layers", 0},
                                                              {"recompute", 0},
                                                              {"logits", 0},
                                                              {"host", 1},
                                                              {"tensor_parallel", 2},
                                                              {"context_parallel", 3},
                                                              {"expert_parallel", 3},
                                                              {"data_parallel", 4},
                                                              {"pipeline_transfer", 5},
                                                              {"pipeline_bubble", 6},
                                                              {"optimizer", 7},
                                                              {"overhead", 7}};
  return out;
}

const std::vector<html::Series>& time_series() {
  static const std::vector<html::Series> out = {
      {"computes", 0},        {"waits for the host", 1},
      {"tensor parallel", 2}, {"context, expert parallel", 3},
      {"data parallel", 4},   {"between stages", 5},
      {"bubble", 6},          {"optimizer, once a step", 7}};
  return out;
}

std::string time_card(const sim::PlanForecast& f) {
  // Parts that share a series are added up in the bar; the table below keeps them apart.
  html::StackedBar bar{"a step", std::vector<double>(time_series().size(), 0)};
  for (const sim::ForecastPart& part : f.time)
    // at(): a new part of a step needs its series here, or the tests of this page throw.
    bar.parts[series_of_part().at(part.key)] += part.value;
  return html::card("Where the step's time goes",
                    html::stacked_bars("parts of a step", time_series(), {bar}, f.step.seconds) +
                        parts_html("parts of a step", time_parts(f)));
}

std::string memory_card(const sim::PlanForecast& f) {
  std::vector<html::Series> series;
  html::StackedBar bar{fmt::format("stage {}", f.step.memory.stage), {}};
  for (const sim::ForecastPart& part : f.memory) {
    series.push_back({part.what, series.size()});
    bar.parts.push_back(part.value);
  }
  const std::string fit = plan_fit(f);
  return html::card(
      "Memory of a GPU of the fullest stage",
      (fit.empty() ? "" : html::element("p", "caption", fmt::format("{}.", html::sentence(fit)))) +
          html::stacked_bars("parts of a GPU's memory", series, {bar}, f.need.bytes) +
          parts_html("parts of a GPU's memory", memory_parts(f)));
}

}  // namespace

std::string plan_html(const sim::PlanForecast& f) {
  const Result<sim::StepPicture> picture = sim::draw_step(f);
  return html::result_page(
      "plan", plan_title(f.plan),
      html::figures(plan_headlines(f)) +
          html::element("p", "caption", fmt::format("{}.", html::sentence(sim::reason_of(f)))),
      html::card("Plan", description_html(plan_description(f))) + time_card(f) +
          (picture ? step_card(*picture, "") : "") + memory_card(f) +
          html::card("What this rests on", html::sentences(f.basis())));
}

}  // namespace lockstep::reports
