// product.json: reading and writing.
#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "trace/derivation.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

namespace dom = simdjson::dom;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxNames = 1024;       // in one list of names
constexpr std::size_t kMaxNameLength = 4096;  // bytes of a name
constexpr std::int64_t kMaxStep = std::int64_t{1} << 40U;
constexpr const char* kFix = "docs/product.md shows a whole product.json";

// Reads typed values; the first thing that is wrong is kept, and everything after it is moot.
class ProductFileReader {
 public:
  explicit ProductFileReader(const std::string& file) : file_(file) {}

  std::optional<Error> problem;

  void complain(const std::string& message) {
    if (!problem) problem = Error{message, {file_}, kFix};
  }

  std::optional<dom::element> find(dom::object object, const char* key, bool required) {
    dom::element value;
    if (object[key].get(value) == simdjson::SUCCESS && !value.is_null()) return value;
    if (required) complain(fmt::format("\"{}\" is missing", key));
    return std::nullopt;
  }

  std::string text(dom::object object, const char* key, bool required) {
    const auto value = find(object, key, required);
    return value ? as_text(*value, key) : std::string();
  }

  std::string as_text(dom::element value, const char* key) {
    std::string_view out;
    if (value.get(out) != simdjson::SUCCESS) {
      complain(fmt::format("\"{}\" is not a string", key));
    } else if (out.size() > kMaxNameLength) {
      complain(fmt::format("\"{}\" is longer than 4096 bytes", key));
    } else {
      return std::string(out);
    }
    return {};
  }

  std::int64_t as_integer(dom::element value, const char* key, std::int64_t low,
                          std::int64_t high) {
    std::int64_t out = low;
    if (value.get(out) != simdjson::SUCCESS || out < low || out > high) {
      complain(fmt::format("\"{}\" is not a whole number from {} to {}", key, low, high));
      return low;
    }
    return out;
  }

  std::vector<dom::element> list(dom::object object, const char* key, bool required,
                                 std::size_t most) {
    std::vector<dom::element> out;
    const auto value = find(object, key, required);
    if (!value) return out;
    dom::array array;
    if (value->get(array) != simdjson::SUCCESS) {
      complain(fmt::format("\"{}\" is not a list", key));
      return out;
    }
    for (const dom::element item : array) {
      if (out.size() == most) {
        complain(fmt::format("\"{}\" has more than {} items", key, most));
        return {};
      }
      out.push_back(item);
    }
    return out;
  }

  std::vector<std::string> texts(dom::object object, const char* key) {
    std::vector<std::string> out;
    for (const dom::element item : list(object, key, false, kMaxNames))
      out.push_back(as_text(item, key));
    return out;
  }

  template <class Integer>
  std::vector<Integer> integers(dom::object object, const char* key, std::size_t most,
                                std::int64_t high) {
    std::set<Integer> out;
    if (!find(object, key, false)) return {};
    for (const dom::element item : list(object, key, false, most))
      out.insert(static_cast<Integer>(as_integer(item, key, 0, high)));
    if (out.empty()) complain(fmt::format("\"{}\" is empty; leave it out to mean all", key));
    return {out.begin(), out.end()};
  }

  std::optional<dom::object> as_object(dom::element value, const char* key) {
    dom::object out;
    if (value.get(out) == simdjson::SUCCESS) return out;
    complain(fmt::format("an item of \"{}\" is not an object", key));
    return std::nullopt;
  }

 private:
  const std::string& file_;
};

class SpecReader {
 public:
  explicit SpecReader(const std::string& file) : read_(file) {}

  Result<ProductSpec> spec(dom::object root) {
    header(root);
    if (!read_.problem) conditions(root);
    if (!read_.problem) allowed(root);
    if (!read_.problem) copies(root);
    if (!read_.problem) classes(root);
    if (!read_.problem) together(root);
    if (!read_.problem) histories(root);
    if (read_.problem) return *read_.problem;
    return std::move(spec_);
  }

