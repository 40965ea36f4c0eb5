#include "tests/verify/product/small_product.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "tests/support/trace_text.h"
#include "tests/verify/program.h"

namespace lockstep::verify {

namespace {

std::string comma_numbers(const std::vector<std::int32_t>& list) {
  std::string out;
  for (const std::int32_t n : list) out += (out.empty() ? "" : ",") + std::to_string(n);
  return out;
}

// The words of one step as items of the test language. `calls`: made so far by the rank.
std::string items(const std::string& program, std::optional<std::int64_t> step, std::int64_t& calls,
                  bool& raised) {
  std::string out;
  std::istringstream words(program);
  const std::int64_t first = calls;
  for (std::string word; words >> word && !raised;) {
    const char kind = word[0];
    std::istringstream parts(word.substr(1));
    std::string number, what, size;
    std::getline(parts, number, ':');
    std::getline(parts, what, ':');
    std::getline(parts, size, ':');
    if (kind == '!') {
      out += "; raise unused parameter; exception";
      raised = true;
    } else if (kind == 'w') {
      out += fmt::format("; wait {} open", first + std::stoll(number));
    } else {
      const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(kind)));
      const bool message = upper == 'S' || upper == 'R';
      if (message)
        out += std::string(upper == 'S' ? "; send" : "; recv") + " g=world peer=" + number;
      else
        out += "; all_reduce redop=sum g=" +
               std::string(1, static_cast<char>(std::tolower(static_cast<unsigned char>(upper))));
      out += " n=" + (size.empty() ? "4" : size);
      if (!what.empty()) out += " what=" + what;
      if (step) out += fmt::format(" step={}", *step);
      if (kind != upper) out += " async";
      ++calls;
    }
  }
  return out;
}

}  // namespace

SmallProduct::SmallProduct(std::int32_t ranks) {
  spec.world_size = ranks;
  spec.program = "small";
  std::vector<std::int32_t> all;
  for (std::int32_t r = 0; r < ranks; ++r) all.push_back(r);
  for (const char* name : {"a", "b", "c"}) groups_[name] = all;
}

const std::string& SmallProduct::of(const PerRank& programs, std::int32_t rank) {
  static const std::string kNothingToDo;
  if (const auto found = programs.find(rank); found != programs.end()) return found->second;
  const auto others = programs.find(-1);
  return others == programs.end() ? kNothingToDo : others->second;
}

std::uint32_t SmallProduct::index_of(const std::string& condition) const {
  const auto found =
      std::find_if(spec.conditions.begin(), spec.conditions.end(),
                   [&](const trace::ProductSpec::Condition& c) { return c.name == condition; });
  return static_cast<std::uint32_t>(found - spec.conditions.begin());
}

void SmallProduct::condition(const std::string& name, const std::string& program,
                             std::optional<std::int32_t> rank, const std::string& phase) {
  const std::uint32_t i = index_of(name);
  if (i == spec.conditions.size()) {
    spec.conditions.push_back({name, phase, {name}});
    conditions_.emplace_back();
  }
  conditions_[i][rank.value_or(-1)] = program;
}

void SmallProduct::first(const std::string& name, const std::string& program,
                         std::optional<std::int32_t> rank) {
  firsts_[index_of(name)][rank.value_or(-1)] = program;
}

void SmallProduct::later(const std::string& first, const std::string& name,
                         const std::string& program) {
  later_[{index_of(first), index_of(name)}][-1] = program;
}

void SmallProduct::after(const std::string& previous, const std::string& name,
                         const std::string& program, std::optional<std::int32_t> rank) {
  spec.looks_back = true;
  after_[{index_of(previous), index_of(name)}][rank.value_or(-1)] = program;
}

void SmallProduct::second(const std::string& first, const std::string& name,
                          const std::string& program, std::optional<std::int32_t> rank) {
  seconds_[{index_of(first), index_of(name)}][rank.value_or(-1)] = program;
}

void SmallProduct::settled(const std::string& first, const std::string& second,
                           const std::string& name, const std::string& program,
                           std::optional<std::int32_t> rank) {
  settled_[{index_of(first), index_of(second), index_of(name)}][rank.value_or(-1)] = program;
}

void SmallProduct::start(const std::string& program, std::optional<std::int32_t> rank) {
  start_[rank.value_or(-1)] = program;
}

void SmallProduct::end(const std::string& program, std::optional<std::int32_t> rank) {
  end_[rank.value_or(-1)] = program;
}

void SmallProduct::group(const std::string& name, std::vector<std::int32_t> ranks) {
  groups_[name] = std::move(ranks);
}

