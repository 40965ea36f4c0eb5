// All forms of one report say the same rules, ranks and calls: text, Markdown, CSV, JSON, HTML,
// SARIF, over every recorded example of the repository.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "reports/ci/ci_reports.h"
#include "reports/findings/csv_report.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/html_report.h"
#include "reports/findings/json_report.h"
#include "reports/findings/markdown_report.h"
#include "reports/findings/text_report.h"
#include "tests/reports/html/page_reader.h"
#include "tests/support/temp_dir.h"
#include "trace/load.h"
#include "verify/rules/page.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

// One finding, as a form says it.
struct Said {
  std::string rule, block;
};

// The findings in `text`, each with what is said of it. `begins`: the rule in a finding's first
// line; empty for other lines.
template <class Begins>
std::vector<Said> cut_at(const std::string& text, const Begins& begins) {
  std::vector<Said> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (const std::string rule = begins(line); !rule.empty()) out.push_back({rule, ""});
    if (!out.empty()) out.back().block += line + "\n";
  }
  return out;
}

std::string word_at(const std::string& line, std::size_t index) {
  std::istringstream words(line);
  std::string word;
  for (std::size_t i = 0; i <= index; ++i) word = words >> word ? word : "";
  return word;
}

// What every form must say of a finding.
struct Expected {
  std::string rule;
  std::vector<std::string> parts;  // who, where
};

std::vector<Expected> expected_of(const verify::Report& report) {
  std::vector<Expected> out;
  for (const verify::Finding& f : report.findings) {
    Expected one{std::string(verify::rule(f.rule).name), {}};
    if (!f.culprits.empty()) one.parts.push_back(rank_label(f.culprits, 30));
    // Notes are about files; forms for people show no call of theirs.
    if (f.severity != verify::Severity::note && !f.group.empty()) {
      one.parts.push_back(group_in_words(f) +
                          (f.seq ? ", seq " + std::to_string(number_of(f)) : ""));
    }
    for (const std::string& other : also_in_words(f)) one.parts.push_back(other);
    out.push_back(std::move(one));
  }
  return out;
}

void expect_said(const std::vector<Expected>& expected, const std::vector<Said>& said,
                 const std::string& form) {
  ASSERT_EQ(said.size(), expected.size()) << form;
  for (std::size_t i = 0; i < said.size(); ++i) {
    EXPECT_EQ(said[i].rule, expected[i].rule) << form;
    for (const std::string& part : expected[i].parts)
      EXPECT_THAT(said[i].block, HasSubstr(part)) << form << ": " << expected[i].rule;
  }
}

void expect_agreement(const trace::Run& run) {
  const verify::Report report = verify::verify(run);
  const FilteredReport filtered(report);
  const std::vector<Expected> expected = expected_of(report);

  const Json json = Json::parse(json_report(report));
  const Json sarif = Json::parse(sarif_report(filtered, ""));
  const Json& results = sarif["runs"][0]["results"];
  ASSERT_EQ(json["findings"].size(), report.findings.size());
  ASSERT_EQ(results.size(), report.findings.size());
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const verify::Finding& f = report.findings[i];
    const Json& one = json["findings"][i];
    EXPECT_EQ(one["rule"], expected[i].rule);
    EXPECT_EQ(results[i]["ruleId"], expected[i].rule);
    for (const char* key : {"culprits", "ranks"})
      EXPECT_EQ(one[key], results[i]["properties"][key]);
    for (const char* key : {"group", "seq", "number"})
      EXPECT_EQ(one.value(key, Json()), results[i]["properties"].value(key, Json())) << key;
    EXPECT_EQ(one.contains("seq"), f.seq.has_value());
    EXPECT_EQ(one.value("also", Json::array()).size(), f.also.size());
    // An escaped brace is doubled there.
    if (f.message.find_first_of("{}[]") == kNpos) {
      EXPECT_THAT(results[i]["message"]["text"].get<std::string>(), HasSubstr(f.message));
    }
    for (const std::string& other : also_in_words(f))
      EXPECT_THAT(results[i]["message"]["text"].get<std::string>(), HasSubstr(other));
    if (!f.next.empty()) {
      EXPECT_THAT(results[i]["message"]["text"].get<std::string>(), HasSubstr(f.next));
    }
  }
  EXPECT_EQ(json.contains("headline"), headline_of(report) != nullptr);

  TextOptions wide;
  wide.width = 100'000;
  wide.max_findings = 100'000;
  const std::string text = text_report(report, run, wide);
  expect_said(expected,
              cut_at(text,
                     [](const std::string& line) {
                       const std::string first = word_at(line, 0);
                       const bool title = first == "ERROR" || first == "WARNING" || first == "NOTE";
                       return title && line.starts_with(first) ? word_at(line, 1) : "";
                     }),
              "text");
  if (headline_of(report) != nullptr) {
    EXPECT_TRUE(text.starts_with(headline_of(report)->headline + "\n")) << text.substr(0, 300);
  }

  // Markdown: a row each, with who and where; the first finding in full.
  const std::string markdown = markdown_report(filtered, run);
  std::vector<Expected> rows = expected;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string>& parts = rows[i].parts;
    parts.resize(parts.size() - report.findings[i].also.size());
    // The table escapes the words of a file, not the ranks.
    for (std::size_t p = report.findings[i].culprits.empty() ? 0 : 1; p < parts.size(); ++p)
      parts[p] = markdown_text(parts[p]);
  }
  rows.resize(std::min<std::size_t>(rows.size(), 50));
  expect_said(rows,
              cut_at(markdown,
                     [](const std::string& line) -> std::string {
                       if (!line.starts_with("| ") || line.starts_with("| severity ")) return "";
                       const std::size_t begin = line.find('`') + 1;
                       return line.substr(begin, line.find('`', begin) - begin);
                     }),
              "Markdown");
  if (!report.findings.empty()) {
    for (const std::string& other : also_in_words(report.findings[0])) {
      EXPECT_THAT(markdown, HasSubstr(markdown_text(other)));
    }
  }

  // A row each; the fields that may hold a line break come last.
  std::size_t at = 0;
  const std::string table = csv_report(filtered);
  for (const Expected& one : expected) {
    at = table.find("," + one.rule + ",", at);
    ASSERT_NE(at, kNpos) << one.rule;
    ++at;
  }

  const Page page = read_page(html_report(filtered, run));
  EXPECT_TRUE(page.errors.empty());
  std::vector<Said> articles;
  for (const std::string& article : page.texts("article")) {
    const std::size_t i = articles.size();
    ASSERT_LT(i, expected.size());
    const bool named = article.find(expected[i].rule) != kNpos;
    articles.push_back({named ? expected[i].rule : "another rule", article});
  }
  std::vector<Expected> in_full = expected;
  in_full.resize(std::min<std::size_t>(in_full.size(), 12));
  expect_said(in_full, articles, "HTML");
}

