// decide() against enumeration, on all small programs and on larger random ones.
//
// The oracle makes every assignment of conditions to ranks over two steps by hand, or over three
// where more than the first one counts (SmallProduct writes each as a text trace, which compose()
// has no part in), and asks verify(). The claim:
//   decide() says `safe`  exactly if  verify() finds nothing about matching or blocking in any of
//   them; and its counterexample is a run that verify() finds fault with.
// On Gloo verify() replays exactly, so that a deadlock that is possible in an assignment is proven
// in its run: "may deadlock" needs no schedule that the enumeration would miss.
#include <algorithm>
#include <map>
#include <random>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/sanitized.h"
#include "tests/support/trace_text.h"
#include "tests/verify/product/small_product.h"
#include "tests/verify/program.h"
#include "tests/verify/words.h"
#include "verify/product/decide.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

// Only what concerns matching and blocking: an asynchronous call that nobody waits for is a fault
// of its own, and none of the product.
bool at_fault(const Report& report) { return shows_divergence(report); }

// The run in which rank r is in conditions[r], step by step.
trace::Run run_of_assignment(const SmallProduct& product,
                             const std::vector<std::vector<std::uint32_t>>& conditions) {
  std::vector<std::string> texts;
  for (std::int32_t r = 0; r < product.spec.world_size; ++r) {
    texts.push_back(program_text(r, product.spec.world_size,
                                 product.rank_program(r, conditions[static_cast<std::size_t>(r)]),
                                 /*timed=*/false));
  }
  return run_from_text(texts);
}

// Whether the ranks may be in these conditions: the phases agree, and so do the rules.
bool permitted(const trace::ProductSpec& spec,
               const std::vector<std::vector<std::uint32_t>>& conditions) {
  for (std::size_t step = 0; step < conditions.front().size(); ++step) {
    for (std::size_t r = 0; r < conditions.size(); ++r) {
      const trace::ConditionId mine(conditions[r][step]);
      if (spec.conditions[mine.value].phase != spec.conditions[conditions[0][step]].phase)
        return false;
      const auto covers = [](const auto& list, std::size_t number) {
        return list.empty() || std::ranges::count(list, number) > 0;
      };
      const auto rule = std::ranges::find_if(spec.allowed, [&](const auto& one) {
        return covers(one.ranks, r) && covers(one.steps, step);
      });
      if (rule != spec.allowed.end() && std::ranges::count(rule->conditions, mine) == 0)
        return false;
    }
  }
  return true;
}

// Calls `visit` with every assignment over two steps, or three.
template <class Visit>
void all_assignments(const SmallProduct& product, Visit visit) {
  const std::size_t steps = product.spec.looks_back || product.settles_in_step_1() ? 3 : 2;
  const auto ranks = static_cast<std::size_t>(product.spec.world_size);
  const std::size_t n = product.spec.conditions.size();
  const bool agreed = product.spec.choice == trace::ProductSpec::Choice::agreed;
  // Whose condition a rank shares: the first of those that it is together with.
  std::vector<std::size_t> leader(ranks);
  for (std::size_t r = 0; r < ranks; ++r) leader[r] = agreed ? 0 : r;
  for (const auto& team : product.spec.together) {
    for (const std::int32_t r : team)
      leader[static_cast<std::size_t>(r)] = agreed ? 0 : static_cast<std::size_t>(team.front());
  }
  std::size_t digits = 0;
  for (std::size_t r = 0; r < ranks; ++r) digits += leader[r] == r ? steps : 0U;
  std::size_t count = 1;
  for (std::size_t d = 0; d < digits; ++d) count *= n;
  for (std::size_t code = 0; code < count; ++code) {
    std::vector<std::vector<std::uint32_t>> conditions(ranks, std::vector<std::uint32_t>(steps));
    std::size_t rest = code;
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t r = 0; r < ranks; ++r) {
        conditions[r][step] =
            leader[r] == r ? static_cast<std::uint32_t>(rest % n) : conditions[leader[r]][step];
        if (leader[r] == r) rest /= n;
      }
    }
    if (permitted(product.spec, conditions)) visit(conditions);
  }
}

struct Tally {
  std::size_t safe = 0, diverges = 0, may_deadlock = 0;
};