 private:
  void header(dom::object root) {
    if (const auto version = read_.find(root, "product", true))
      read_.as_integer(*version, "product", 1, 1);
    spec_.program = read_.text(root, "program", false);
    if (const auto size = read_.find(root, "world_size", true)) {
      spec_.world_size =
          static_cast<std::int32_t>(read_.as_integer(*size, "world_size", 1, kMaxWorldSize));
    }
    spec_.assumptions = read_.texts(root, "assumptions");
    spec_.choice = one_of(root, "choice", "free", "agreed") ? ProductSpec::Choice::agreed
                                                            : ProductSpec::Choice::free;
    spec_.looks_back = one_of(root, "memory", "none", "step-before");
    if (const auto steps = read_.find(root, "only_steps", false))
      spec_.only_steps = read_.as_integer(*steps, "only_steps", 1, kMaxStep);
  }

  // True for `other`; false for `usual`, which is also what a key that is left out means.
  bool one_of(dom::object root, const char* key, std::string_view usual, std::string_view other) {
    const std::string text = read_.text(root, key, false);
    if (text != usual && text != other && !text.empty())
      read_.complain(fmt::format("\"{}\" is neither \"{}\" nor \"{}\"", key, usual, other));
    return text == other;
  }

  void conditions(dom::object root) {
    for (const dom::element item : read_.list(root, "conditions", true, kMaxConditions)) {
      const auto object = read_.as_object(item, "conditions");
      if (!object) return;
      ProductSpec::Condition condition;
      condition.name = read_.text(*object, "name", true);
      condition.phase = read_.text(*object, "phase", false);
      condition.has = read_.texts(*object, "has");
      if (condition.name.empty()) return read_.complain("a condition has no name");
      const ConditionId id(static_cast<std::uint32_t>(spec_.conditions.size()));
      if (!by_name_.emplace(condition.name, id).second)
        return read_.complain(
            fmt::format("two conditions are called \"{}\"", printable(condition.name)));
      spec_.conditions.push_back(std::move(condition));
    }
    if (spec_.conditions.empty()) read_.complain("\"conditions\" is empty");
    if (spec_.looks_back && spec_.conditions.size() > kMaxConditionsLookingBack)
      read_.complain(fmt::format("\"memory\" has more pairs than those of {} conditions",
                                 kMaxConditionsLookingBack));
  }

  ConditionId condition(const std::string& name) {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second;
    read_.complain(fmt::format("no condition is called \"{}\"", printable(name)));
    return {};
  }

  void allowed(dom::object root) {
    for (const dom::element item : read_.list(root, "allowed", false, kMaxAllowed)) {
      const auto object = read_.as_object(item, "allowed");
      if (!object) return;
      ProductSpec::Allowed rule;
      rule.ranks = read_.integers<std::int32_t>(
          *object, "ranks", static_cast<std::size_t>(kMaxWorldSize), spec_.world_size - 1);
      rule.steps = read_.integers<std::int64_t>(*object, "steps", kMaxAllowed, kMaxStep);
      std::set<ConditionId> conditions;
      for (const std::string& name : read_.texts(*object, "conditions"))
        conditions.insert(condition(name));
      rule.conditions.assign(conditions.begin(), conditions.end());
      if (rule.conditions.empty())
        read_.complain("an item of \"allowed\" allows no condition at all");
      named_steps_ += rule.steps.size();
      if (named_steps_ > kMaxAllowed)
        read_.complain(fmt::format("\"allowed\" names more than {} steps", kMaxAllowed));
      if (read_.problem) return;
      spec_.allowed.push_back(std::move(rule));
    }
  }

  void copies(dom::object root) {
    const auto ranks = read_.find(root, "copy_ranks", false);
    if (!ranks) return;
    spec_.copy_ranks =
        static_cast<std::int32_t>(read_.as_integer(*ranks, "copy_ranks", 1, spec_.world_size));
    if (!read_.problem && spec_.world_size % spec_.copy_ranks != 0)
      read_.complain("\"copy_ranks\" does not divide \"world_size\"");
  }

  void classes(dom::object root) {
    const auto bound = static_cast<std::size_t>(spec_.world_size);
    std::vector<bool> in_one(bound, false);
    std::size_t placed = 0;
    for (const dom::element item : read_.list(root, "classes", false, bound)) {
      const auto object = read_.as_object(item, "classes");
      if (!object) return;
      ProductSpec::RankClass one = rank_class(*object, in_one);
      if (read_.problem) return;
      placed += one.ranks.size();
      spec_.classes.push_back(std::move(one));
    }
    if (!spec_.classes.empty() && placed != bound) read_.complain("\"classes\" leaves out a rank");
  }

