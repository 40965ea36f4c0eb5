#include "reports/forecasts/multimodal.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/finding_section.h"
#include "reports/findings/reports.h"
#include "reports/forecasts/parts.h"
#include "reports/forecasts/step_picture.h"
#include "reports/html/charts.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "reports/table.h"
#include "sim/machine/simulated_job.h"
#include "sim/multimodal/modality_run.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;
using sim::MultimodalForecast;

std::string tower_text(const sim::EncoderTower& tower) {
  const sim::Transformer& m = tower.model;
  const double billions =
      static_cast<double>(m.layers) * static_cast<double>(sim::layer_parameters(m)) * 1e-9;
  std::string out =
      fmt::format("{}{} layers, hidden {}, {} heads, ffn {}; {} billion parameters{}; ",
                  tower.model_name.empty() ? "" : fmt::format("{}: ", printable(tower.model_name)),
                  m.layers, grouped(m.hidden), m.heads, grouped(m.ffn), number_text(billions),
                  tower.frozen ? ", frozen" : "");
  const sim::TrainingPlan& p = tower.layout;
  switch (tower.place) {
    case sim::EncoderPlace::first_stage:
      out += fmt::format("on the LLM's first stage, tensor {}, items over {} of its ranks",
                         p.tensor, p.data);
      break;
    case sim::EncoderPlace::every_gpu:
      out += fmt::format("on every GPU, tensor {}, items over {} of a replica", p.tensor,
                         plural(p.data, "rank"));
      break;
    case sim::EncoderPlace::own_gpus:
      out += fmt::format("on {} GPUs of its own: tensor {}, pipeline {}, data {}", tower.gpus,
                         p.tensor, p.pipeline, p.data);
      break;
  }
  return out + fmt::format(", ZeRO {}; {} one of the LLM", static_cast<int>(p.sharding),
                           tower.merge == 1 ? "an input token is"
                                            : fmt::format("{} input tokens are", tower.merge));
}

std::string llm_text(const MultimodalForecast& f) {
  const sim::TrainingPlan& p = f.plan.llm.plan;
  const sim::Transformer& m = f.plan.llm.model;
  std::string out = fmt::format(
      "{}{} layers, hidden {}; {} billion parameters{}; {} GPUs: tensor {}",
      f.plan.llm.model_name.empty() ? "" : fmt::format("{}: ", printable(f.plan.llm.model_name)),
      m.layers, grouped(m.hidden), number_text(static_cast<double>(sim::parameters(m)) * 1e-9),
      f.plan.llm_frozen ? ", frozen" : "", p.ranks(), p.tensor);
  return out + layout_beyond_tensor(p, f.plan.balanced_split ? ", balanced" : "");
}

std::string data_text(const MultimodalForecast& f) {
  const sim::TrainingPlan& p = f.plan.llm.plan;
  std::string out =
      fmt::format("{} of {} tokens, {} ({} samples), {} of {} on each replica; {}",
                  plural(p.global_batch, "sequence"), number_text(static_cast<double>(p.sequence)),
                  sim::filling_name(f.plan.data.filling), number_text(f.samples_per_step),
                  plural(p.micro_batches(), "micro-batch", "micro-batches"), p.micro_batch,
                  sim::arrangement_name(f.plan.data.arrangement));
  for (const MultimodalForecast::ItemFigures& item : f.items)
    out += fmt::format("; {} {} of {} tokens on average, at most {}", number_text(item.per_step),
                       item.kind == "audio" ? "audio clips" : fmt::format("{}s", item.kind),
                       number_text(item.mean_size), number_text(item.largest));
  out += fmt::format("; seed {}, {}", f.plan.data.seed, plural(f.plan.steps, "step"));
  return out;
}

