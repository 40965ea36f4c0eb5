// Certificates of recorded runs: accepted for the run that they were written for, and for nothing
// that calls anything else.
#include "verify/certificates/run_certificate.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/trace_text.h"
#include "tests/verify/product/certificate_lines.h"
#include "tests/verify/product/python_checker.h"
#include "tests/verify/program.h"
#include "trace/load.h"
#include "verify/product/decide.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using testing::HasSubstr;

// Groups of all and of two, messages, batches, waits, an uneven exchange, three steps.
std::vector<std::string> rich_programs() {
  std::vector<std::string> out;
  const std::vector<std::string> cuts = {"in_splits=1,2,3 out_splits=1,4,7",
                                         "in_splits=4,5,6 out_splits=2,5,8",
                                         "in_splits=7,8,9 out_splits=3,6,9"};
  for (int rank = 0; rank < 3; ++rank) {
    std::string program = rank < 2 ? "group pair 0,1" : "group other 2";
    int calls = 0;
    for (int step = 0; step < 3; ++step) {
      const std::string of_step = fmt::format(" step={}", step);
      program += "; all_reduce n=8 redop=sum what=w" + of_step;
      calls += 1;
      if (rank == 0) program += "; send n=4 peer=1 what=x" + of_step;
      if (rank == 1) program += "; recv n=4 peer=0 what=y" + of_step;
      if (rank < 2) {
        program += "; all_reduce n=2 redop=max g=pair what=v async" + of_step;
        program += fmt::format("; wait {}", calls + 1);
        calls += 2;
      }
      program += "; all_to_all_single what=e " + cuts[static_cast<std::size_t>(rank)] + of_step;
      program += fmt::format("; broadcast n=5 root=1 what=b{}; step {}", of_step, step);
      calls += 2;
    }
    out.push_back(program + "; clean");
  }
  return out;
}

std::vector<std::string> texts_of(const std::vector<std::string>& programs) {
  std::vector<std::string> out;
  const auto ranks = static_cast<std::int32_t>(programs.size());
  for (std::int32_t r = 0; r < ranks; ++r)
    out.push_back(program_text(r, ranks, programs[static_cast<std::size_t>(r)]));
  return out;
}

Result<std::string> written(const trace::Run& run,
                            std::optional<CallSemantics> semantics = std::nullopt) {
  const VerifyOptions options{.semantics = semantics};
  return write_run_certificate(run, verify(run, options),
                               semantics.value_or(recorded_semantics(run)));
}

std::string run_certificate_of(const trace::Run& run) {
  const Result<std::string> text = written(run);
  if (text) return *text;
  ADD_FAILURE() << text.error().str() << "\n" << summary(verify(run));
  return {};
}

std::string why_not(const std::vector<std::string>& programs) {
  const Result<std::string> text = written(program(programs));
  return text ? "there is one" : text.error().message;
}

bool run_accepted(const std::string& text, const trace::Run& run) {
  return static_cast<bool>(check_run_certificate(text, run));
}

TEST(RunCertificate, IsAcceptedForItsOwnRun) {
  const auto run = program(rich_programs());
  const std::string text = run_certificate_of(run);
  const CheckerSays status = check_run_certificate(text, run);
  EXPECT_TRUE(status) << status.why << "\n" << text;
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["claims"]["kind"], "run");
  EXPECT_THAT(text, HasSubstr("\"group pair [0, 1]\""));
  EXPECT_THAT(text, HasSubstr("\"message 0>1 tag - in world [0, 1, 2]\""));
}

TEST(RunCertificate, RanksThatDoTheSameShareADigest) {
  const auto json = nlohmann::json::parse(run_certificate_of(
      program(std::vector<std::string>(4, "all_reduce n=8 redop=sum what=w; barrier; clean"))));
  const auto& sequences = json["claims"]["sequences"]["run"];
  ASSERT_EQ(sequences.size(), 1U);
  EXPECT_EQ(sequences.begin().value(), nlohmann::json({0, 1, 2, 3}));
  EXPECT_EQ(json["orders"]["run"].dump(), R"([["group world [0, 1, 2, 3]",2]])");
}