  // {"rank": 1, "ranks": [[1, 7], [9, 15]]}: from, to. Marks its ranks in `in_one`.
  ProductSpec::RankClass rank_class(dom::object object, std::vector<bool>& in_one) {
    ProductSpec::RankClass one;
    for (const dom::element range : read_.list(object, "ranks", true, in_one.size())) {
      dom::array ends;
      if (range.get(ends) != simdjson::SUCCESS || ends.size() != 2) {
        read_.complain("an item of \"ranks\" of a class is not [FROM, TO]");
        return one;
      }
      const auto from = read_.as_integer(ends.at(0), "ranks", 0, spec_.world_size - 1);
      const auto to = read_.as_integer(ends.at(1), "ranks", from, spec_.world_size - 1);
      for (std::int64_t rank = from; rank <= to && !read_.problem; ++rank) {
        if (in_one[static_cast<std::size_t>(rank)])
          read_.complain(fmt::format("rank {} is in two classes", rank));
        in_one[static_cast<std::size_t>(rank)] = true;
        one.ranks.push_back(static_cast<std::int32_t>(rank));
      }
    }
    if (const auto rank = read_.find(object, "rank", true); rank && !read_.problem)
      one.rank =
          static_cast<std::int32_t>(read_.as_integer(*rank, "rank", 0, spec_.world_size - 1));
    if (read_.problem) return one;
    std::sort(one.ranks.begin(), one.ranks.end());
    if (one.ranks.empty() || one.ranks.front() != one.rank) {
      read_.complain("\"rank\" is not the first of its class");
      return one;
    }
    const auto is_elsewhere = [&](std::int32_t rank) {
      return rank % spec_.copy_ranks != one.rank % spec_.copy_ranks;
    };
    if (spec_.copy_ranks > 0 && std::ranges::any_of(one.ranks, is_elsewhere))
      read_.complain("the ranks of a class have different indices in their copies");
    return one;
  }

  // [[0, 1], [2, 3]]
  void together(dom::object root) {
    const auto bound = static_cast<std::size_t>(spec_.world_size);
    std::vector<bool> in_one(bound, false);
    for (const dom::element item : read_.list(root, "together", false, bound)) {
      dom::array ranks;
      if (item.get(ranks) != simdjson::SUCCESS)
        return read_.complain("an item of \"together\" is not a list of ranks");
      std::vector<std::int32_t> team;
      for (const dom::element one : ranks) {
        const auto rank =
            static_cast<std::int32_t>(read_.as_integer(one, "together", 0, spec_.world_size - 1));
        if (read_.problem) return;
        if (in_one[static_cast<std::size_t>(rank)])
          return read_.complain(fmt::format("\"together\" names rank {} twice", rank));
        in_one[static_cast<std::size_t>(rank)] = true;
        team.push_back(rank);
      }
      if (team.size() < 2)
        return read_.complain("an item of \"together\" has fewer than two ranks");
      std::sort(team.begin(), team.end());
      spec_.together.push_back(std::move(team));
    }
    if (!spec_.together.empty() && !spec_.classes.empty() && spec_.copy_ranks == 0)
      read_.complain(
          "\"together\" and \"classes\" cannot both be given without \"copy_ranks\": ranks that "
          "share a batch send each other messages, so each needs a trace of its own");
  }