std::vector<NamedFigure> description(const MultimodalForecast& f) {
  std::vector<NamedFigure> out = {{"LLM", llm_text(f)}};
  for (const sim::EncoderTower& tower : f.plan.encoders)
    out.push_back({printable(tower.name), tower_text(tower)});
  out.push_back({"data", data_text(f)});
  out.push_back({"calibration", printable(f.calibration.name)});
  return out;
}

std::vector<NamedFigure> tower_headlines(const MultimodalForecast& f) {
  std::vector<NamedFigure> out;
  // First, since the times are those of steps that do not hang.
  if (f.divergence)
    out.push_back({"can hang", fmt::format("in {} of the steps (modality-divergence, below)",
                                           percent(f.divergence->probability))});
  out.push_back({"step time", step_time_text(f.seconds, f.range)});
  if (f.longest > f.shortest)
    out.push_back(
        {"drawn steps", fmt::format("{} to {}, by what their batches hold",
                                    duration_text(f.shortest), duration_text(f.longest))});
  const std::vector<NamedFigure> rates = {
      {"tokens/s",
       fmt::format("{}, {} per GPU, without padding", number_text(f.tokens_per_second),
                   number_text(f.tokens_per_second / static_cast<double>(f.plan.gpus)))},
      {"samples/s", number_text(f.samples_per_second)},
      {"MFU", percent(f.mfu)},
      {"lost", fmt::format("{} of the GPUs' time", percent(f.lost.total()))}};
  out.insert(out.end(), rates.begin(), rates.end());
  constexpr double kWorthALine = 0.0005;  // 0.05 %
  if (f.padding > kWorthALine)
    out.push_back({"padding", fmt::format("{} of the LLM's tokens", percent(f.padding))});
  if (f.cut > kWorthALine)
    out.push_back({"cut off", fmt::format("{} of the samples' tokens do not fit", percent(f.cut))});
  if (f.goodput) out.push_back({"goodput", goodput_text(*f.goodput, f.tokens_per_second)});
  out.push_back({"memory", bytes_text(f.need.bytes)});
  return out;
}

PartsOfWhole time_parts(const MultimodalForecast& f) { return {f.time, f.seconds, duration_text}; }

// The longest of many parts, and the others in one.
std::vector<sim::ForecastPart> shortened(std::vector<sim::ForecastPart> parts) {
  constexpr std::size_t kMaxParts = 12;
  if (parts.size() <= kMaxParts) return parts;
  sim::ForecastPart others{"", fmt::format("{} others", parts.size() - kMaxParts + 1), 0, ""};
  for (std::size_t i = kMaxParts - 1; i < parts.size(); ++i) others.value += parts[i].value;
  parts.resize(kMaxParts - 1);
  parts.push_back(std::move(others));
  return parts;
}

std::string places_text(const MultimodalForecast& f, std::size_t width) {
  Table table(columns({"place"}, {"GPUs", "layers", "micro-batch", "busy", "encodes", "memory"}));
  for (std::size_t p = 0; p < std::min(f.places.size(), kMaxStagesShown); ++p) {
    const sim::PlaceFigures& place = f.places[p];
    // The LLM's layers: a stage of an encoder alone has none.
    table.add({place.name, std::to_string(place.gpus),
               place.layers == 0 ? "-" : number_text(place.layers),
               duration_text(place.micro_batch), percent(place.busy), percent(place.encoding),
               bytes_text(f.memory[p].total())});
  }
  return table.text(width, 2);
}

std::string tower_memory_text(const MultimodalForecast& f, std::size_t width) {
  const sim::PlaceMemory& place = f.memory[f.fullest];
  std::vector<sim::ForecastPart> parts;
  const auto add = [&](const std::string& what, double bytes) {
    // Parts that a layout does not have are 0, or a rounding error of the model.
    if (bytes >= 1) parts.push_back({"", what, bytes, ""});
  };
  for (const sim::TowerMemory& tower : place.towers) {
    constexpr std::size_t kNameColumns = 16;
    const std::string name = shorten_middle(printable(tower.tower), kNameColumns);
    add(fmt::format("{}: parameters", name), tower.parameters);
    add(fmt::format("{}: gradients", name), tower.gradients);
    add(fmt::format("{}: optimizer's state", name), tower.optimizer);
    add(fmt::format("{}: gathered", name), tower.gathered);
    add(fmt::format("{}: activations", name), tower.activations);
  }
  add("what is computed", place.working);
  add("reserved", place.reserved);
  return fmt::format("memory of a GPU of {}, the fullest\n{}", printable(place.name),
                     parts_text({parts, place.total(), bytes_text}, width));
}