TEST(RunCertificate, EveryTamperedTraceIsRefused) {
  const std::vector<std::string> texts = texts_of(rich_programs());
  const std::string certificate = run_certificate_of(run_from_text(texts));
  std::size_t tried = 0;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const std::vector<std::string> lines = lines_of(texts[r]);
    const auto refused = [&](const std::vector<std::string>& changed, const std::string& what) {
      std::vector<std::string> tampered = texts;
      tampered[r] = text_of(changed);
      EXPECT_FALSE(run_accepted(certificate, run_from_text(tampered))) << what;
      ++tried;
    };
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::vector<std::string> changed = lines;
      if (lines[i].find("\"end\"") != std::string::npos ||
          lines[i].find("\"issue\"") != std::string::npos) {
        changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
        refused(changed, "removed " + lines[i]);
      }
      if (lines[i].find("\"issue\"") == std::string::npos) continue;
      const auto with = [&](const std::string& from, const std::string& to) {
        exchange_in_line(lines, i, from, to, refused);
      };
      with("all_reduce", "reduce");
      with("broadcast", "all_reduce");
      with("\"sum\"", "\"avg\"");
      with("\"max\"", "\"min\"");
      with("\"root\":1", "\"root\":0");
      with("\"g\":\"pair\"", "\"g\":\"world\"");
      with("\"peer\":1", "\"peer\":2");
      with("\"async\":true", "\"async\":false");
      with("\"splits_in\":[", "\"splits_in\":[9");
      with("\"splits_out\":[", "\"splits_out\":[9");
      if (lines[i].find("\"peer\"") == std::string::npos) with("\"what\":[\"", "\"what\":[\"o");
      if (lines[i].find("splits") == std::string::npos) {
        with(lines[i].find("\"recv\"") == std::string::npos ? "\"in\":[[" : "\"out\":[[",
             lines[i].find("\"recv\"") == std::string::npos ? "\"in\":[[9" : "\"out\":[[9");
      }
    }
  }
  EXPECT_GT(tried, 100U);
}

// Calls, waits and all, in each other's place.
TEST(RunCertificate, ExchangedAndAddedCallsAreRefused) {
  const std::vector<std::string> programs = rich_programs();
  const std::string certificate = run_certificate_of(program(programs));
  const std::vector<std::string> words = {"all_reduce n=8", "broadcast n=5", "all_to_all_single",
                                          "all_reduce n=2"};
  std::size_t tried = 0;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    std::vector<std::string> items;
    std::istringstream in(programs[r]);
    for (std::string item; std::getline(in, item, ';');) items.push_back(item);
    const auto refused = [&](const std::vector<std::string>& changed) {
      std::vector<std::string> tampered = programs;
      tampered[r].clear();
      for (const std::string& item : changed)
        tampered[r] += (tampered[r].empty() ? "" : ";") + item;
      EXPECT_FALSE(run_accepted(certificate, program(tampered))) << tampered[r];
      ++tried;
    };
    const auto is_call = [&](const std::string& item) {
      return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        return item.find(word) != std::string::npos;
      });
    };
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!is_call(items[i]) || items[i].find("async") != std::string::npos) continue;
      std::vector<std::string> changed = items;
      changed.insert(changed.end() - 1, items[i]);
      refused(changed);
      for (std::size_t j = i + 1; j < items.size(); ++j) {
        const std::string kind = items[i].substr(0, items[i].find(" step="));
        if (!is_call(items[j]) || items[j].find("async") != std::string::npos ||
            items[j].starts_with(kind))
          continue;
        changed = items;
        std::swap(changed[i], changed[j]);
        refused(changed);
      }
    }
  }
  EXPECT_GT(tried, 50U);
}

TEST(RunCertificate, ARunThatIsNotCleanHasNone) {
  EXPECT_THAT(why_not({"all_reduce n=8; clean", "all_reduce n=4; clean"}),
              HasSubstr("the verdict is \"findings\""));
  EXPECT_THAT(why_not({"all_reduce n=8 open; hung", "hung"}), HasSubstr("findings"));
}

