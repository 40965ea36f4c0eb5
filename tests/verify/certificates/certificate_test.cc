// Certificates: accepted for what they were written for, and for nothing else.
#include "verify/certificates/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/sanitized.h"
#include "tests/support/trace_text.h"
#include "tests/verify/product/certificate_lines.h"
#include "tests/verify/product/python_checker.h"
#include "tests/verify/product/small_product.h"
#include "tests/verify/program.h"

namespace lockstep::verify {
namespace {

using testing::HasSubstr;

// Two groups, messages, waits, a start, an end, a constraint, and a first step that matters.
SmallProduct rich_product() {
  SmallProduct p(3);
  p.group("b", {0, 1});
  p.spec.assumptions = {"one library, and no other", ""};
  p.start("A:init:8");
  p.end("A:bye");
  for (const char* name : {"image", "text", "none"}) {
    p.condition(name, "A:w b:v w1 S1:x A:u:16", 0);
    p.condition(name, "A:w b:v R0:x w1 A:u:16", 1);
    p.condition(name, "A:w A:u:16", 2);
  }
  p.allow({1}, {2, 3}, {"image", "text"});
  p.allow({0, 2}, {0}, {"text", "none"});
  return p;
}

std::string program_certificate(const trace::Derivation& derivation) {
  const ProductModel model(derivation);
  const ProductDecision decision = decide(model);
  EXPECT_EQ(decision.verdict, ProductVerdict::safe)
      << (decision.why.empty() ? "" : decision.why.front());
  const Result<std::string> text = write_certificate(model, decision);
  if (!text) {
    ADD_FAILURE() << text.error().str();
    return {};
  }
  return *text;
}

bool program_accepted(const std::string& text, const trace::Derivation& derivation) {
  return static_cast<bool>(check_certificate(text, derivation));
}

TEST(Certificate, IsAcceptedForItsOwnDerivation) {
  const trace::Derivation derivation = rich_product().derivation();
  const std::string text = program_certificate(derivation);
  const CheckerSays status = check_certificate(text, derivation);
  EXPECT_TRUE(status) << status.why << "\n" << text;
}

TEST(Certificate, EveryTamperedTraceIsRefused) {
  const SmallProduct product = rich_product();
  const std::string text = program_certificate(product.derivation());
  std::size_t tried = 0;
  for (std::size_t h = 0; h < 3; ++h) {
    for (std::size_t r = 0; r < 3; ++r) {
      if (kSanitized && r != h) continue;
      const std::vector<std::string> traces = product.texts(h);
      const std::vector<std::string> lines = lines_of(traces[r]);
      const auto refused = [&](const std::vector<std::string>& changed, const std::string& what) {
        std::vector<std::string> tampered = traces;
        tampered[r].clear();
        for (const std::string& line : changed) tampered[r] += line + "\n";
        trace::Derivation derivation = product.derivation();
        derivation.runs[h] = run_from_text(tampered);
        EXPECT_FALSE(program_accepted(text, derivation)) << what;
        ++tried;
      };
      for (std::size_t i = 0; i < lines.size(); ++i) {
        // Every second line, in turn over the histories: a trace holds each condition twice or
        // more.
        if ((i + h) % 2 == 0) continue;
        const bool call = lines[i].find("\"issue\"") != std::string::npos;
        if (!call && lines[i].find("\"wait\"") == std::string::npos) continue;
        std::vector<std::string> changed = lines;
        changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
        refused(changed, "removed " + lines[i]);
        if (!call) continue;
        const auto with = [&](const std::string& from, const std::string& to) {
          exchange_in_line(lines, i, from, to, refused);
        };
        with("all_reduce", "broadcast");
        with("\"sum\"", "\"max\"");
        // Which names a message has on its two sides, and what a receive reads, decides nothing.
        const bool receives = lines[i].find("\"recv\"") != std::string::npos;
        if (lines[i].find("\"peer\"") == std::string::npos)
          with("\"what\":[\"", "\"what\":[\"other.");
        if (receives)
          with("\"out\":[[", "\"out\":[[9");
        else
          with("\"in\":[[", "\"in\":[[9");
        with("\"async\":false", "\"async\":true");
        with("\"async\":true", "\"async\":false");
        with("\"g\":\"a\"", "\"g\":\"c\"");
        with("\"peer\":1", "\"peer\":2");
        with("\"peer\":0", "\"peer\":2");
        // A call more, with an id of its own, and two calls in each other's place.
        changed = lines;
        const std::string id = "\"id\":";
        const std::size_t at = lines[i].find(id) + id.size();
        const std::size_t length = lines[i].find(',', at) - at;
        std::string more = lines[i];
        more.replace(at, length, "1000");
        std::size_t next = lines.size();
        for (std::size_t j = i + 1; j < lines.size() && next == lines.size(); ++j) {
          if (lines[j].find("\"issue\"") != std::string::npos) next = j;
        }
        if (next < lines.size()) {
          std::string a = lines[i];
          std::string b = lines[next];
          const std::size_t other = b.find(id) + id.size();
          const std::string id_of_b = b.substr(other, b.find(',', other) - other);
          const std::string id_of_a = a.substr(at, length);
          b.replace(other, id_of_b.size(), id_of_a);
          a.replace(at, length, id_of_b);
          if (a.substr(a.find(',', at)) != lines[next].substr(lines[next].find(',', other))) {
            changed[i] = b;
            changed[next] = a;
            refused(changed, "swapped " + lines[i]);
          }
        } else {
          changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(i) + 1, more);
          refused(changed, "added " + more);
        }
      }
    }
  }
  EXPECT_GT(tried, kSanitized ? 45U : 150U);
}

TEST(Certificate, EveryChangeOfTheSpecIsRefused) {
  const SmallProduct product = rich_product();
  const std::string text = program_certificate(product.derivation());
  const auto refused = [&](auto change) {
    trace::Derivation derivation = product.derivation();
    change(derivation.spec);
    return !program_accepted(text, derivation);
  };
  using Spec = trace::ProductSpec;
  EXPECT_TRUE(refused([](Spec& s) { s.program += "x"; }));
  EXPECT_TRUE(refused([](Spec& s) { s.assumptions.pop_back(); }));
  EXPECT_TRUE(refused([](Spec& s) { s.conditions[0].name = "other"; }));
  EXPECT_TRUE(refused([](Spec& s) { s.conditions[1].phase = "other"; }));
  EXPECT_TRUE(refused([](Spec& s) { s.conditions[1].has.clear(); }));
  EXPECT_TRUE(refused([](Spec& s) { s.choice = Spec::Choice::agreed; }));
  EXPECT_TRUE(refused([](Spec& s) { s.allowed.pop_back(); }));
  EXPECT_TRUE(refused([](Spec& s) { s.allowed[0].ranks = {2}; }));
  EXPECT_TRUE(refused([](Spec& s) { s.allowed[0].steps = {2}; }));
  EXPECT_TRUE(refused([](Spec& s) { s.allowed[0].conditions = condition_ids({0}); }));
  EXPECT_TRUE(refused([](Spec& s) { std::swap(s.allowed[0], s.allowed[1]); }));
  EXPECT_TRUE(refused([](Spec& s) { s.histories[0].folder = "elsewhere"; }));
  EXPECT_TRUE(refused([](Spec& s) { std::swap(s.steps[0], s.steps[1]); }));
  EXPECT_TRUE(refused([](Spec& s) { s.only_steps = 100; }));
  EXPECT_TRUE(refused([](Spec& s) { s.looks_back = true; }));
}

TEST(Certificate, OnlySafeProgramsHaveOne) {
  SmallProduct p(2);
  p.condition("image", "A B");
  p.condition("text", "B A");
  const trace::Derivation derivation = p.derivation();
  const ProductModel model(derivation);
  const Result<std::string> text = write_certificate(model, decide(model));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().str(), HasSubstr("may deadlock"));
}