// The same job with one change each, best first: what is common to the text and the page.
Table alternatives_table(const MultimodalResult& result, bool with_notes) {
  std::vector<Column> header =
      columns({"change"}, {"tokens/s", "step", "MFU", "lost", "memory"}, {""});
  header.front().wrapped = true;
  Table table(std::move(header));
  for (const sim::Alternative& row : result.alternatives) {
    if (!row.refused.empty()) {
      table.add({row.change, "", "", "", "", "",
                 with_notes ? fmt::format("refused: {}", row.refused) : "-"});
      continue;
    }
    // The text has room for a mark, explained below the table; the page has room for the sentence.
    const std::string mark =
        fmt::format("{}{}", row.fits ? "" : "!", row.hang_probability > 0 ? "h" : "");
    const std::string note = !with_notes                ? mark
                             : row.hang_probability > 0 ? fmt::format("hangs in {} of the steps",
                                                                      percent(row.hang_probability))
                             : row.fits                 ? ""
                                                        : "does not fit";
    table.add({row.change, number_text(row.tokens_per_second), duration_text(row.seconds),
               percent(row.mfu), percent(row.lost), bytes_text(row.memory_bytes), note});
  }
  return table;
}

std::string alternatives_text(const MultimodalResult& result, std::size_t width) {
  if (result.alternatives.empty()) return {};
  std::string out = fmt::format(
      "\nthe same job, with one change each, best first\n{}  !: does not fit; h: hangs; -: "
      "refused\n",
      alternatives_table(result, false).text(width, 2));
  const auto line = [&](const std::string& change, const std::string& what) {
    out += fmt::format(
        "  {}\n", wrap(fmt::format("{}: {}", printable(change), printable(what)), width - 2, 4));
  };
  // The reason why a change is refused or hangs does not fit into a column.
  for (const sim::Alternative& row : result.alternatives) {
    if (!row.refused.empty()) line(row.change, row.refused);
    if (row.hang_probability > 0)
      line(row.change, fmt::format("hangs in {} of the steps", percent(row.hang_probability)));
  }
  return out;
}

std::string hang_sentence(const MultimodalForecast& f) {
  const sim::ModalityDivergence& d = *f.divergence;
  const sim::EncoderTower& tower = f.plan.encoders[d.encoder];
  const char* what = "no item in the micro-batch whose gradients are summed";
  const char* so = "makes fewer calls than others, which wait for it";
  if (tower.layout.sharding == sim::Sharding::zero3) what = "fewer micro-batches with items";
  if (sim::order_matters(f.plan, d.encoder)) {
    what = "its items in fewer or in other micro-batches than others";
    so = "they wait for each other";
  }
  return fmt::format(
      "modality-divergence: this plan can hang. In {} of the steps (95 %: {} to {}, {} drawn) a "
      "data-parallel rank of {} has {} and {}.",
      percent(d.probability), percent(d.low), percent(d.high), d.steps, printable(tower.name), what,
      so);
}

std::string remedy_result(const sim::ModalityRemedy& remedy) {
  return remedy.probability == 0 ? "no hang"
                                 : fmt::format("{} of the steps hang", percent(remedy.probability));
}

Table remedies_table(const MultimodalForecast& f) {
  Table out({{.name = "remedy", .wrapped = true}, {""}});
  for (const sim::ModalityRemedy& remedy : f.divergence->remedies)
    out.add({remedy.what, remedy_result(remedy)});
  return out;
}