TEST(RunCertificate, ATraceThatDoesNotShowAllHasNone) {
  EXPECT_THAT(why_not({"all_reduce n=8; cut", "all_reduce n=8; cut"}),
              HasSubstr("it may still run"));
  const auto refused = [](auto change) {
    auto run = program({"all_reduce n=8; clean", "all_reduce n=8; clean"});
    const std::string certificate = run_certificate_of(run);
    EXPECT_TRUE(run_accepted(certificate, run));
    change(run);
    EXPECT_FALSE(written(run));
    EXPECT_TRUE(incomplete(run));  // so that check-certificate does not convert it
  };
  using R = trace::Run;
  refused([](R& run) { run.ranks[1].dropped = 1; });
  refused([](R& run) { run.ranks[1].open_ended = true; });
  refused([](R& run) { run.ranks[1].snapshot = true; });
  refused([](R& run) { run.ranks[1].add_damage("a line"); });
  refused([](R& run) { run.ranks[1].first_seq[trace::GroupId(1)] = 3; });
  refused([](R& run) { run.ranks[0].end = trace::End::killed; });
  refused([](R& run) { run.ranks[0].exceptions.push_back({"out of memory", std::nullopt}); });
  refused([](R& run) { run.ranks.pop_back(); });
  refused([](R& run) { run.world_size = 3; });
  refused([](R& run) { run.header_conflicts.emplace_back("two worlds"); });
  refused([](R& run) {
    run.unreadable.push_back({Error{"cut off", {"rank_2"}, ""}, trace::Rank(2)});
  });
}

TEST(RunCertificate, WhatIsRecordedOnOneSideAloneCannotBeTold) {
  EXPECT_THAT(why_not({"all_reduce n=8 what=w; clean", "all_reduce n=8; clean"}),
              HasSubstr("not all its members recorded the same"));
  EXPECT_THAT(why_not({"send n=4 peer=1; clean", "recv_any n=4; clean"}), HasSubstr("any source"));
  EXPECT_THAT(why_not({"mpi; barrier; clean", "mpi; barrier; clean"}), HasSubstr("MPI"));
}

TEST(RunCertificate, WhatNobodyRecordedIsSaid) {
  const auto run = program(
      {"all_reduce; broadcast n=4 what=w; clean", "all_reduce; broadcast n=4 what=w; clean"});
  const std::string text = run_certificate_of(run);
  EXPECT_TRUE(run_accepted(text, run));
  const auto lacks = nlohmann::json::parse(text)["claims"]["unrecorded"];
  EXPECT_EQ(lacks["names"], 2);
  EXPECT_EQ(lacks["sizes"], 2);
  EXPECT_EQ(lacks["reduce-operations"], 2);
  EXPECT_EQ(lacks["roots"], 2);
}

// Without waits every call is taken to block: what is in order even then is in order.
TEST(RunCertificate, UnrecordedWaitsAreTakenToBlock) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  const std::string both = "all_reduce g=a n=4 async; all_reduce g=b n=4 async; ";
  const std::string other = "all_reduce g=b n=4 async; all_reduce g=a n=4 async; ";
  const auto run = program({groups + both + "clean", groups + both + "clean"});
  const std::string certificate = run_certificate_of(run);
  EXPECT_THAT(certificate, HasSubstr("\"waits\": [0,1]"));
  EXPECT_TRUE(run_accepted(certificate, run));
  EXPECT_THAT(why_not({groups + both + "clean", groups + other + "clean"}),
              HasSubstr("no single order"));
  // With waits both orders are known to be harmless.
  EXPECT_THAT(
      why_not({groups + both + "wait 0; wait 1; clean", groups + other + "wait 0; wait 1; clean"}),
      HasSubstr("there is one"));
}

// Kernels of two communicators may keep each other from running.
TEST(RunCertificate, OnDevicesCallsKeepTheOrderInWhichTheyWereIssued) {
  const std::string groups = "backend nccl; group a 0,1; group b 0,1; ";
  const std::string both = "all_reduce g=a n=4 async; all_reduce g=b n=4 async; wait 0; wait 1; ";
  const auto run = program({groups + both + "clean", groups + both + "clean"});
  std::string text = run_certificate_of(run);
  EXPECT_TRUE(run_accepted(text, run));
  const std::size_t at = text.find("\"device\"");
  ASSERT_NE(at, std::string::npos);
  EXPECT_FALSE(run_accepted(text.replace(at, 8, "\"host\""), run));
}

