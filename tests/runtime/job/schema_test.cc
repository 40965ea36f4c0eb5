// The schema is the one truth of the format: these tests hold the decoder and the messages to it.
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/documents/schema_check.h"
#include "base/documents/yaml_document.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {
namespace {

using Json = nlohmann::json;

Json schema() { return Json::parse(scenario_schema()); }

TEST(Schema, EveryKeyIsDescribed) {
  const std::function<void(const Json&, const std::string&)> visit = [&](const Json& node,
                                                                         const std::string& path) {
    if (!node.is_object()) return;
    if (node.contains("properties")) {
      for (const auto& [key, inner] : node["properties"].items())
        EXPECT_TRUE(inner.contains("description") || inner.contains("$ref")) << path << "." << key;
    }
    for (const auto& [key, inner] : node.items()) {
      if (inner.is_array()) {
        for (const Json& item : inner) visit(item, path + "." + key);
      }
      visit(inner, path + "." + key);
    }
  };
  visit(schema(), "");
}

// JSON is YAML, so a mutated JSON value can be checked like a file. valijson decides; where it
// refuses, the walk that words the problem must have found it too, or the message is valijson's.
TEST(Schema, WhateverValijsonRefusesIsExplainedInOurWords) {
  const Json good = Json::parse(R"({
    "lockstep": 1, "name": "x", "ranks": 4, "model": {"embed_dim": 8, "freeze": ["a"]},
    "data": {"items": 5, "modality": [{"ranks": [1], "steps": [0], "has": ["text"]}]},
    "strategy": {"kind": "ddp", "find_unused_parameters": true}, "remedy": "none",
    "train": {"lr": 0.1, "seed": 3}, "limits": {"total_s": 5},
    "expect": {"verdict": "findings", "rules": ["deadlock"], "culprits": [1], "step": 0}})");
  const Json others = Json::parse(
      R"([null, true, -1, 0, 7, 0.5, 1e9, "", "text", [], [3], ["text"], {}, {"a": 1}])");
  // Prepared once: what it said of one document does not matter to the next.
  const DocumentSchema prepared(schema());
  const auto refused_without_our_words = [&](const Json& value) {
    const Result<YamlDocument> document = parse_yaml(value.dump(2), "f");
    const auto error = prepared.check(*document);
    return error && error->message.starts_with("not a valid scenario");
  };
  const Json flat = good.flatten();
  for (const auto& [pointer, leaf] : flat.items()) {
    for (Json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
      for (const Json& other : others) {
        Json mutated = good;
        mutated[at] = other;
        EXPECT_FALSE(refused_without_our_words(mutated)) << mutated.dump();
      }
      Json added = good;
      if (added[at].is_object()) added[at]["surprise"] = 1;
      EXPECT_FALSE(refused_without_our_words(added)) << added.dump();
    }
  }
  EXPECT_FALSE(prepared.check(*parse_yaml(good.dump(), "f")));
  EXPECT_TRUE(prepared.check(*parse_yaml(R"({"lockstep": 1})", "f")));
}

TEST(Schema, ADefaultWrittenOutChangesNothing) {
  const Json minimal = {{"lockstep", 1}, {"name", "x"}};
  const Json full = with_defaults(minimal, schema());
  Json written = full;
  // Nothing may carry the options of another kind, not even at their defaults.
  for (const char* key : {"process_groups", "reduction", "stages", "micro_batches", "schedule",
                          "order", "exchange_lengths", "shard_ranks", "prefetch", "units",
                          "shard_by", "reduce_scatter_unused_params", "trace"})
    written["strategy"].erase(key);
  written["train"]["clip"].erase("norm");
  written["data"].erase("balance_every");
  written["data"].erase("manifest");
  written["data"].erase("vocab");
  written["model"].erase("fusion");
  written["remedy"].erase("average");
  const auto spelled_out = parse_scenario(written.dump(), "f");
  ASSERT_TRUE(spelled_out) << spelled_out.error().str();
  EXPECT_EQ(*spelled_out, *parse_scenario(minimal.dump(), "f"));
  EXPECT_EQ(full["train"]["steps"], 6);
  EXPECT_EQ(full["strategy"]["kind"], "ddp");
}

}  // namespace
}  // namespace lockstep::runtime