std::string hang_text(const MultimodalResult& result, std::size_t width) {
  const MultimodalForecast& f = result.forecast;
  if (!f.divergence) return {};
  std::string out =
      fmt::format("\n{}\n\n{}", wrap(hang_sentence(f), width), remedies_table(f).text(width, 2));
  if (result.hang)
    out +=
        fmt::format("\nstep {}, judged; its steps are the micro-batches\n\n", f.divergence->first) +
        text_report(result.hang->report, result.hang->run, {.width = width});
  return out;
}

Json place_memory_json(const sim::PlaceMemory& place) {
  Json out = {{"place", printable(place.name)}, {"bytes", place.total()}};
  for (const sim::TowerMemory& tower : place.towers)
    out["towers"].push_back({{"tower", printable(tower.tower)},
                             {"parameters", tower.parameters},
                             {"gradients", tower.gradients},
                             {"optimizer", tower.optimizer},
                             {"gathered", tower.gathered},
                             {"activations", tower.activations}});
  out["working"] = place.working;
  out["reserved"] = place.reserved;
  return out;
}

Json gpu_memory_json(const MultimodalForecast& f) {
  Json out = {{"bytes", f.need.bytes}, {"fullest", printable(f.memory[f.fullest].name)}};
  add_fit(out, f.need);
  for (const sim::PlaceMemory& place : f.memory) out["places"].push_back(place_memory_json(place));
  return out;
}

Json alternative_json(const sim::Alternative& row) {
  if (!row.refused.empty()) return {{"change", row.change}, {"refused", printable(row.refused)}};
  return {{"change", row.change},
          {"step_time_s", row.seconds},
          {"tokens_per_s", row.tokens_per_second},
          {"mfu", row.mfu},
          {"lost", row.lost},
          {"memory_bytes", row.memory_bytes},
          {"fits", row.fits},
          {"hang_probability", row.hang_probability}};
}

// `result`: of a forecast whose ranks can diverge.
Json hang_json(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  const auto& divergence = *f.divergence;
  Json out = {{"rule", "modality-divergence"},
              {"encoder", printable(f.plan.encoders[divergence.encoder].name)},
              {"probability", divergence.probability},
              {"interval", {divergence.low, divergence.high}},
              {"steps_drawn", divergence.steps},
              {"first_step", divergence.first}};
  for (const sim::ModalityRemedy& remedy : divergence.remedies)
    out["remedies"].push_back({{"what", remedy.what}, {"probability", remedy.probability}});
  // As an object, not as text within text; the report is our own JSON.
  if (result.hang) out["report"] = Json::parse(json_report(result.hang->report), nullptr, false);
  return out;
}

std::string memory_chart(const MultimodalForecast& f) {
  const std::vector<html::Series> series = {{"parameters", 0}, {"gradients", 1},   {"optimizer", 2},
                                            {"gathered", 3},   {"activations", 4}, {"computed", 5},
                                            {"reserved", 6}};
  std::vector<html::StackedBar> bars;
  Table table(columns({"place", "tower"},
                      {"parameters", "gradients", "optimizer", "gathered", "activations"}));
  for (const sim::PlaceMemory& place : f.memory) {
    std::vector<double> parts(series.size(), 0);
    for (const sim::TowerMemory& tower : place.towers) {
      const std::array<double, 5> bytes = {tower.parameters, tower.gradients, tower.optimizer,
                                           tower.gathered, tower.activations};
      std::vector<std::string> cells = {place.name, tower.tower};
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        parts[i] += bytes[i];
        cells.push_back(bytes_text(bytes[i]));
      }
      table.add(std::move(cells));
    }
    parts[5] = place.working;
    parts[6] = place.reserved;
    // The table below has every place. More bars than fit on a screen cannot be compared.
    constexpr std::size_t kMaxBars = 32;
    if (bars.size() < kMaxBars) bars.push_back({printable(place.name), parts});
  }
  return html::stacked_bars("memory of a GPU of each place", series, bars, f.need.bytes) +
         table.html("memory by tower");
}

