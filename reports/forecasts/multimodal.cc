#include "reports/forecasts/multimodal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/csv_field.h"
#include "reports/findings/json_report.h"
#include "reports/findings/text_report.h"
#include "reports/forecasts/simulated_job.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "reports/html/stacked_charts.h"
#include "reports/html/svg.h"
#include "sim/machine/simulated_job.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::ordered_json;
using sim::DrawnTask;
using sim::MultimodalForecast;

constexpr std::size_t kNames = 12;      // columns of headlines' names
constexpr std::size_t kPartNames = 34;  // … of parts'
constexpr std::size_t kPictureNames = 24;

std::string seconds_text(double value) {
  if (value < 1) return milliseconds(value);
  return fixed(value, value < 100 ? 3 : 1) + " s";
}

std::string whole(double value) {
  return grouped(static_cast<std::uint64_t>(std::llround(std::clamp(value, 0.0, 1e18))));
}

std::string number_text(double value) { return value < 100 ? fixed(value, 1) : whole(value); }

std::string tower_text(const sim::EncoderTower& tower) {
  const sim::Transformer& m = tower.model;
  const double billions =
      static_cast<double>(m.layers) * static_cast<double>(sim::layer_parameters(m)) * 1e-9;
  std::string out =
      fmt::format("{}{} layers, hidden {}, {} heads, ffn {}; {} billion parameters{}; ",
                  tower.model_name.empty() ? "" : printable(tower.model_name) + ": ", m.layers,
                  m.hidden, m.heads, m.ffn, fixed(billions, 2), tower.frozen ? ", frozen" : "");
  const sim::TrainingPlan& p = tower.layout;
  switch (tower.place) {
    case sim::EncoderPlace::first_stage:
      out += fmt::format("on the LLM's first stage, tensor {}, items over {} of its ranks",
                         p.tensor, p.data);
      break;
    case sim::EncoderPlace::every_gpu:
      out += fmt::format("on every GPU, tensor {}, items over {} ranks of a replica", p.tensor,
                         p.data);
      break;
    case sim::EncoderPlace::own_gpus:
      out += fmt::format("on {} GPUs of its own: tensor {}, pipeline {}, data {}", tower.gpus,
                         p.tensor, p.pipeline, p.data);
      break;
  }
  return out + fmt::format(", ZeRO {}; {} input tokens are one of the LLM",
                           static_cast<int>(p.sharding), tower.merge);
}

std::string llm_text(const MultimodalForecast& f) {
  const sim::TrainingPlan& p = f.plan.llm.plan;
  const sim::Transformer& m = f.plan.llm.model;
  std::string out =
      fmt::format("{}{} layers, hidden {}; {} billion parameters{}; {} GPUs: tensor {}",
                  f.plan.llm.model_name.empty() ? "" : printable(f.plan.llm.model_name) + ": ",
                  m.layers, m.hidden, fixed(static_cast<double>(sim::parameters(m)) * 1e-9, 2),
                  f.plan.llm_frozen ? ", frozen" : "", p.ranks(), p.tensor);
  if (p.context > 1) out += fmt::format(", context {}", p.context);
  out += fmt::format(", pipeline {}", p.pipeline);
  if (p.pipeline > 1)
    out += fmt::format(" ({}{})", sim::pipeline_schedule_name(p.schedule),
                       f.plan.balanced_split ? ", balanced" : "");
  return out + fmt::format(", data {}, ZeRO {}", p.data, static_cast<int>(p.sharding));
}

std::string data_text(const MultimodalForecast& f) {
  const sim::TrainingPlan& p = f.plan.llm.plan;
  std::string out = fmt::format(
      "{} sequences of {} tokens, {} ({} samples), {} micro-batches of {} on each replica; {}",
      whole(static_cast<double>(p.global_batch)), whole(static_cast<double>(p.sequence)),
      sim::filling_name(f.plan.data.filling), whole(f.samples_per_step), p.micro_batches(),
      p.micro_batch, sim::arrangement_name(f.plan.data.arrangement));
  for (const MultimodalForecast::ItemFigures& item : f.items)
    out += fmt::format("; {} {} of {} tokens on average, at most {}", whole(item.per_step),
                       item.kind == "audio" ? "audio clips" : item.kind + "s",
                       whole(item.mean_size), whole(item.largest));
  out += fmt::format("; seed {}, {}", f.plan.data.seed,
                     plural(static_cast<std::uint64_t>(f.plan.steps), "step"));
  return out;
}