// The trace of a rule's page as files, one for each header line (verify/rules/page.h).
void write_example(const verify::RulePage& page, const TempDir& folder) {
  std::istringstream lines(page.example);
  std::ofstream file;
  int files = 0;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (verify::is_fence(line)) {
      inside = line == "```trace";
      continue;
    }
    if (!inside || line.empty()) continue;
    if (line.starts_with("{\"header\"")) {
      file.close();
      file.open(folder.file("rank_" + std::to_string(files++) + ".trace.jsonl"));
    } else if (line.front() != ' ') {
      file << "\n";
    }
    file << line;
  }
}

TEST(Agreement, OfAllFormsAboutTheExamplesOfTheRules) {
  int judged = 0;
  for (const verify::Rule& rule : verify::all_rules()) {
    SCOPED_TRACE(std::string(rule.name));
    const TempDir folder;
    write_example(verify::rule_page(rule.id), folder);
    if (fs::is_empty(folder.path())) continue;
    const auto run = trace::load_run({folder.path()});
    ASSERT_TRUE(run) << run.error().str();
    expect_agreement(*run);
    ++judged;
  }
  EXPECT_GT(judged, 40);
}

// Recorded calls of scenarios, and files of every format: whatever of them can be read.
TEST(Agreement, OfAllFormsAboutTheRecordedFiles) {
  int judged = 0;
  const fs::path top = LOCKSTEP_SOURCE_DIR;
  const auto judge = [&](const fs::path& path) {
    SCOPED_TRACE(path.string());
    trace::LoadOptions options;
    options.evidence = true;
    const auto run = trace::load_run({path.string()}, options);
    if (!run) return;
    expect_agreement(*run);
    ++judged;
  };
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(top / "scenarios"))
    if (entry.path().extension() == ".calls") judge(entry.path());
  for (const char* format :
       {"chakra", "clog", "detail_log", "digest", "execution_trace", "flight_recorder", "kineto",
        "nccl_log", "text_trace", "watchdog_log"}) {
    const fs::path corpus = top / "tests/fuzz/corpus" / format;
    judge(corpus);
    for (const fs::directory_entry& entry : fs::directory_iterator(corpus)) judge(entry.path());
  }
  EXPECT_GT(judged, 20);
}

// What folds, stops and stands without a trace is rare in those: one of each.
TEST(Agreement, OfAllFormsAboutOneDefectInManyGroups) {
  const TempDir folder;
  for (int r = 0; r < 8; ++r) {
    const std::string group = std::to_string(1 + r % 4);
    std::ofstream(folder.file("rank_" + std::to_string(r) + ".trace.jsonl"))
        << "{\"header\":1,\"rank\":" << r << ",\"world_size\":8}\n{\"group\":\"" << group
        << "\",\"ranks\":[" << r % 4 << "," << r % 4 + 4
        << "],\"desc\":\"DATA_PARALLEL\"}\n{\"ev\":\"issue\",\"id\":0,\"g\":\"" << group
        << "\",\"op\":\"all_reduce\",\"in\":[[" << (r < 4 ? 134217728 : 134217729)
        << "]],\"dtype\":\"bfloat16\",\"at\":\"grads.py:160\"}\n{\"end\":\"hung\"}\n";
  }
  const auto run = trace::load_run({folder.path()});
  ASSERT_TRUE(run);
  expect_agreement(*run);
  // Sizes are the finding: in a picture of 80 columns they are not cut either.
  const std::string text = text_report(verify::verify(*run), *run);
  EXPECT_THAT(text, HasSubstr("134217728 b"));
  EXPECT_THAT(text, HasSubstr("134217729 b"));
  EXPECT_EQ(text.find(".."), kNpos) << text;
}

}  // namespace
}  // namespace lockstep::reports