std::string hang_html(const MultimodalForecast& f) {
  if (!f.divergence) return {};
  return html::element("p", "", html::text(hang_sentence(f))) + remedies_table(f).html("remedies");
}

}  // namespace

Result<MultimodalResult> multimodal_result(sim::MultimodalForecast forecast) {
  Result<sim::StepPicture> picture = sim::draw_step(forecast);
  if (!picture) return picture.error();
  MultimodalResult out{std::move(forecast), std::move(*picture), {}, std::nullopt};
  out.alternatives = sim::alternatives(out.forecast);
  if (!out.forecast.divergence) return out;
  Result<trace::Run> run = sim::modality_run(out.forecast.plan, *out.forecast.divergence);
  if (!run) return run.error();
  Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return program.error();
  // Only the order of calls decides whether a step hangs, so calls take no time here.
  const auto nothing = [](std::uint32_t, const sim::ProgramCall&) -> Result<sim::CallCost> {
    return sim::CallCost{};
  };
  const Result<sim::Prices> prices = sim::Prices::of(program->job, {}, nothing);
  if (!prices) return prices.error();
  sim::Folding folding = sim::fold(program->job);
  const Result<sim::SimulatedProgram> simulated =
      sim::simulate_program(std::move(*program), std::move(folding), *prices, Picos{});
  if (!simulated) return simulated.error();
  verify::Report report = judge_hang(*simulated, *run);
  out.hang = JudgedRun{std::move(*run), std::move(report)};
  return out;
}

std::string multimodal_text(const MultimodalResult& result, std::size_t width) {
  const MultimodalForecast& f = result.forecast;
  std::vector<NamedFigure> headlines = tower_headlines(f);
  if (f.need.gpu) headlines.push_back({"", fit_text(f.need, printable(f.memory[f.fullest].name))});
  headlines.push_back({"reason", f.reason(result.alternatives)});
  const std::vector<sim::ForecastPart> path = shortened(step_path(result.picture));
  return fmt::format(
      "{}\n\n{}\n{}\n{}\nwhere the step's time goes, mean over the GPUs\n{}\n"
      "critical path of the first step\n{}\n{}\n{}{}{}\n"
      "what this rests on (docs/simulate-multimodal.md)\n{}",
      wrap(printable(plan_title(f.plan.llm)), width), figures_text(description(f), width),
      figures_text(headlines, width),
      step_picture_text(result.picture, "the slowest pipeline of the first step", width),
      parts_text(time_parts(f), width),
      parts_text({path, result.picture.end.seconds(), duration_text}, width), places_text(f, width),
      tower_memory_text(f, width), alternatives_text(result, width), hang_text(result, width),
      basis_text(f.basis(), {&f.time}, width));
}

