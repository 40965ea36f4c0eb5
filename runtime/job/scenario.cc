#include "runtime/job/scenario.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/file_kind.h"
#include "base/documents/schema_check.h"
#include "base/documents/yaml_document.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "runtime/job/scenario_decode.h"

namespace lockstep::runtime {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kLargestScenario = std::size_t{1} << 20U;  // it is a page of YAML

template <class T>
bool contains(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

template <class Rule>
bool fits(const Rule& rule, int rank, std::int64_t step) {
  const auto holds = [](const auto& list, auto value) {
    return list.empty() || contains(list, value);
  };
  return holds(rule.ranks, rank) && holds(rule.steps, step);
}

}  // namespace

std::string to_string(Modality m) {
  switch (m) {
    case Modality::image:
      return "image";
    case Modality::text:
      return "text";
    case Modality::video:
      return "video";
  }
  return "";
}

bool Scenario::Data::Rule::shows(Modality modality) const { return contains(has, modality); }

const Scenario::Data::Rule* Scenario::rule_for(int rank, std::int64_t step) const {
  if (remedy.kind == Remedy::Kind::alternating) {
    static const Data::Rule both{{}, {}, {Modality::image, Modality::text}};
    static const Data::Rule text{{}, {}, {Modality::text}};
    // Even steps have both modalities, odd ones text only. With the fault, odd ranks do it the
    // other way round.
    const bool own_time = fault == Fault::alternating_per_rank;
    return (step + (own_time ? rank : 0)) % 2 == 0 ? &both : &text;
  }
  for (const Data::Rule& rule : data.modality) {
    if (fits(rule, rank, step)) return &rule;
  }
  return nullptr;
}

double Scenario::outlier_factor(int rank, std::int64_t step) const {
  for (const Data::Outlier& outlier : data.outliers) {
    if (fits(outlier, rank, step)) return outlier.factor;
  }
  return 1;
}

bool Scenario::generates_after(std::int64_t step) const {
  const int every = train.generate.every;
  return every > 0 && (step + 1) % every == 0;
}

int Scenario::generated_tokens(int rank, std::int64_t step) const {
  if (!generates_after(step)) return 0;
  for (const Train::Generate::End& end : train.generate.ends) {
    if (fits(end, rank, step)) return end.after;
  }
  return train.generate.tokens;
}

int Scenario::ranks_of_replica() const {
  return strategy.kind == Strategy::Kind::pipeline ? strategy.stages : 1;
}

namespace {

// Whether some step of the rank has images, by the first rule that applies to each step. `decided`
// holds the steps that an earlier rule has settled; if rules leave a step undecided, the sampler
// may draw images for it.
bool ever_has_images(const Scenario& scenario, int rank) {
  std::set<std::int64_t> decided;
  for (const Scenario::Data::Rule& rule : scenario.data.modality) {
    if (!rule.ranks.empty() && !contains(rule.ranks, rank)) continue;
    const bool has = rule.shows_pictures();
    if (rule.steps.empty()) return has;
    for (const std::int64_t step : rule.steps) {
      if (step < scenario.train.steps && decided.insert(step).second && has) return true;
    }
  }
  return static_cast<std::int64_t>(decided.size()) < scenario.train.steps;
}

}  // namespace

std::vector<std::int32_t> Scenario::ranks_with_images(int all) const {
  std::vector<std::int32_t> out;
  for (int rank = 0; rank < all; ++rank) {
    if (ever_has_images(*this, rank)) out.push_back(rank);
  }
  return out;
}

int Scenario::tower_runs() const {
  const auto both = [](const Data::Rule& rule) {
    return rule.shows(Modality::image) && rule.shows(Modality::video);
  };
  return std::any_of(data.modality.begin(), data.modality.end(), both) ? 2 : 1;
}

int Scenario::ranks_of_copy() const {
  const int copy = strategy.kind == Strategy::Kind::pipeline ? strategy.stages
                   : strategy.kind == Strategy::Kind::fsdp   ? strategy.shard_ranks
                                                             : 0;
  return copy == ranks ? 0 : copy;
}

int Scenario::micro_batches(int rank) const {
  return strategy.kind == Strategy::Kind::pipeline ? strategy.micro_batches
                                                   : train.accumulation.of(rank);
}

int Scenario::Train::Accumulation::of(int rank) const {
  for (const auto& [other, own] : by_rank) {
    if (other == rank) return own;
  }
  return steps;
}

Result<Scenario> parse_scenario(const std::string& text, const std::string& file) {
  // Moved keys first: the schema would only call them unknown. Contradictions last: they need the
  // decoded scenario.
  static const DocumentSchema schema(Json::parse(scenario_schema()));
  Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  if (auto error = other_kind(*document, "lockstep")) return *error;
  if (auto error = find_moved_key(*document)) return *error;
  if (auto error = schema.check(*document)) return *error;
  const Json value = with_kinds(document->value);
  Scenario scenario = decode_scenario(with_defaults(value, schema.json()), file);
  if (auto error = find_contradiction(*document, scenario)) return *error;
  return scenario;
}

Result<Scenario> load_scenario(const std::string& path) {
  const Result<std::string> text = read_file(path, kLargestScenario);
  if (!text) return text.error();
  Result<Scenario> scenario = parse_scenario(*text, path);
  if (scenario || !scenario.error().fix.empty()) return scenario;
  Error error = scenario.error();
  error.fix = "docs/scenarios.md lists the keys and what they take";
  return error;
}

Location location_in(const Scenario& scenario, const std::string& pointer) {
  const Result<std::string> text = read_file(scenario.file, kLargestScenario);
  if (!text) return {scenario.file};
  const Result<YamlDocument> document = parse_yaml(*text, scenario.file);
  return document ? document->value_location(pointer) : Location{scenario.file};
}

Status check_named_files(const Scenario& scenario) {
  std::vector<std::pair<std::string, std::string>> needed;  // file, and the key that names it
  for (const std::string& file : scenario.data.manifest)
    needed.emplace_back(file, fmt::format("/data/manifest/{}", needed.size()));
  needed.insert(needed.end(), {{scenario.data.vocab, "/data/vocab"},
                               {scenario.model.weights.image, "/model/weights/image"},
                               {scenario.model.weights.text, "/model/weights/text"}});
  for (const auto& [file, key] : needed) {
    const bool pattern = file.find('{') != std::string::npos;
    std::error_code unknown;
    if (file.empty() || pattern || std::filesystem::exists(file, unknown)) continue;
    return Error{fmt::format("the scenario names {}, and there is no such file", printable(file)),
                 location_in(scenario, key),
                 "paths are relative to the folder in which the job was started"};
  }
  return Status::ok();
}

std::vector<std::pair<std::string, std::string>> sharing_environment(int rank) {
  return {{"LOCKSTEP_SHARE_GPUS", "1"},
          {"NCCL_HOSTID", fmt::format("lockstep-rank-{}", rank)},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_NET", "Socket"},  // otherwise an InfiniBand card of the machine is used
          {"NCCL_P2P_DISABLE", "1"},
          {"NCCL_SHM_DISABLE", "1"}};
}

}  // namespace lockstep::runtime
