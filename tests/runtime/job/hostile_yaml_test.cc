// Files that want to crash, hang or exhaust the reader get an error, with a place where there is
// one.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string error_of_text(const std::string& text) {
  const Result<Scenario> s = parse_scenario(text, "bad.yaml");
  return s ? "no error" : s.error().str();
}

std::string repeated(const std::string& part, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

TEST(HostileYaml, NothingAtAll) {
  EXPECT_EQ(
      error_of_text(""),
      "bad.yaml:1:1: error: the file is empty\n  fix: begin with \"lockstep: 1\" (a scenario), "
      "\"plan: 1\", \"machine: 1\" or \"sweep: 1\"");
  EXPECT_THAT(error_of_text("# only a comment\n"), HasSubstr("the file is empty"));
}

TEST(HostileYaml, NoYaml) {
  EXPECT_THAT(error_of_text("name: [1, 2\n"), StartsWith("bad.yaml:2:1: error: not valid YAML:"));
  EXPECT_THAT(error_of_text("\tname: x\n"), HasSubstr("error: not valid YAML:"));
  EXPECT_THAT(error_of_text("a: *nowhere\n"), StartsWith("bad.yaml:1:4: error: not valid YAML:"));
}

TEST(HostileYaml, TwoDocuments) {
  EXPECT_THAT(error_of_text("name: a\n---\nname: b\n"),
              StartsWith("bad.yaml:3:1: error: the file holds more than one document"));
}

TEST(HostileYaml, Binary) {
  EXPECT_THAT(error_of_text(std::string("\x7f\x45\x4c\x46\x02\xff\x00\xfe", 8)),
              StartsWith("bad.yaml:1:6: error: the file is not UTF-8 text: the byte 0xff is"));
  // Latin-1. Columns count characters.
  EXPECT_THAT(error_of_text("lockstep: 1\nname: é \xe9\n"),
              StartsWith("bad.yaml:2:9: error: the file is not UTF-8 text"));
  // The replacement character itself is valid.
  EXPECT_THAT(error_of_text("nam\uFFFD: x\n"), Not(HasSubstr("UTF-8")));
  EXPECT_THAT(error_of_text(std::string("name: a\0b\n", 10)), HasSubstr("error: "));
  EXPECT_THAT(error_of_text("\x1b[2Jname: \x07\n"), HasSubstr("error: "));
}

TEST(HostileYaml, ControlCharactersNeverReachTheTerminal) {
  EXPECT_EQ(error_of_text("lockstep: 1\nname: x\nremedy: \"\\e[31mred\"\n"),
            "bad.yaml:3:9: error: \"remedy\" should be one of none, dummy-image, "
            "alternating, presence-vote, gradient-mask and empty-image, but it is the text "
            "\"\\x1b[31mred\"");
}

TEST(HostileYaml, DeepNesting) {
  EXPECT_THAT(error_of_text("name: " + repeated("[", 100) + repeated("]", 100)),
              HasSubstr("nested more than 32 deep"));
  EXPECT_THAT(error_of_text(repeated("[", 100'000)), HasSubstr("error: "));
  EXPECT_THAT(error_of_text(repeated("{a: ", 50'000)), HasSubstr("error: "));
  EXPECT_THAT(error_of_text(repeated("- ", 100'000)), HasSubstr("error: "));
}

TEST(HostileYaml, AnAliasBomb) {
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string previous = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" +
            repeated(previous + ", ", 9) + previous + "]\n";
  }
  EXPECT_THAT(error_of_text(bomb), HasSubstr("more than 20000 values"));
}

TEST(HostileYaml, AnAliasBombOfOneLongText) {
  EXPECT_THAT(error_of_text("a: &a " + std::string(500'000, 'x') + "\nb: [" +
                            repeated("*a, ", 1000) + "*a]\n"),
              HasSubstr("more than 20000 values"));
}

TEST(HostileYaml, AnAliasOfItself) {
  EXPECT_THAT(error_of_text("name: &me [*me]\n"), HasSubstr("error: "));
}

TEST(HostileYaml, KeysThatAreNotText) {
  EXPECT_EQ(error_of_text("[1, 2]: x\n"),
            "bad.yaml:1:1: error: a key should be text\n  fix: put it into quotes");
  EXPECT_THAT(error_of_text("<<: {name: x}\n"), HasSubstr("unknown key \"<<\""));
}

TEST(HostileYaml, Huge) {
  EXPECT_THAT(error_of_text("name: " + std::string(2 << 20, 'x')), HasSubstr("larger than 1 MiB"));
  EXPECT_THAT(error_of_text("lockstep: 1\nname: " + std::string(5000, 'x')),
              HasSubstr("\"name\" should be text of at most 200 characters, but it is a text of "
                        "5,000 bytes"));
  EXPECT_THAT(error_of_text("lockstep: 1\nname: x\nranks: 99999999999999999999999\n"),
              HasSubstr("\"ranks\" should be a whole number"));
}

TEST(HostileYaml, RandomDamageToAGoodFile) {
  const std::string good =
      "lockstep: 1\nname: x\nranks: 4\ndata: {modality: {rank 1: [text]}}\n"
      "strategy: {kind: ddp}\nexpect: {verdict: findings, culprits: [1]}\n";
  const std::string alphabet = "{}[]:,-*&!|>'\"%@`#?\n\t \\\xff\x01~a1";
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits)
      text[random() % text.size()] = alphabet[random() % alphabet.size()];
    const Result<Scenario> s = parse_scenario(text, "bad.yaml");
    EXPECT_TRUE(s || !s.error().message.empty()) << text;
  }
}

}  // namespace
}  // namespace lockstep::runtime