TEST(RunCertificate, AnOrderForDevicesIsOneForHosts) {
  const auto run = program(std::vector<std::string>(2, "all_reduce n=4; barrier; clean"));
  const Result<std::string> text = written(run, CallSemantics::nccl);
  ASSERT_TRUE(text) << text.error().str();
  EXPECT_THAT(*text, HasSubstr("\"order\": \"device\""));
  EXPECT_TRUE(run_accepted(*text, run));
  EXPECT_FALSE(written(run, CallSemantics::mpi));
}

TEST(RunCertificate, ACertificateOfAnotherRunIsRefused) {
  const auto a = program(std::vector<std::string>(2, "all_reduce n=4 what=w; clean"));
  const auto b = program(std::vector<std::string>(2, "all_reduce n=4 what=v; clean"));
  EXPECT_FALSE(run_accepted(run_certificate_of(a), b));
  const auto again = program(std::vector<std::string>(2, "all_reduce n=4 what=w; clean"), false);
  EXPECT_TRUE(run_accepted(run_certificate_of(a), again));  // it made the same calls
}

// On Gloo the replay is exact: a run has a certificate exactly if nothing about matching or
// blocking is found.
TEST(RunCertificate, AgreesWithWhatVerifyFinds) {
  std::mt19937 random(11);
  int proofs = 0;
  int faults = 0;
  for (int round = 0; round < 1500; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 2);
    const std::size_t calls = random() % 5;
    std::vector<std::string> words;
    for (std::size_t c = 0; c < calls; ++c) words.emplace_back(1, "ABCabc"[random() % 6]);
    std::vector<std::string> programs;
    for (int r = 0; r < ranks; ++r) {
      std::vector<std::string> mine = words;
      if (random() % 3 == 0) std::shuffle(mine.begin(), mine.end(), random);
      if (random() % 20 == 0 && !mine.empty()) mine.pop_back();
      std::string text = "group a 0,1; group b 0,1" + std::string(ranks > 2 ? ",2" : "");
      text += fmt::format("; group c 0,{}", ranks - 1);
      std::string waits;
      int issued = 0;
      for (const std::string& word : mine) {
        const char group = static_cast<char>(std::tolower(word[0]));
        const bool member = group == 'b' || (group == 'a' ? r < 2 : r == 0 || r == ranks - 1);
        if (!member) continue;
        text += "; all_reduce n=4 redop=sum what=w g=" + std::string(1, group);
        if (word[0] == group) {
          text += " async";
          waits = fmt::format("; wait {} open{}", issued, waits);
        }
        ++issued;
      }
      programs.push_back(text + waits + "; clean");
    }
    const auto run = program(programs, false);
    const Report report = verify(run);
    const Result<std::string> certificate = write_run_certificate(run, report, CallSemantics::gloo);
    std::string shown;
    for (const std::string& text : programs) shown += text + "\n";
    EXPECT_EQ(static_cast<bool>(certificate), !shows_divergence(report))
        << shown << summary(report) << (certificate ? "" : certificate.error().message);
    if (certificate) {
      EXPECT_TRUE(run_accepted(*certificate, run)) << shown;
    }
    (certificate ? proofs : faults) += 1;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(proofs, 100);
  EXPECT_GT(faults, 100);
}

// Public recordings of healthy runs in the trace form.
TEST(RunCertificate, HealthyRecordingsAreCertified) {
  const std::filesystem::path folder = std::string(LOCKSTEP_SOURCE_DIR) + "/../shared/data/native";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  int certified = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    const auto run = trace::load_run({entry.path().string()});
    if (!run) continue;
    const Report report = verify(*run);
    const Result<std::string> text = write_run_certificate(*run, report, recorded_semantics(*run));
    if (report.verdict != Verdict::clean) {
      EXPECT_FALSE(text) << entry.path();
      continue;
    }
    if (!text) {
      ADD_FAILURE() << entry.path() << text.error().str();
      continue;
    }
    EXPECT_TRUE(run_accepted(*text, *run)) << entry.path();
    ++certified;
  }
  EXPECT_GT(certified, 0);
}

}  // namespace
}  // namespace lockstep::verify