struct Line {
  std::string what, value;
};

std::vector<Line> description(const MultimodalForecast& f) {
  std::vector<Line> out = {{"LLM", llm_text(f)}};
  for (const sim::EncoderTower& tower : f.plan.encoders)
    out.push_back({printable(tower.name), tower_text(tower)});
  out.push_back({"data", data_text(f)});
  out.push_back({"calibration", printable(f.calibration.name)});
  return out;
}

std::string fit_text(const MultimodalForecast& f) {
  if (!f.plan.llm.gpu_memory) return {};
  const auto has = static_cast<double>(f.plan.llm.gpu_memory->value);
  const double missing = f.missing_bytes();
  if (missing == 0)
    return fmt::format("fits {}, {} are left", amount(has), amount(has - f.memory_bytes()));
  return fmt::format("does not fit {}: {} too much on {}", amount(has), amount(missing),
                     printable(f.memory[f.fullest].name));
}

std::vector<Line> tower_headlines(const MultimodalForecast& f) {
  std::vector<Line> out = {
      {"step time", f.longest > f.shortest
                        ? fmt::format("{} ({} to {})", seconds_text(f.seconds),
                                      seconds_text(f.shortest), seconds_text(f.longest))
                        : seconds_text(f.seconds)},
      {"tokens/s",
       fmt::format("{}, {} a GPU, without padding", whole(f.tokens_per_second),
                   number_text(f.tokens_per_second / static_cast<double>(f.plan.gpus)))},
      {"samples/s", number_text(f.samples_per_second)},
      {"MFU", percent(f.mfu)},
      {"lost", percent(f.lost.total()) + " of the GPUs' time"},
      {"memory", amount(f.memory_bytes())}};
  if (f.padding > 0.0005) out.push_back({"padding", percent(f.padding) + " of the LLM's tokens"});
  if (f.cut > 0.0005)
    out.push_back({"cut off", percent(f.cut) + " of the samples' tokens do not fit"});
  return out;
}

std::string beside(const std::string& text, std::size_t names) {
  std::string out;
  for (const char c : wrap(text, kReportColumns - names - 1))
    out += c == '\n' ? "\n" + std::string(names + 1, ' ') : std::string(1, c);
  return out + "\n";
}

std::string lines_text(const std::vector<Line>& lines) {
  std::string out;
  for (const Line& line : lines)
    out += pad_right(shorten_middle(line.what, kNames), kNames) + " " + beside(line.value, kNames);
  return out;
}

// --- The picture: a row per place, time to the right.

char task_letter(DrawnTask::Kind kind) {
  return kind == DrawnTask::Kind::encoder ? 'E' : kind == DrawnTask::Kind::forward ? 'f' : 'b';
}

// How much of the step is drawn in `columns`: from its beginning, as long as a column is at most
// half of a forward task, so that tasks can be told apart; at least a tenth.
double drawn_window(const MultimodalForecast& f, std::size_t columns) {
  double sum = 0, count = 0;
  for (const DrawnTask& task : f.drawn) {
    if (task.kind != DrawnTask::Kind::forward) continue;
    sum += task.end - task.begin;
    ++count;
  }
  if (count == 0) return f.drawn_seconds;
  const double fits = static_cast<double>(columns) * sum / count / 2;
  return std::min(f.drawn_seconds, std::max(fits, f.drawn_seconds / 10));
}

// What takes most of each column; '.': the place waits.
std::vector<std::string> picture_rows(const MultimodalForecast& f, std::size_t columns) {
  std::vector<std::string> rows(f.places.size(), std::string(columns, '.'));
  std::vector<std::vector<std::array<double, 3>>> shares(
      f.places.size(), std::vector<std::array<double, 3>>(columns, {0, 0, 0}));
  const double width = drawn_window(f, columns) / static_cast<double>(columns);
  if (width <= 0) return rows;
  for (const DrawnTask& task : f.drawn) {
    const auto place = static_cast<std::size_t>(task.place);
    const auto from = static_cast<std::size_t>(task.begin / width);
    for (std::size_t c = from; c < columns && static_cast<double>(c) * width < task.end; ++c) {
      const double begin = std::max(task.begin, static_cast<double>(c) * width);
      const double end = std::min(task.end, static_cast<double>(c + 1) * width);
      shares[place][c][static_cast<std::size_t>(task.kind)] += std::max(0.0, end - begin);
    }
  }
  for (std::size_t place = 0; place < rows.size(); ++place)
    for (std::size_t c = 0; c < columns; ++c) {
      const auto& share = shares[place][c];
      const auto most = std::max_element(share.begin(), share.end());
      if (share[0] + share[1] + share[2] < width / 2) continue;
      rows[place][c] = task_letter(static_cast<DrawnTask::Kind>(most - share.begin()));
    }
  return rows;
}