std::string multimodal_json(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  Json out;
  out["plan"] = printable(f.plan.llm.name);
  if (!f.plan.llm.settings.empty()) out["settings"] = f.plan.llm.settings;
  out["calibration"] = printable(f.calibration.name);
  out["gpus"] = f.plan.gpus;
  out["seed"] = f.plan.data.seed;
  out["steps"] = f.plan.steps;
  out["step_time_s"] = f.seconds;
  out["step_time_interval_s"] = {f.range.least, f.range.most};
  out["step_time_shortest_s"] = f.shortest;
  out["step_time_longest_s"] = f.longest;
  out["tokens_per_s"] = f.tokens_per_second;
  out["tokens_per_s_per_gpu"] = f.tokens_per_second / static_cast<double>(f.plan.gpus);
  out["samples_per_s"] = f.samples_per_second;
  out["samples_per_step"] = f.samples_per_step;
  out["mfu"] = f.mfu;
  if (f.goodput) out["goodput"] = goodput_json(*f.goodput, f.tokens_per_second);
  out["padding"] = f.padding;
  out["cut_off"] = f.cut;
  out["lost"] = {{"share", f.lost.total()},
                 {"bubble", f.lost.bubble},
                 {"unequal_stages", f.lost.unequal_stages},
                 {"unequal_batches", f.lost.unequal_batches},
                 {"stragglers", f.lost.stragglers},
                 {"within_group", f.lost.within_group}};
  out["reason"] = f.reason(result.alternatives);
  out["items"] = Json::array();
  for (const MultimodalForecast::ItemFigures& item : f.items)
    out["items"].push_back({{"kind", item.kind},
                            {"per_step", item.per_step},
                            {"mean_size", item.mean_size},
                            {"largest", item.largest}});
  out["time"] = parts_json(time_parts(f), "seconds");
  const std::vector<sim::ForecastPart> path = step_path(result.picture);
  out["critical_path"] = parts_json({path, result.picture.end.seconds(), duration_text}, "seconds");
  for (const sim::PlaceFigures& place : f.places)
    out["places"].push_back({{"place", printable(place.name)},
                             {"gpus", place.gpus},
                             {"layers", place.layers},
                             {"micro_batch_s", place.micro_batch},
                             {"busy", place.busy},
                             {"idle", 1 - place.busy},
                             {"encodes", place.encoding}});
  out["memory"] = gpu_memory_json(f);
  out["alternatives"] = Json::array();
  for (const sim::Alternative& row : result.alternatives)
    out["alternatives"].push_back(alternative_json(row));
  if (f.divergence) out["can_hang"] = hang_json(result);
  out["rests_on"] = f.basis();
  return fmt::format("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

std::string multimodal_csv(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  Table out(columns({"quantity"}, {"value"}, {"unit"}));
  const auto line = [&](const std::string& quantity, double value, const char* unit) {
    out.add({quantity, fmt::format("{}", value), unit});
  };
  line("step_time", f.seconds, "s");
  line("tokens_per_second", f.tokens_per_second, "1/s");
  line("samples_per_second", f.samples_per_second, "1/s");
  line("mfu", f.mfu, "1");
  line("lost", f.lost.total(), "1");
  for (const sim::ForecastPart& part : f.time)
    line(fmt::format("time.{}", part.key), part.value, "s");
  for (const sim::ForecastPart& part : step_path(result.picture))
    line(fmt::format("path.{}", part.what), part.value, "s");
  for (const sim::PlaceFigures& place : f.places)
    line(fmt::format("busy.{}", place.name), place.busy, "1");
  for (const sim::PlaceMemory& place : f.memory)
    line(fmt::format("memory.{}", place.name), place.total(), "B");
  for (const sim::Alternative& row : result.alternatives)
    // A refused change has no figures: in a spreadsheet, 0 would look like the best one.
    if (row.refused.empty()) line(fmt::format("alternative.{}", row.change), row.seconds, "s");
  if (f.divergence) line("hang_probability", f.divergence->probability, "1");
  return out.csv();
}

std::string multimodal_html(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  const std::string alternatives =
      result.alternatives.empty() ? "" : alternatives_table(result, true).html("alternatives");
  return html::result_page(
      "plan", plan_title(f.plan.llm),
      html::figures(tower_headlines(f)) +
          html::element("p", "caption",
                        fmt::format("{}.", html::sentence(f.reason(result.alternatives)))),
      html::card("This plan can hang", hang_html(f)) +
          (result.hang ? html::finding_sections(result.hang->report, result.hang->run) : "") +
          step_card(result.picture, "The slowest pipeline of the first step: ") +
          html::card("The same job with one change each", alternatives) +
          html::card("Where the step's time goes", parts_html("parts", time_parts(f))) +
          html::card("Memory of a GPU", memory_chart(f)) +
          html::card("Plan", description_html(description(f))) +
          html::card("What this rests on", html::sentences(f.basis())));
}

}  // namespace lockstep::reports
