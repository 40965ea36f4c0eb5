// Derivations in a few lines: which conditions, and what each rank does under each.
//
//   SmallProduct p(2);
//   p.condition("image", "A B");           // all ranks: all-reduce in group a, then in b
//   p.condition("text", "A");
//   Derivation d = p.derivation();
//
// A program is a list of calls:
//   A, B, C  a blocking all-reduce in group a, b, c; in lower case asynchronous
//   wN       a wait for the step's N-th call
//   S1, R1   a message to rank 1, from rank 1; in lower case asynchronous
//   A:w:8    the same with the parameter w, and 8 elements
//   !        raises an exception
// Groups a, b and c hold all ranks unless group() says otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/derivation.h"
#include "verify/report.h"

namespace lockstep::verify {

// The conditions of these indices.
inline std::vector<trace::ConditionId> condition_ids(std::initializer_list<std::uint32_t> indices) {
  std::vector<trace::ConditionId> out;
  for (const std::uint32_t index : indices) out.emplace_back(index);
  return out;
}

class SmallProduct {
 public:
  explicit SmallProduct(std::int32_t ranks);

  trace::ProductSpec spec;  // complete except for conditions, histories and steps

  // What all ranks do in a step under a condition. With `rank`, only that rank; it overrides the
  // program of all. A new name is a new condition. Step 0 is like any other unless first() is
  // called.
  void condition(const std::string& name, const std::string& program,
                 std::optional<std::int32_t> rank = std::nullopt, const std::string& phase = "");
  // What a rank does in step 0 of the history that begins with the condition, and later in it.
  void first(const std::string& name, const std::string& program,
             std::optional<std::int32_t> rank = std::nullopt);
  void later(const std::string& first, const std::string& name, const std::string& program);
  // What a rank does under a condition after a step (step 0, too) under `previous`; the program
  // then looks back.
  void after(const std::string& previous, const std::string& name, const std::string& program,
             std::optional<std::int32_t> rank = std::nullopt);
  // What a rank does in step 1 under a condition, and in later ones of histories that begin with
  // these two conditions; histories then go on to step 1.
  void second(const std::string& first, const std::string& name, const std::string& program,
              std::optional<std::int32_t> rank = std::nullopt);
  void settled(const std::string& first, const std::string& second, const std::string& name,
               const std::string& program, std::optional<std::int32_t> rank = std::nullopt);
  bool settles_in_step_1() const { return !seconds_.empty(); }
  void start(const std::string& program, std::optional<std::int32_t> rank = std::nullopt);
  void end(const std::string& program, std::optional<std::int32_t> rank = std::nullopt);
  void group(const std::string& name, std::vector<std::int32_t> ranks);
  void allow(std::vector<std::int32_t> ranks, std::vector<std::int64_t> steps,
             const std::vector<std::string>& conditions);
  void backend(const std::string& name) { backend_ = name; }

  // Fills in histories and steps: each condition twice; where the program looks back, each pair.
  trace::ProductSpec full_spec() const;
  // The text traces of a history, one for each rank.
  std::vector<std::string> texts(std::size_t history) const;
  trace::Derivation derivation() const;
  // Writes product.json and the traces below the folder.
  void write(const std::string& folder) const;

  // The program of all steps of a rank, as the test language of tests/verify/program.h has it:
  // conditions[0] in step 0, and so on; `firsts` decides the history.
  std::string rank_program(std::int32_t rank, const std::vector<std::uint32_t>& conditions) const;

 private:
  using PerRank = std::map<std::int32_t, std::string>;  // -1: all others
  static const std::string& of(const PerRank& programs, std::int32_t rank);
  std::uint32_t index_of(const std::string& condition) const;
  // `conditions`: of all steps.
  const std::string& step_program(std::int32_t rank, const std::vector<std::uint32_t>& conditions,
                                  std::size_t step) const;

  std::vector<PerRank> conditions_;
  std::map<std::uint32_t, PerRank> firsts_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, PerRank> later_, after_, seconds_;
  std::map<std::array<std::uint32_t, 3>, PerRank> settled_;
  PerRank start_, end_;
  std::map<std::string, std::vector<std::int32_t>> groups_;
  std::string backend_ = "gloo";
};

}  // namespace lockstep::verify
