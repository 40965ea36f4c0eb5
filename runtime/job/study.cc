#include "runtime/job/study.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/documents/schema_check.h"
#include "base/documents/yaml_document.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "runtime/job/scenario_decode.h"

namespace lockstep::runtime {

namespace {

using Json = nlohmann::json;

// The variations, in the order of the file. (JSON objects are sorted by key.)
std::vector<Variation> variations(const YamlDocument& document, const std::string& pointer) {
  std::vector<std::pair<int, Variation>> found;
  for (const auto& [name, patch] : document.value.at(Json::json_pointer(pointer)).items()) {
    const Location& location =
        document.key_location(fmt::format("{}/{}", pointer, pointer_part(name)));
    found.push_back({location.line, {name, patch.dump()}});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Variation> out;
  for (auto& [line, variation] : found) out.push_back(std::move(variation));
  return out;
}

// An error if the results of two variations would share a folder, or use a reserved one.
std::optional<Error> shared_folder(const YamlDocument& document, const std::string& kind,
                                   const std::vector<Variation>& all) {
  const std::string fix = "choose names that differ in their letters, digits or \"_\"";
  std::map<std::string, std::string> owners;  // of the folders, by name
  for (const Variation& variation : all) {
    const std::string folder = result_folder(variation.name);
    const std::string name = fmt::format("\"{}\"", printable(variation.name));
    const auto refuse = [&](const std::string& why) {
      return Error{
          why,
          document.key_location(fmt::format("/study/{}/{}", kind, pointer_part(variation.name))),
          fix};
    };
    if (folder.find_first_not_of('-') == std::string::npos)
      return refuse(fmt::format("nothing of {} can be the name of a folder for its results", name));
    const bool alone =
        folder == kAloneFolder || folder.starts_with(fmt::format("{}{}", kAloneFolder, "-"));
    if (kind == "strategies" ? alone : folder == kCompleteFolder)
      return refuse(
          fmt::format("the results of {} would lie in the folder \"{}\", which holds those of {}",
                      name, folder, alone ? "one process" : "the job without missing images"));
    const auto [owner, is_new] = owners.emplace(folder, variation.name);
    if (!is_new)
      return refuse(fmt::format("the results of {} and \"{}\" would lie in the same folder, \"{}\"",
                                name, printable(owner->second), folder));
  }
  return std::nullopt;
}

Json patch_named(const std::vector<Variation>& all, const std::string& name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Variation& v) { return v.name == name; });
  LOCKSTEP_CHECK(found != all.end(), "a study runs variations that it has");
  return with_kinds(Json::parse(found->patch));
}

// The scenario of that run, which may contradict itself.
Json merged(const Study& study, const StudyRun& run) {
  Json scenario = with_kinds(Json::parse(study.base));
  scenario.merge_patch(patch_named(study.strategies, run.strategy));
  erase_remedy(scenario);
  if (run.remedy) scenario.merge_patch(patch_named(study.remedies, *run.remedy));
  if (run.complete) scenario.merge_patch({{"data", {{"text_only", 0}, {"modality", nullptr}}}});
  Json& train = scenario["train"];
  if (train.is_null()) train = Json::object();  // nobody changed a default
  train["seed"] = train.value("seed", std::uint64_t{1}) + static_cast<std::uint64_t>(run.repeat);
  train["evaluate"] = true;
  scenario["watch"] = {{"every", run.watched ? 1 : 0},
                       {"what", {"gradients", "parameters", "buffers"}}};
  scenario["name"] =
      fmt::format("{}: {}, {}", study.name, run.strategy,
                  run.complete ? "no image missing" : run.remedy.value_or("no remedy"));
  return scenario;
}

// Why the format knows none of the runs' scenarios: a key or a value that it does not have.
// Nothing: it knows one, which may still contradict itself.
std::optional<Error> all_unknown(const Study& study, const std::vector<StudyRun>& runs) {
  static const DocumentSchema schema(Json::parse(scenario_schema()));
  std::optional<Error> first;
  for (const StudyRun& run : runs) {
    std::optional<Error> unknown = schema.check({merged(study, run), {}});
    if (!unknown) return std::nullopt;
    if (!first) first = std::move(unknown);
  }
  return first;
}

// An error for a variation with which the format knows no combination: a slip, which would be seen
// after the hours that the others take. A combination that contradicts itself is a row of the
// table.
std::optional<Error> unknown_variation(const YamlDocument& document, const Study& study) {
  const auto error = [&](const char* kind, const std::string& name, const Error& why) {
    return Error{
        fmt::format("\"{}\" is no variation of this scenario: {}", printable(name), why.message),
        document.key_location(fmt::format("/study/{}/{}", kind, pointer_part(name))),
        why.fix.empty() ? "docs/scenarios.md lists the keys and what they take" : why.fix};
  };
  for (const Variation& strategy : study.strategies) {
    std::vector<StudyRun> runs = {{.strategy = strategy.name, .remedy = {}, .complete = true}};
    for (const Variation& remedy : study.remedies)
      runs.push_back({.strategy = strategy.name, .remedy = remedy.name});
    if (const auto why = all_unknown(study, runs)) return error("strategies", strategy.name, *why);
  }
  for (const Variation& remedy : study.remedies) {
    std::vector<StudyRun> runs;
    for (const Variation& strategy : study.strategies)
      runs.push_back({.strategy = strategy.name, .remedy = remedy.name});
    if (const auto why = all_unknown(study, runs)) return error("remedies", remedy.name, *why);
  }
  return std::nullopt;
}

}  // namespace

std::string result_folder(const std::string& variation) {
  std::string out;
  for (const char c : variation) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    if (plain) {
      out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  return out;
}

Result<std::optional<Study>> load_study(const std::string& path) {
  constexpr std::size_t kMax = std::size_t{1} << 20U;
  const Result<std::string> text = read_file(path, kMax);
  if (!text) return text.error();
  Result<YamlDocument> document = parse_yaml(*text, path);
  // Errors of files that are not studies are reported where those are loaded.
  if (!document || !document->value.contains("study")) return std::optional<Study>();
  const Result<Scenario> scenario = load_scenario(path);  // checks all of it
  if (!scenario) return scenario.error();
  for (const std::string key : {"strategies", "remedies"}) {
    if (!document->value["study"][key].empty()) continue;
    return Error{fmt::format("a study needs \"{}\" to compare", key),
                 document->key_location("/study/" + key),
                 "name at least one variation: {none: {}}"};
  }
  Json base = document->value;
  base.erase("study");
  base.erase("expect");
  Study out;
  out.file = path;
  out.base = base.dump();
  out.name = scenario->name;
  out.repeats = document->value["study"].value("repeats", out.repeats);
  out.strategies = variations(*document, "/study/strategies");
  out.remedies = variations(*document, "/study/remedies");
  for (const auto& [kind, all] :
       {std::pair<const char*, const std::vector<Variation>&>{"strategies", out.strategies},
        {"remedies", out.remedies}}) {
    if (std::optional<Error> shared = shared_folder(*document, kind, all)) return *shared;
  }
  if (std::optional<Error> unknown = unknown_variation(*document, out)) return *unknown;
  return std::optional<Study>(std::move(out));
}

Result<std::string> scenario_text(const Study& study, const StudyRun& run,
                                  const std::string& file) {
  std::string text = merged(study, run).dump(1);
  if (const Result<Scenario> checked = parse_scenario(text, file); !checked) return checked.error();
  return text;
}

}  // namespace lockstep::runtime