  void histories(dom::object root) {
    std::set<std::pair<ConditionId, std::optional<ConditionId>>> begun;
    for (const dom::element item : read_.list(root, "histories", true, kMaxHistories)) {
      const auto object = read_.as_object(item, "histories");
      if (!object) return;
      ProductSpec::History history;
      history.first = condition(read_.text(*object, "first", true));
      history.folder = read_.text(*object, "folder", true);
      if (read_.find(*object, "second", false))
        history.second = condition(read_.text(*object, "second", true));
      if (read_.problem) return;
      if (!begun.emplace(history.first, history.second).second)
        return read_.complain("two histories start with the same condition");
      const std::filesystem::path path(history.folder);
      const bool leads_out =
          std::any_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
      if (history.folder.empty() || path.is_absolute() || leads_out)
        return read_.complain(fmt::format("the folder \"{}\" is not inside the derivation's",
                                          printable(history.folder)));
      spec_.histories.push_back(std::move(history));
    }
    if (spec_.histories.empty()) read_.complain("\"histories\" is empty");
    if (std::ranges::any_of(spec_.histories, [&](const ProductSpec::History& one) {
          return one.second.has_value() != spec_.has_seconds();
        }))
      read_.complain("some histories have a \"second\" and some have none");
    if (spec_.has_seconds() && spec_.looks_back)
      read_.complain("\"memory\" does not go with a \"second\" in \"histories\"");
    for (const dom::element item : read_.list(root, "steps", true, kMaxDerivedSteps))
      spec_.steps.push_back(condition(read_.as_text(item, "steps")));
  }

  ProductFileReader read_;
  ProductSpec spec_;
  std::map<std::string, ConditionId> by_name_;
  std::size_t named_steps_ = 0;
};

// A class with its ranks as ranges: {"rank":1,"ranks":[[1,3],[5,5]]}.
Json class_json(const ProductSpec::RankClass& one) {
  Json ranges = Json::array();
  for (std::size_t i = 0; i < one.ranks.size();) {
    std::size_t end = i + 1;
    while (end < one.ranks.size() && one.ranks[end] == one.ranks[end - 1] + 1) ++end;
    ranges.push_back({one.ranks[i], one.ranks[end - 1]});
    i = end;
  }
  return {{"rank", one.rank}, {"ranks", std::move(ranges)}};
}

}  // namespace

Result<ProductSpec> parse_product(std::string_view text, const std::string& file) {
  dom::parser parser;
  dom::element root;
  dom::object object;
  const simdjson::padded_string padded(text);
  if (const auto failed = parser.parse(padded).get(root); failed != simdjson::SUCCESS)
    return Error{fmt::format("no valid JSON: {}", simdjson::error_message(failed)), {file}, kFix};
  if (root.get(object) != simdjson::SUCCESS) return Error{"not a JSON object", {file}, kFix};
  return SpecReader(file).spec(object);
}

std::string product_text(const ProductSpec& spec) {
  const auto names = [&](const auto& conditions) {
    Json out = Json::array();
    for (const ConditionId c : conditions) out.push_back(spec.conditions[c.value].name);
    return out;
  };
  Json conditions = Json::array();
  for (const ProductSpec::Condition& one : spec.conditions)
    conditions.push_back({{"name", one.name}, {"phase", one.phase}, {"has", one.has}});
  Json allowed = Json::array();
  for (const ProductSpec::Allowed& one : spec.allowed) {
    Json& rule = allowed.emplace_back(Json::object());
    // An empty list would allow nothing; what is left out means all.
    if (!one.ranks.empty()) rule["ranks"] = one.ranks;
    if (!one.steps.empty()) rule["steps"] = one.steps;
    rule["conditions"] = names(one.conditions);
  }
  Json histories = Json::array();
  for (const ProductSpec::History& one : spec.histories) {
    Json& history = histories.emplace_back(Json::object());
    history["first"] = spec.conditions[one.first.value].name;
    if (one.second) history["second"] = spec.conditions[one.second->value].name;
    history["folder"] = one.folder;
  }
  Json out = {{"product", 1},
              {"program", spec.program},
              {"world_size", spec.world_size},
              {"assumptions", spec.assumptions},
              {"conditions", std::move(conditions)},
              {"choice", spec.choice == ProductSpec::Choice::agreed ? "agreed" : "free"},
              {"allowed", std::move(allowed)}};
  if (spec.looks_back) out["memory"] = "step-before";
  if (spec.copy_ranks > 0) out["copy_ranks"] = spec.copy_ranks;
  for (const ProductSpec::RankClass& one : spec.classes) out["classes"].push_back(class_json(one));
  if (!spec.together.empty()) out["together"] = spec.together;
  out["histories"] = std::move(histories);
  out["steps"] = names(spec.steps);
  if (spec.only_steps) out["only_steps"] = *spec.only_steps;
  return fmt::format("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace lockstep::trace