// True where both agree.
bool compare(const SmallProduct& product, const std::string& shown, Tally& tally) {
  const trace::Derivation derivation = product.derivation();
  const ProductModel model(derivation);
  const ProductDecision decision = decide(model);
  bool fault = false;
  std::string first;
  all_assignments(product, [&](const auto& conditions) {
    if (fault) return;
    const Report report = verify(run_of_assignment(product, conditions));
    if (!at_fault(report)) return;
    fault = true;
    first = summary(report);
  });
  EXPECT_EQ(decision.verdict == ProductVerdict::safe, !fault)
      << shown << "\ndecide: " << to_string(decision.verdict) << "\n"
      << (decision.why.empty() ? "" : decision.why.front()) << "\n"
      << first;
  EXPECT_NE(decision.verdict, ProductVerdict::inconclusive) << shown << decision.why.front();
  if (decision.counterexample) {
    EXPECT_TRUE(at_fault(decision.counterexample->report)) << shown;
    tally.may_deadlock += decision.verdict == ProductVerdict::may_deadlock;
    tally.diverges += decision.verdict == ProductVerdict::diverges;
  } else {
    ++tally.safe;
  }
  return !::testing::Test::HasFailure();
}

std::string spaced(const std::string& letters) {
  std::string out;
  for (const char c : letters) out += std::string(out.empty() ? "" : " ") + c;
  return out;
}