void SmallProduct::allow(std::vector<std::int32_t> ranks, std::vector<std::int64_t> steps,
                         const std::vector<std::string>& conditions) {
  trace::ProductSpec::Allowed rule{std::move(ranks), std::move(steps), {}};
  for (const std::string& name : conditions) rule.conditions.emplace_back(index_of(name));
  std::sort(rule.conditions.begin(), rule.conditions.end());
  spec.allowed.push_back(std::move(rule));
}

trace::ProductSpec SmallProduct::full_spec() const {
  trace::ProductSpec out = spec;
  const auto n = static_cast<std::uint32_t>(spec.conditions.size());
  for (std::uint32_t c = 0; c < n; ++c) {
    const trace::ConditionId first(c);
    if (!settles_in_step_1()) out.histories.push_back({first, fmt::format("first-{}", c)});
    for (std::uint32_t second = 0; second < n && settles_in_step_1(); ++second)
      out.histories.push_back(
          {first, fmt::format("first-{}-{}", c, second), trace::ConditionId(second)});
  }
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t c = 0; c < n; ++c) {
      out.steps.emplace_back(c);
      for (std::uint32_t other = c + 1; other < n && spec.looks_back; ++other) {
        out.steps.emplace_back(c);
        out.steps.emplace_back(other);
      }
    }
  }
  if (spec.looks_back) out.steps.emplace_back(0);
  return out;
}

const std::string& SmallProduct::step_program(std::int32_t rank,
                                              const std::vector<std::uint32_t>& conditions,
                                              std::size_t step) const {
  const std::uint32_t first = conditions[0];
  const std::uint32_t condition = conditions[step];
  const PerRank* special = nullptr;
  const auto look_in = [&](const auto& programs, const auto& key) {
    if (const auto found = programs.find(key); special == nullptr && found != programs.end())
      special = &found->second;
  };
  if (step == 0) {
    look_in(firsts_, first);
  } else {
    if (step == 1) look_in(seconds_, std::pair(first, condition));
    if (step > 1) look_in(settled_, std::array{first, conditions[1], condition});
    look_in(after_, std::pair(conditions[step - 1], condition));
    look_in(later_, std::pair(first, condition));
  }
  if (special != nullptr) return of(*special, rank);
  return of(conditions_[condition], rank);
}

std::string SmallProduct::rank_program(std::int32_t rank,
                                       const std::vector<std::uint32_t>& conditions) const {
  std::string out = "backend " + backend_;
  for (const auto& [name, ranks] : groups_) {
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
      out += "; group " + name + " " + comma_numbers(ranks);
  }
  std::int64_t calls = 0;
  bool raised = false;
  out += items(of(start_, rank), std::nullopt, calls, raised);
  for (std::size_t step = 0; step < conditions.size(); ++step) {
    if (raised) return out;
    out += fmt::format("; modality {} {}", step, spec.conditions[conditions[step]].name);
    out +=
        items(step_program(rank, conditions, step), static_cast<std::int64_t>(step), calls, raised);
  }
  if (raised) return out;
  out += items(of(end_, rank), std::nullopt, calls, raised);
  return out + "; clean";
}

std::vector<std::string> SmallProduct::texts(std::size_t history) const {
  const trace::ProductSpec full = full_spec();
  std::vector<std::uint32_t> conditions = {full.histories[history].first.value};
  if (const auto second = full.histories[history].second) conditions.push_back(second->value);
  for (const trace::ConditionId c : full.steps) conditions.push_back(c.value);
  std::vector<std::string> out;
  for (std::int32_t r = 0; r < spec.world_size; ++r)
    out.push_back(program_text(r, spec.world_size, rank_program(r, conditions), false));
  return out;
}

trace::Derivation SmallProduct::derivation() const {
  trace::Derivation out;
  out.spec = full_spec();
  for (std::size_t h = 0; h < out.spec.histories.size(); ++h)
    out.runs.push_back(run_from_text(texts(h)));
  return out;
}

void SmallProduct::write(const std::string& folder) const {
  const trace::ProductSpec full = full_spec();
  std::ofstream(folder + "/product.json") << trace::product_text(full);
  for (std::size_t h = 0; h < full.histories.size(); ++h) {
    const std::string history = folder + "/" + full.histories[h].folder;
    std::filesystem::create_directories(history);
    const std::vector<std::string> all = texts(h);
    for (std::size_t r = 0; r < all.size(); ++r)
      std::ofstream(fmt::format("{}/rank_{}.trace.jsonl", history, r)) << all[r];
  }
}

}  // namespace lockstep::verify