constexpr std::size_t kMostPlacesShown = 16;

std::string picture_text(const MultimodalForecast& f) {
  constexpr std::size_t kColumns = kReportColumns - kPictureNames - 3;
  std::string out = "the slowest pipeline of the first step";
  if (const double window = drawn_window(f, kColumns); window < f.drawn_seconds)
    out += fmt::format(", its first {} of {}", seconds_text(window), seconds_text(f.drawn_seconds));
  out += "\n(E encodes, f forward, b backward, . waits)\n";
  const std::vector<std::string> rows = picture_rows(f, kColumns);
  for (std::size_t p = 0; p < std::min(rows.size(), kMostPlacesShown); ++p)
    out += "  " +
           pad_right(shorten_middle(printable(f.places[p].name), kPictureNames), kPictureNames) +
           " " + rows[p] + "\n";
  if (rows.size() > kMostPlacesShown)
    out += fmt::format("  and {} more\n", rows.size() - kMostPlacesShown);
  return out;
}

std::string places_text(const MultimodalForecast& f) {
  std::string out = "place" + std::string(kPictureNames - 5, ' ') +
                    "   GPUs layers micro-batch    busy encodes   memory\n";
  for (std::size_t p = 0; p < std::min(f.places.size(), kMostPlacesShown); ++p) {
    const sim::PlaceFigures& place = f.places[p];
    out += "  " + pad_right(shorten_middle(printable(place.name), kPictureNames), kPictureNames) +
           pad_left(std::to_string(place.gpus), 6) + pad_left(fixed(place.layers, 1), 7) +
           pad_left(fixed(place.micro_batch * 1e3, 1) + " ms", 12) +
           pad_left(percent(place.busy), 8) + pad_left(percent(place.encoding), 8) +
           pad_left(fixed(f.memory[p].total() * 1e-9, 1) + " GB", 11) + "\n";
  }
  return out;
}

std::string tower_memory_text(const MultimodalForecast& f) {
  const sim::PlaceMemory& place = f.memory[f.fullest];
  std::string out = fmt::format("memory of a GPU of {}, the fullest\n", printable(place.name));
  const auto line = [&](const std::string& what, double bytes) {
    if (bytes < 1) return;
    out += "  " + pad_right(what, kPartNames) + pad_left(amount(bytes), 12) +
           pad_left(percent(bytes / place.total()), 10) + "\n";
  };
  for (const sim::TowerMemory& tower : place.towers) {
    const std::string name = shorten_middle(printable(tower.tower), 16);
    line(name + ": parameters", tower.parameters);
    line(name + ": gradients", tower.gradients);
    line(name + ": optimizer's state", tower.optimizer);
    line(name + ": gathered", tower.gathered);
    line(name + ": activations", tower.activations);
  }
  line("what is computed", place.working);
  line("reserved", place.reserved);
  line("together", place.total());
  return out;
}

std::string alternatives_text(const MultimodalResult& result) {
  if (result.alternatives.empty()) return {};
  std::string out =
      "the same job, with one change each, best first\n"
      "                                           tokens/s   step     MFU    lost  mem\n";
  for (const sim::Alternative& row : result.alternatives) {
    out += "  " + pad_right(shorten_middle(row.change, 40), 40);
    if (!row.refused.empty()) {
      out += "refused\n" + std::string(4, ' ') + wrap(row.refused, kReportColumns - 4, 4) + "\n";
      continue;
    }
    out += pad_left(whole(row.tokens_per_second), 9) + pad_left(fixed(row.seconds, 2), 7) +
           pad_left(fixed(100 * row.mfu, 1), 8) + pad_left(fixed(100 * row.lost, 1), 8) +
           pad_left(fixed(row.memory_bytes * 1e-9, 0), 5) + (row.fits ? "" : "!") + "\n";
    if (row.hang_probability > 0)
      out += fmt::format("    hangs in {} % of the steps\n", fixed(100 * row.hang_probability, 1));
  }
  return out + "  step in s; MFU and lost in %; memory in GB, !: does not fit\n";
}