TEST(Certificate, RandomSafeProgramsAreCertified) {
  std::uint32_t state = 7;
  const auto below = [&](std::uint32_t n) { return (state = state * 1664525U + 1013904223U) % n; };
  for (int round = 0; round < 50; ++round) {
    SmallProduct p(static_cast<std::int32_t>(2 + below(3)));
    if (below(3) == 0) p.backend("nccl");
    if (below(3) == 0) p.spec.choice = trace::ProductSpec::Choice::agreed;
    std::string program;
    const std::uint32_t calls = below(6);
    for (std::uint32_t i = 0; i < calls; ++i)
      program += std::string(1, "ABCabc"[below(6)]) + ":p" + std::to_string(i) + " ";
    for (std::uint32_t i = 0; i < calls; ++i) program += "w" + std::to_string(i) + " ";
    p.condition("image", program);
    p.condition("text", program);
    // Where all ranks agree on the step before, it may do something of its own.
    if (below(2) == 0) {
      const bool own = p.spec.choice == trace::ProductSpec::Choice::agreed;
      p.after("image", "text", own ? "A" : program);
      if (below(2) == 0) p.allow({}, {1, 4}, {"image"});
    }
    const trace::Derivation derivation = p.derivation();
    const CheckerSays status = check_certificate(program_certificate(derivation), derivation);
    EXPECT_TRUE(status) << round << ": " << program << "\n" << status.why;
  }
}

}  // namespace
}  // namespace lockstep::verify