// All ranks do the same under a condition.
TEST(ProductOracle, AllProgramsOfTwoConditionsInTwoGroups) {
  const auto all = words_over("AB", kSanitized ? 2 : 3);
  Tally tally;
  for (const std::string& x : all) {
    for (const std::string& y : all) {
      SmallProduct p(2);
      p.condition("image", spaced(x));
      p.condition("text", spaced(y));
      if (!compare(p, x + " | " + y, tally)) return;
    }
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
  EXPECT_GT(tally.may_deadlock, 0U);
}

// Each rank does something of its own; blocking or not, with waits.
TEST(ProductOracle, AllProgramsOfTwoRanksThatDiffer) {
  const std::vector<std::string> all = {"A B",    "B A",    "a b w0 w1", "b a w0 w1",
                                        "a B w0", "b A w0", "a w0 B",    "A"};
  Tally tally;
  for (const std::string& x : all) {
    for (const std::string& y : all) {
      for (const std::string& z : all) {
        if (kSanitized && z != all[0]) continue;
        SmallProduct p(2);
        p.condition("image", x);
        p.condition("image", y, 1);
        p.condition("text", x);
        p.condition("text", z, 1);
        if (!compare(p, x + " | " + y + " / " + z, tally)) return;
      }
    }
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
  EXPECT_GT(tally.may_deadlock, 0U);
}

// Messages there and back, beside a group.
TEST(ProductOracle, AllProgramsOfTwoRanksWithMessages) {
  const std::vector<std::string> here = {"S1 R1", "R1 S1", "s1 R1 w0", "S1 A R1", "A S1 R1:x:8"};
  const std::vector<std::string> there = {"S0 R0",   "R0 S0", "s0 R0 w0",
                                          "R0 A S0", "A R0",  "R0 S0:x:8"};
  Tally tally;
  for (const std::string& x : here) {
    for (const std::string& y : there) {
      for (const std::string& z : there) {
        SmallProduct p(2);
        p.condition("image", x, 0);
        p.condition("image", y, 1);
        p.condition("text", x, 0);
        p.condition("text", z, 1);
        if (!compare(p, x + " | " + y + " / " + z, tally)) return;
      }
    }
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
  EXPECT_GT(tally.may_deadlock, 0U);
}

// Two pairs of ranks that share a batch each: messages within a pair, a group of the first ranks
// and one of the second ones. What a pair sends may depend on the condition; what it reduces may
// not.
TEST(ProductOracle, AllProgramsOfTwoPairs) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"S1 A", "R0 B"},     {"s1 A w0", "R0 B"},    {"A", "B"},
      {"A S1", "R0 B"},     {"S1 R1 A", "S0 R0 B"}, {"s1 R1 w0 A", "s0 R0 w0 B"},
      {"S1 A", "B"},        {"A A", "B"},           {"S1 S1:x:8 A", "R0 R0:x:8 B"},
      {"S1:x:8 A", "R0 B"}, {"A R1", "B S0"},       {"R1 A", "B S0"},
  };
  const auto shifted = [](std::string program) {  // for ranks 2 and 3
    for (std::size_t i = 0; i + 1 < program.size(); ++i) {
      if (std::string("SRsr").find(program[i]) != std::string::npos)
        program[i + 1] = static_cast<char>(program[i + 1] + 2);
    }
    return program;
  };
  Tally tally;
  std::size_t varying = 0;
  for (const auto& [x0, x1] : all) {
    for (const auto& [y0, y1] : all) {
      if (kSanitized && x0 > y0) continue;  // the other way round is enough
      SmallProduct p(4);
      p.group("a", {0, 2});
      p.group("b", {1, 3});
      p.spec.together = {{0, 1}, {2, 3}};
      p.condition("image", x0, 0);
      p.condition("image", x1, 1);
      p.condition("image", shifted(x0), 2);
      p.condition("image", shifted(x1), 3);
      p.condition("text", y0, 0);
      p.condition("text", y1, 1);
      p.condition("text", shifted(y0), 2);
      p.condition("text", shifted(y1), 3);
      if (!compare(p, x0 + " & " + x1 + " | " + y0 + " & " + y1, tally)) return;
      const trace::Derivation derivation = p.derivation();
      const ProductDecision decision = decide(ProductModel(derivation));
      varying += decision.verdict == ProductVerdict::safe && decision.varying ? 1U : 0U;
    }
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
  EXPECT_GT(tally.may_deadlock, 0U);
  EXPECT_GT(varying, 0U);
}

// Ranks that meet the same conditions one by one diverge where they do not share a batch.
TEST(ProductOracle, WhoDoesNotShareABatchMayNotVary) {
  SmallProduct p(2);
  p.condition("image", "S1", 0);
  p.condition("image", "R0", 1);
  p.condition("text", "", 0);
  p.condition("text", "", 1);
  const trace::Derivation apart = p.derivation();
  EXPECT_EQ(decide(ProductModel(apart)).verdict, ProductVerdict::diverges);
  p.spec.together = {{0, 1}};
  const trace::Derivation shared = p.derivation();
  EXPECT_EQ(decide(ProductModel(shared)).verdict, ProductVerdict::safe);
}

class Generator {
 public:
  explicit Generator(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  // Two or three ranks, up to three conditions, groups of some ranks. Half of the programs are made
  // to agree: one list of calls, in an order that depends on the condition.
  SmallProduct product(std::string& shown) {
    const auto ranks = static_cast<std::int32_t>(2 + below(2));
    SmallProduct p(ranks);
    shown += fmt::format("{} ranks", ranks);
    if (ranks == 3) {
      const std::vector<std::vector<std::int32_t>> some = {{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {0}};
      p.group("a", members_ = some[below(some.size())]);
      p.group("b", other_ = some[below(some.size())]);
      shown += ", groups";
      for (const std::int32_t r : members_) shown += fmt::format(" {}", r);
      shown += " /";
      for (const std::int32_t r : other_) shown += fmt::format(" {}", r);
    } else {
      members_ = other_ = {0, 1};
    }
    if (below(4) == 0) p.spec.choice = trace::ProductSpec::Choice::agreed;
    if (below(4) == 0) {
      p.spec.together = {{0, 1}};
      shown += ", 0 and 1 together";
    }
    const bool agreeing = below(2) == 0;
    const std::string names = word(1 + below(3), "ABab");
    const char* const conditions[] = {"image", "text", "both"};
    const std::size_t n = 1 + below(3);
    for (std::size_t c = 0; c < n; ++c) {
      for (std::int32_t r = 0; r < ranks; ++r) {
        const std::string calls = agreeing ? shuffled(names) : word(below(4), "ABab");
        const std::string program = for_rank(calls, r);
        shown += fmt::format("\n  {}, rank {}: {}", conditions[c], r, program);
        p.condition(conditions[c], program, r);
      }
    }
    return p;
  }

 private:
  std::string word(std::size_t length, const std::string& letters) {
    std::string out;
    for (std::size_t i = 0; i < length; ++i) out += letters[below(letters.size())];
    return out;
  }
  std::string shuffled(std::string letters) {
    for (std::size_t i = letters.size(); i > 1; --i) std::swap(letters[i - 1], letters[below(i)]);
    return letters;
  }
  // Only calls of groups that the rank is in; asynchronous ones are waited for at the end.
  std::string for_rank(const std::string& letters, std::int32_t rank) {
    std::string out;
    std::string waits;
    std::size_t calls = 0;
    for (const char c : letters) {
      const auto& group = (c | 0x20) == 'a' ? members_ : other_;
      if (std::find(group.begin(), group.end(), rank) == group.end()) continue;
      if (c == 'a' || c == 'b') waits += fmt::format(" w{}", calls);
      out += std::string(" ") + c;
      ++calls;
    }
    return out + waits;
  }

  std::mt19937 random_;
  std::vector<std::int32_t> members_, other_;
};

TEST(ProductOracle, RandomPrograms) {
  Tally tally;
  const std::uint32_t seeds = kSanitized ? 40 : 400;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    Generator generator(seed);
    std::string shown = fmt::format("seed {}: ", seed);
    const SmallProduct p = generator.product(shown);
    if (!compare(p, shown, tally)) return;
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
  EXPECT_GT(tally.may_deadlock, 0U);
}

// The first step's condition decides what later ones do.
TEST(ProductOracle, AllProgramsThatDependOnTheFirstStep) {
  const std::vector<std::string> all = {"A:w A:v", "A:v A:w", "A:w", "A:w B:v"};
  Tally tally;
  for (const std::string& first : all) {
    for (const std::string& later : all) {
      for (const std::string& other : all) {
        SmallProduct p(2);
        p.condition("image", "A:w A:v");
        p.condition("text", later);
        p.first("text", first);
        p.later("text", "image", other);
        if (!compare(p, first + " | " + later + " | " + other, tally)) return;
      }
    }
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
}

// What a step calls depends on the step before.
TEST(ProductOracle, AllProgramsThatLookBack) {
  const std::vector<std::string> all = {"A:w A:v", "A:v A:w", "A:w", "A:w B:v"};
  Tally tally;
  for (const std::string& text : all) {
    for (const std::string& one : all) {
      for (const std::string& other : all) {
        SmallProduct p(2);
        p.condition("image", "A:w A:v");
        p.condition("text", text);
        p.after("image", "text", one);
        p.after("text", "image", other);
        const std::string shown = text + " | " + one + " | " + other;
        if (!compare(p, shown, tally)) return;
        p.spec.choice = trace::ProductSpec::Choice::agreed;
        if (!compare(p, "agreed: " + shown, tally)) return;
        // The step's number decides.
        p.spec.choice = trace::ProductSpec::Choice::free;
        p.allow({}, {0, 2}, {"image"});
        p.allow({}, {}, {"text"});
        p.spec.only_steps = 3;
        if (!compare(p, "in turn: " + shown, tally)) return;
      }
    }
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
}

// Two ranks, three conditions in up to two phases, rules for a step or a rank, and a program of its
// own for each pair of conditions and rank, or for each pair of phases: as of a vote.
TEST(ProductOracle, RandomProgramsThatLookBack) {
  Tally tally;
  std::mt19937 random(11);
  const auto below = [&](std::size_t n) { return random() % n; };
  const char* const names[] = {"image", "image, lost", "text"};
  const std::vector<std::string> programs = {"A B", "B A", "a B w0", "A", "A A", ""};
  const std::uint32_t rounds = kSanitized ? 20 : 150;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    SmallProduct p(2);
    std::string shown = fmt::format("round {}", round);
    const auto phase = [&](std::size_t c) { return round % 2 == 0 && c > 0 ? "lacks" : ""; };
    const bool by_phase = below(2) == 0;
    // Mostly the same for both ranks and in all steps, so that some programs are safe.
    const std::string usual = programs[below(programs.size())];
    const auto program = [&] { return below(8) == 0 ? programs[below(programs.size())] : usual; };
    for (std::size_t c = 0; c < 3; ++c) p.condition(names[c], usual, std::nullopt, phase(c));
    std::map<std::pair<std::string, std::string>, std::string> of_phases;
    for (std::size_t a = 0; a < 3; ++a) {
      for (std::size_t b = 0; b < 3; ++b) {
        for (std::int32_t r = 0; r < 2; ++r) {
          std::string calls = program();
          if (by_phase)
            calls =
                of_phases.emplace(std::pair(phase(a), phase(b)), programs[below(2)]).first->second;
          p.after(names[a], names[b], calls, r);
          shown += fmt::format("\n  {} after {}, rank {}: {}", names[b], names[a], r, calls);
        }
      }
    }
    if (below(3) == 0) p.allow({static_cast<std::int32_t>(below(2))}, {1}, {"image", "text"});
    if (below(3) == 0) p.allow({}, {static_cast<std::int64_t>(below(3))}, {"image", "image, lost"});
    if (below(6) == 0) p.spec.choice = trace::ProductSpec::Choice::agreed;
    if (!p.spec.allowed.empty()) p.spec.only_steps = 3;  // those of the oracle
    if (!compare(p, shown, tally)) return;
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
  if (!kSanitized) {  // in a later round
    EXPECT_GT(tally.may_deadlock, 0U);
  }
}

// Two ranks, two or three conditions in up to two phases, rules for a step or a rank; what a rank
// does in step 1 and later depends on the first two steps.
TEST(ProductOracle, RandomProgramsThatSettleInStepOne) {
  Tally tally;
  std::mt19937 random(5);
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::vector<std::string> names = {"image", "image, lost", "text"};
  const std::vector<std::string> programs = {"A B", "B A", "a B w0", "A", "A A", ""};
  const std::uint32_t rounds = kSanitized ? 20 : 150;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    SmallProduct p(2);
    std::string shown = fmt::format("round {}", round);
    const std::size_t n = 2 + below(2);
    const auto phase = [&](std::size_t c) { return round % 2 == 0 && c > 0 ? "lacks" : ""; };
    const bool by_phase = below(2) == 0;
    const std::string usual = programs[below(programs.size())];
    for (std::size_t c = 0; c < n; ++c) p.condition(names[c], usual, std::nullopt, phase(c));
    // One program for all; or of the phases of these steps; or now and then another one.
    std::map<std::vector<std::string>, std::string> of_phases;
    const auto program = [&](std::initializer_list<std::size_t> conditions, std::int32_t rank) {
      std::string calls = below(12) == 0 ? programs[below(programs.size())] : usual;
      std::vector<std::string> key;
      std::string words;
      for (const std::size_t c : conditions) {
        key.emplace_back(phase(c));
        words += " " + names[c];
      }
      if (by_phase) calls = of_phases.emplace(key, programs[below(2)]).first->second;
      shown += fmt::format("\n {}, rank {}: {}", words, rank, calls);
      return calls;
    };
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        for (std::int32_t r = 0; r < 2; ++r) p.second(names[a], names[b], program({a, b}, r), r);
        for (std::size_t c = 0; c < n; ++c)
          for (std::int32_t r = 0; r < 2; ++r)
            p.settled(names[a], names[b], names[c], program({a, b, c}, r), r);
      }
    }
    if (below(3) == 0) p.allow({static_cast<std::int32_t>(below(2))}, {1}, {"image", names[n - 1]});
    if (below(3) == 0) p.allow({}, {static_cast<std::int64_t>(below(3))}, {"image", names[1]});
    if (below(6) == 0) p.spec.choice = trace::ProductSpec::Choice::agreed;
    if (!p.spec.allowed.empty()) p.spec.only_steps = 3;  // those of the oracle
    if (!compare(p, shown, tally)) return;
  }
  EXPECT_GT(tally.safe, 0U);
  EXPECT_GT(tally.diverges, 0U);
  EXPECT_GT(tally.may_deadlock, 0U);
}

// Runs that compose() makes of a safe program are clean, as are those made by hand; and both are
// the same program.
TEST(ProductOracle, ComposedRunsAreThoseMadeByHand) {
  SmallProduct p(2);
  p.condition("image", "A:w b:v w1 B:u");
  p.condition("text", "A:w b:v w1 B:u");
  const trace::Derivation derivation = p.derivation();
  const ProductModel model(derivation);
  ASSERT_EQ(decide(model).verdict, ProductVerdict::safe);
  all_assignments(p, [&](const auto& conditions) {
    Assignment assignment;
    assignment.steps = {0, 1};
    for (std::size_t step = 0; step < 2; ++step) {
      std::vector<ProductOption> options;
      for (const auto& mine : conditions)
        options.push_back({HistoryId(mine[0]), ConditionId(mine[step])});
      assignment.options.push_back(options);
    }
    const trace::Run composed = compose(model, assignment);
    const trace::Run by_hand = run_of_assignment(p, conditions);
    EXPECT_EQ(verify(composed).verdict, Verdict::clean);
    for (std::size_t r = 0; r < 2; ++r) {
      std::ostringstream a, b;
      trace::write_text_trace(a, composed.ranks[r], composed.tables);
      trace::write_text_trace(b, by_hand.ranks[r], by_hand.tables);
      EXPECT_EQ(a.str(), b.str());
    }
  });
}

}  // namespace
}  // namespace lockstep::verify