std::string hang_sentence(const MultimodalForecast& f) {
  const sim::ModalityDivergence& d = *f.divergence;
  const sim::EncoderTower& tower = f.plan.encoders[d.encoder];
  return fmt::format(
      "modality-divergence: this plan can hang. In {} % of the steps (95 %: {} to {} %, {} drawn) "
      "a "
      "data-parallel rank of {} has {} and makes fewer calls than others, which wait for it.",
      fixed(100 * d.probability, 1), fixed(100 * d.low, 1), fixed(100 * d.high, 1), d.steps,
      printable(tower.name),
      tower.layout.sharding == sim::Sharding::zero3
          ? "fewer micro-batches with items"
          : "no item in the micro-batch whose gradients are summed");
}

std::string hang_text(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  if (!f.divergence) return {};
  std::string out = "\n" + wrap(hang_sentence(f), kReportColumns) + "\n\nremedies\n";
  for (const sim::ModalityRemedy& remedy : f.divergence->remedies)
    out += fmt::format("  {}{}\n", pad_right(remedy.what, 58),
                       remedy.probability == 0
                           ? std::string("no hang")
                           : fmt::format("{} % hang", fixed(100 * remedy.probability, 1)));
  if (result.hang)
    out +=
        fmt::format("\nstep {}, judged; its steps are the micro-batches\n\n", f.divergence->first) +
        text_report(result.hang->report, result.hang->run, {.color = false});
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

Json parts_of(const std::vector<sim::ForecastPart>& parts, double all) {
  Json out = Json::array();
  for (const sim::ForecastPart& part : parts)
    out.push_back({{"part", printable(part.key)},
                   {"what", printable(part.what)},
                   {"seconds", part.value},
                   {"share", all > 0 ? part.value / all : 0},
                   {"rests_on", part.rests_on}});
  return out;
}

std::string digits(double value) {
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

}  // namespace

Result<MultimodalResult> multimodal_result(sim::MultimodalForecast forecast) {
  MultimodalResult out{std::move(forecast), {}, std::nullopt};
  out.alternatives = sim::alternatives(out.forecast);
  if (!out.forecast.divergence) return out;
  Result<trace::Run> run = sim::modality_run(out.forecast.plan, *out.forecast.divergence);
  if (!run) return run.error();
  Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return program.error();
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
  out.hang = JudgedStep{std::move(*run), std::move(report)};
  return out;
}

std::string multimodal_text(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  std::string out = wrap(printable(f.plan.llm.name), kReportColumns) + "\n\n" +
                    lines_text(description(f)) + "\n" + lines_text(tower_headlines(f));
  if (const std::string fit = fit_text(f); !fit.empty())
    out += std::string(kNames + 1, ' ') + beside(fit, kNames);
  out += pad_right("reason", kNames) + " " + beside(f.reason(), kNames);
  out += "\n" + picture_text(f) + "\nwhere the step's time goes, mean over the GPUs\n";
  for (const sim::ForecastPart& part : f.time)
    out += "  " + pad_right(shorten_middle(part.what, kPartNames), kPartNames) +
           pad_left(seconds_text(part.value), 12) + pad_left(percent(part.value / f.seconds), 10) +
           "\n";
  out += "  " + pad_right("together", kPartNames) + pad_left(seconds_text(f.seconds), 12) +
         pad_left(percent(1), 10) + "\n\ncritical path of the slowest pipeline\n";
  for (const sim::ForecastPart& part : f.path)
    out += "  " + pad_right(shorten_middle(printable(part.what), kPartNames), kPartNames) +
           pad_left(seconds_text(part.value), 12) +
           pad_left(percent(part.value / f.drawn_seconds), 10) + "\n";
  out += "\n" + places_text(f) + "\n" + tower_memory_text(f);
  if (!result.alternatives.empty()) out += "\n" + alternatives_text(result);
  out += hang_text(result);
  out += "\nwhat this rests on (docs/simulate-multimodal.md)\n";
  const auto line = [&](const std::string& text) {
    out += "  " + wrap(text, kReportColumns - 2, 4) + "\n";
  };
  for (const std::string& sentence : f.basis()) line(sentence);
  for (const sim::ForecastPart& part : f.time) line(part.what + ": " + part.rests_on);
  return out;
}

std::string multimodal_json(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  Json out;
  out["plan"] = printable(f.plan.llm.name);
  out["calibration"] = printable(f.calibration.name);
  out["gpus"] = f.plan.gpus;
  out["seed"] = f.plan.data.seed;
  out["steps"] = f.plan.steps;
  out["step_time_s"] = f.seconds;
  out["step_time_shortest_s"] = f.shortest;
  out["step_time_longest_s"] = f.longest;
  out["tokens_per_s"] = f.tokens_per_second;
  out["tokens_per_s_per_gpu"] = f.tokens_per_second / static_cast<double>(f.plan.gpus);
  out["samples_per_s"] = f.samples_per_second;
  out["samples_per_step"] = f.samples_per_step;
  out["mfu"] = f.mfu;
  out["padding"] = f.padding;
  out["cut_off"] = f.cut;
  out["lost"] = {{"share", f.lost.total()},
                 {"bubble", f.lost.bubble},
                 {"unequal_stages", f.lost.unequal_stages},
                 {"unequal_batches", f.lost.unequal_batches},
                 {"stragglers", f.lost.stragglers},
                 {"within_group", f.lost.within_group}};
  out["reason"] = f.reason();
  out["items"] = Json::array();
  for (const MultimodalForecast::ItemFigures& item : f.items)
    out["items"].push_back({{"kind", item.kind},
                            {"per_step", item.per_step},
                            {"mean_size", item.mean_size},
                            {"largest", item.largest}});
  out["time"] = parts_of(f.time, f.seconds);
  out["critical_path"] = parts_of(f.path, f.drawn_seconds);
  for (const sim::PlaceFigures& place : f.places)
    out["places"].push_back({{"place", printable(place.name)},
                             {"gpus", place.gpus},
                             {"layers", place.layers},
                             {"micro_batch_s", place.micro_batch},
                             {"busy", place.busy},
                             {"idle", 1 - place.busy},
                             {"encodes", place.encoding}});
  Json& memory = out["memory"];
  memory["bytes"] = f.memory_bytes();
  memory["fullest"] = printable(f.memory[f.fullest].name);
  if (f.plan.llm.gpu_memory) {
    memory["gpu_bytes"] = f.plan.llm.gpu_memory->value;
    memory["fits"] = f.missing_bytes() == 0;
    memory["missing_bytes"] = f.missing_bytes();
  }
  for (const sim::PlaceMemory& place : f.memory)
    memory["places"].push_back(place_memory_json(place));
  out["alternatives"] = Json::array();
  for (const sim::Alternative& row : result.alternatives) {
    Json one = {{"change", row.change}};
    if (!row.refused.empty()) {
      one["refused"] = printable(row.refused);
    } else {
      one.update({{"step_time_s", row.seconds},
                  {"tokens_per_s", row.tokens_per_second},
                  {"mfu", row.mfu},
                  {"lost", row.lost},
                  {"memory_bytes", row.memory_bytes},
                  {"fits", row.fits},
                  {"hang_probability", row.hang_probability}});
    }
    out["alternatives"].push_back(std::move(one));
  }
  if (f.divergence) {
    Json& hang = out["can_hang"];
    hang["rule"] = "modality-divergence";
    hang["encoder"] = printable(f.plan.encoders[f.divergence->encoder].name);
    hang["probability"] = f.divergence->probability;
    hang["interval"] = {f.divergence->low, f.divergence->high};
    hang["steps_drawn"] = f.divergence->steps;
    hang["first_step"] = f.divergence->first;
    for (const sim::ModalityRemedy& remedy : f.divergence->remedies)
      hang["remedies"].push_back({{"what", remedy.what}, {"probability", remedy.probability}});
    if (result.hang) hang["report"] = Json::parse(json_report(result.hang->report), nullptr, false);
  }
  out["rests_on"] = f.basis();
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string multimodal_csv(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  std::string out = "quantity,value,unit\r\n";
  const auto line = [&](const std::string& quantity, double value, const char* unit) {
    out += csv_field(quantity) + "," + digits(value) + "," + unit + "\r\n";
  };
  line("step_time", f.seconds, "s");
  line("tokens_per_second", f.tokens_per_second, "1/s");
  line("samples_per_second", f.samples_per_second, "1/s");
  line("mfu", f.mfu, "1");
  line("lost", f.lost.total(), "1");
  for (const sim::ForecastPart& part : f.time) line("time." + part.key, part.value, "s");
  for (const sim::ForecastPart& part : f.path) line("path." + part.what, part.value, "s");
  for (const sim::PlaceFigures& place : f.places) line("busy." + place.name, place.busy, "1");
  for (const sim::PlaceMemory& place : f.memory) line("memory." + place.name, place.total(), "B");
  for (const sim::Alternative& row : result.alternatives)
    if (row.refused.empty()) line("alternative." + row.change, row.seconds, "s");
  if (f.divergence) line("hang_probability", f.divergence->probability, "1");
  return out;
}

namespace {

std::string tower_card(std::string_view title, const std::string& content) {
  return "<section class=\"card\"><h2>" + html::text(title) + "</h2>" + content + "</section>\n";
}

// The tasks of each place as boxes, those of one kind that touch joined; drawn at most this many to
// a place, as neighbours merge where they are narrower than a pixel.
std::string picture_svg(const MultimodalForecast& f) {
  constexpr double kWidth = 680, kLeft = 190, kRow = 22;
  const std::size_t places = std::min(f.places.size(), std::size_t{64});
  const double scale = f.drawn_seconds > 0 ? kWidth / f.drawn_seconds : 0;
  std::string content;
  for (std::size_t p = 0; p < places; ++p)
    content += html::svg_text("note", {0, kRow * static_cast<double>(p) + 15},
                              shorten_middle(printable(f.places[p].name), 28));
  struct Open {
    double begin = 0, end = -1;
    DrawnTask::Kind kind = DrawnTask::Kind::encoder;
  };
  std::vector<Open> open(places);
  const auto look = [](DrawnTask::Kind kind) {
    return kind == DrawnTask::Kind::encoder ? "f1" : kind == DrawnTask::Kind::forward ? "f0" : "f3";
  };
  const auto close = [&](std::size_t p) {
    const Open& box = open[p];
    if (box.end <= box.begin) return;
    content += html::svg_rect(look(box.kind),
                              {kLeft + box.begin * scale, kRow * static_cast<double>(p) + 2,
                               std::max(0.5, (box.end - box.begin) * scale - 0.3), kRow - 4},
                              0);
  };
  for (const DrawnTask& task : f.drawn) {
    const auto p = static_cast<std::size_t>(task.place);
    if (p >= places) continue;
    Open& box = open[p];
    const bool narrow = (task.end - task.begin) * scale < 0.5;
    if (box.end >= 0 && (task.begin - box.end) * scale < 0.5 && (box.kind == task.kind || narrow)) {
      box.end = std::max(box.end, task.end);
      continue;
    }
    close(p);
    box = {task.begin, task.end, task.kind};
  }
  for (std::size_t p = 0; p < places; ++p) close(p);
  const double height = kRow * static_cast<double>(places) + 4;
  return html::series_legend({{"encodes", 1}, {"LLM forward", 0}, {"LLM backward", 3}}) +
         html::scroller("the slowest pipeline",
                        html::svg_picture(
                            "When each place computes what, over " + seconds_text(f.drawn_seconds),
                            kLeft + kWidth, height, content));
}

std::string alternatives_table(const MultimodalResult& result) {
  std::string rows;
  for (const sim::Alternative& row : result.alternatives) {
    rows += "<tr>" + html::element("td", "", html::text(row.change));
    if (!row.refused.empty()) {
      rows += "<td></td><td></td><td></td><td></td><td></td>" +
              html::element("td", "", html::text("refused: " + row.refused)) + "</tr>\n";
      continue;
    }
    for (const std::string& cell : {whole(row.tokens_per_second), seconds_text(row.seconds),
                                    percent(row.mfu), percent(row.lost), amount(row.memory_bytes)})
      rows += html::element("td", "n", html::text(cell));
    rows +=
        html::element("td", "",
                      html::text(row.hang_probability > 0
                                     ? "hangs in " + percent(row.hang_probability) + " of the steps"
                                 : row.fits ? ""
                                            : "does not fit")) +
        "</tr>\n";
  }
  return html::scroller("alternatives",
                        "<table><thead><tr><th>change</th><th class=\"n\">tokens/s</th>"
                        "<th class=\"n\">step</th><th class=\"n\">MFU</th><th class=\"n\">lost</th>"
                        "<th class=\"n\">memory</th><th></th></tr></thead><tbody>\n" +
                            rows + "</tbody></table>");
}

std::string seconds_table(const std::string& name, const std::vector<sim::ForecastPart>& parts,
                          double all) {
  std::string rows;
  for (const sim::ForecastPart& part : parts)
    rows += "<tr>" + html::element("td", "", html::text(part.what)) +
            html::element("td", "n", html::text(seconds_text(part.value))) +
            html::element("td", "n", html::text(percent(all > 0 ? part.value / all : 0))) +
            html::element("td", "", html::text(part.rests_on)) + "</tr>\n";
  return html::scroller(name,
                        "<table><thead><tr><th></th><th class=\"n\"></th><th class=\"n\">share</th>"
                        "<th>rests on</th></tr></thead><tbody>\n" +
                            rows + "</tbody></table>");
}

std::string memory_chart(const MultimodalForecast& f) {
  const std::vector<html::Series> series = {{"parameters", 0}, {"gradients", 1},   {"optimizer", 2},
                                            {"gathered", 3},   {"activations", 4}, {"computed", 5},
                                            {"reserved", 6}};
  std::vector<html::StackedBar> bars;
  std::string rows;
  for (const sim::PlaceMemory& place : f.memory) {
    std::vector<double> parts(series.size(), 0);
    for (const sim::TowerMemory& tower : place.towers) {
      const std::array<double, 5> bytes = {tower.parameters, tower.gradients, tower.optimizer,
                                           tower.gathered, tower.activations};
      rows += "<tr>" + html::element("td", "", html::text(place.name)) +
              html::element("td", "", html::text(tower.tower));
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        parts[i] += bytes[i];
        rows += html::element("td", "n", html::text(amount(bytes[i])));
      }
      rows += "</tr>\n";
    }
    parts[5] = place.working;
    parts[6] = place.reserved;
    if (bars.size() < 32) bars.push_back({printable(place.name), parts});
  }
  return html::stacked_bars("memory of a GPU of each place", series, bars, f.memory_bytes()) +
         html::scroller("memory by tower",
                        "<table><thead><tr><th>place</th><th>tower</th><th>parameters</th>"
                        "<th>gradients</th><th>optimizer</th><th>gathered</th><th>activations</th>"
                        "</tr></thead><tbody>\n" +
                            rows + "</tbody></table>");
}

}  // namespace

std::string multimodal_html(const MultimodalResult& result) {
  const MultimodalForecast& f = result.forecast;
  std::string about, basis, figures;
  for (const Line& line : description(f))
    about += html::element("li", "", html::text(line.what + ": " + line.value)) + "\n";
  for (const Line& line : tower_headlines(f))
    figures += "<div>" + html::element("dt", "", html::text(line.what)) +
               html::element("dd", "", html::text(line.value)) + "</div>";
  for (const std::string& sentence : f.basis())
    basis += html::element("li", "", html::sentence(sentence) + ".") + "\n";
  std::string hang;
  if (f.divergence) {
    hang = html::element("p", "", html::sentence(hang_sentence(f)));
    for (const sim::ModalityRemedy& remedy : f.divergence->remedies)
      hang += html::element("p", "",
                            html::text(remedy.what + ": " +
                                       (remedy.probability == 0
                                            ? std::string("no hang")
                                            : percent(remedy.probability) + " of the steps hang")));
    if (result.hang)
      hang += html::element(
          "pre", "",
          html::text(text_report(result.hang->report, result.hang->run, {.color = false})));
    hang = tower_card("This plan can hang", hang);
  }
  return html::page(
      "Lockstep plan: " + f.plan.llm.name,
      "<p class=\"brand\">Lockstep plan</p>\n<main>\n<header class=\"verdict\">" +
          html::element("h1", "", html::text(f.plan.llm.name)) +
          html::element("dl", "numbers", figures) +
          html::element("p", "caption", html::sentence(f.reason()) + ".") + "</header>\n" + hang +
          tower_card("The slowest pipeline", picture_svg(f)) +
          tower_card("The same job with one change each", alternatives_table(result)) +
          tower_card("Where the step's time goes", seconds_table("parts", f.time, f.seconds)) +
          tower_card("Critical path of the slowest pipeline",
                     seconds_table("path", f.path, f.drawn_seconds)) +
          tower_card("Memory of a GPU", memory_chart(f)) +
          tower_card("Plan", html::element("ul", "plain", about)) +
          tower_card("What this rests on", html::element("ul", "plain", basis)) +
          "</main>\n<footer><p>" + html::text("lockstep " + std::string(tool_version())) +
          "</p></footer>\n");
}

}  // namespace lockstep::reports
