// All forms of one report say the same verdict, rules, ranks, groups, calls and steps: text,
// Markdown, CSV, JSON, HTML, figures, SARIF, GitLab, GitHub and JUnit, over every recorded example
// of the repository. For more: LOCKSTEP_AGREEMENT_TRACES=FOLDER, each of whose entries is a run.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "reports/ci/ci_reports.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/reports.h"
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

// A document of tags and text, read by the strict reader of pages; `names`: of its test cases.
struct Xml : Page {
  std::vector<std::string> names;
};

Xml read_xml(const std::string& document) {
  Xml out;
  // The declaration is no element.
  static_cast<Page&>(out) = read_page(document.substr(document.find("?>") + 2));
  constexpr std::string_view kName = "<testcase name=\"";
  for (std::size_t at = document.find(kName); at != kNpos; at = document.find(kName, at + 1)) {
    const std::size_t begin = at + kName.size();
    out.names.push_back(resolved(document.substr(begin, document.find('"', begin) - begin)));
  }
  return out;
}

// Rows of fields; a quoted one may hold commas.
std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    out.push_back({""});
    bool quoted = false;
    for (const char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        out.back().emplace_back();
      else if (c != '\r')
        out.back().back() += c;
    }
  }
  return out;
}

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
  std::vector<std::string> also;   // the other groups
};

// `width`: of the list of culprits.
std::vector<Expected> expected_of(const verify::Report& report, std::size_t width) {
  std::vector<Expected> out;
  for (const verify::Finding& f : report.findings) {
    Expected one{std::string(verify::rule(f.rule).name), {}, also_in_words(f)};
    if (!f.culprits.empty()) one.parts.push_back(rank_label(f.culprits, width));
    // Notes are about files; forms for people show no call of theirs.
    if (f.severity != verify::Severity::note) {
      if (!f.group.empty())
        one.parts.push_back(group_in_words(f) +
                            (f.seq ? fmt::format(", seq {}", number_of(f)) : ""));
      if (f.step) one.parts.push_back(fmt::format("step {}", *f.step));
    }
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
    for (const std::string& part : expected[i].also)
      EXPECT_THAT(said[i].block, HasSubstr(part)) << form << ": " << expected[i].rule;
  }
}

void expect_in_json_and_sarif(const verify::Report& report, const Json& json, const Json& sarif) {
  EXPECT_EQ(json["verdict"], verify::to_string(report.verdict));
  EXPECT_EQ(sarif["properties"]["verdict"], json["verdict"]);
  const Json& results = sarif["results"];
  ASSERT_EQ(json["findings"].size(), report.findings.size());
  ASSERT_EQ(results.size(), report.findings.size());
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const verify::Finding& f = report.findings[i];
    const Json& one = json["findings"][i];
    EXPECT_EQ(one["rule"], verify::rule(f.rule).name);
    EXPECT_EQ(results[i]["ruleId"], one["rule"]);
    EXPECT_EQ(results[i]["level"], one["severity"]);
    for (const char* key : {"culprits", "ranks", "what", "certainty"})
      EXPECT_EQ(one[key], results[i]["properties"][key]) << key;
    for (const char* key : {"group", "seq", "number", "step", "headline", "next", "waiting"})
      EXPECT_EQ(one.value(key, Json()), results[i]["properties"].value(key, Json())) << key;
    EXPECT_EQ(one.contains("seq"), f.seq.has_value());
    EXPECT_EQ(one.value("also", Json::array()).size(), f.also.size());
  }
  EXPECT_EQ(json.contains("headline"), headline_of(report) != nullptr);
}

// The same as `text` in a SARIF message: braces are doubled, and what could be a link is escaped.
std::string without_escapes(std::string text) {
  for (const char* brace : {"{", "}"})
    for (std::size_t at = text.find(std::string(brace) + brace); at != kNpos;
         at = text.find(std::string(brace) + brace, at + 1))
      text.erase(at, 1);
  for (std::size_t at = text.find("\\]("); at != kNpos; at = text.find("\\](", at))
    text.erase(at, 1);
  return text;
}

void expect_agreement(const trace::Run& run) {
  const verify::Report report = verify::verify(run);
  const FilteredReport filtered(report);
  const std::vector<Expected> expected = expected_of(report, 60);
  const std::string verdict(verify::to_string(report.verdict));

  const Json json = Json::parse(json_report(report));
  const Json sarif = Json::parse(sarif_report(filtered))["runs"][0];
  expect_in_json_and_sarif(report, json, sarif);
  std::vector<Said> said;
  for (const Json& one : sarif["results"])
    said.push_back({one["ruleId"], without_escapes(one["message"]["text"])});
  expect_said(expected, said, "SARIF");

  said.clear();
  for (const Json& one : Json::parse(gitlab_report(filtered)))
    said.push_back({one["check_name"], one["description"]});
  expect_said(expected, said, "GitLab");

  // An annotation shows the ten worst.
  const std::string github = github_report(filtered);
  if (report.findings.size() <= 9) {
    std::vector<Expected> by_severity;
    for (const auto severity :
         {verify::Severity::error, verify::Severity::warning, verify::Severity::note})
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (report.findings[i].severity == severity) by_severity.push_back(expected[i]);
    expect_said(by_severity,
                cut_at(github,
                       [](const std::string& line) -> std::string {
                         constexpr std::string_view kTitle = "title=lockstep ";
                         const std::size_t title = line.find(kTitle);
                         if (title == kNpos) return "";
                         const std::size_t begin = title + kTitle.size();
                         return line.substr(begin, line.find("::", begin) - begin);
                       }),
                "GitHub");
  }

  // The test cases after the first, which is the verdict.
  const Xml junit = read_xml(junit_report(filtered));
  EXPECT_THAT(junit.texts("system-out").back(), HasSubstr(verdict + ": "));
  std::vector<std::string> cases = junit.texts("testcase");
  ASSERT_EQ(cases.size(), expected.size() + 1);
  said.clear();
  for (std::size_t i = 0; i < expected.size(); ++i)
    said.push_back({word_at(junit.names[i + 1], 0), cases[i + 1]});
  expect_said(expected, said, "JUnit");

  TextOptions wide;
  wide.width = 100'000;
  wide.max_findings = 100'000;
  const std::string text = text_report(report, run, wide);
  std::string shouted = verdict;
  std::transform(shouted.begin(), shouted.end(), shouted.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  EXPECT_THAT(text, HasSubstr(shouted + ": "));
  expect_said(expected_of(report, 0),
              cut_at(text,
                     [](const std::string& line) {
                       const std::string first = word_at(line, 0);
                       const bool title = first == "ERROR" || first == "WARNING" || first == "NOTE";
                       return title && line.starts_with(first) ? word_at(line, 1) : "";
                     }),
              "text");

  // Markdown: a row each, with who and where; the first finding in full.
  const std::string markdown = markdown_report(filtered, run);
  EXPECT_TRUE(markdown.starts_with("## Lockstep: " + verdict + "\n"));
  std::vector<Expected> rows = expected_of(report, 30);
  for (Expected& row : rows) {
    row.also.clear();
    for (std::string& part : row.parts) part = markdown_text(part);
  }
  rows.resize(std::min<std::size_t>(rows.size(), 50));
  expect_said(rows,
              cut_at(markdown,
                     [](const std::string& line) -> std::string {
                       if (!line.starts_with("| ") || line.starts_with("| severity ")) return "";
                       const std::size_t begin = line.find("| ", 1) + 2;
                       return line.substr(begin, line.find(' ', begin) - begin);
                     }),
              "Markdown");
  for (const std::string& other :
       report.findings.empty() ? std::vector<std::string>() : also_in_words(report.findings[0]))
    EXPECT_THAT(markdown, HasSubstr(markdown_text(other)));

  // The table: ranks in full, numbers in their columns.
  const std::vector<std::vector<std::string>> table = read_csv(csv_report(filtered));
  ASSERT_EQ(table.size(), expected.size() + 1);
  const auto field = [&](std::size_t row, const std::string& name) {
    const auto& head = table[0];
    const auto at = std::find(head.begin(), head.end(), name) - head.begin();
    return table[row + 1].at(static_cast<std::size_t>(at));
  };
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const verify::Finding& f = report.findings[i];
    const auto number = [](const auto& n) { return n ? std::to_string(*n) : std::string(); };
    EXPECT_EQ(field(i, "rule"), expected[i].rule);
    EXPECT_EQ(field(i, "seq"), number(f.seq));
    EXPECT_EQ(field(i, "step"), number(f.step));
    EXPECT_EQ(field(i, "number"), number(f.number));
    std::vector<std::int32_t> culprits;
    for (const trace::Rank rank : f.culprits) culprits.push_back(rank.value);
    EXPECT_EQ(field(i, "culprits"), ranges(culprits));
  }

  const Page page = read_page(html_report(filtered, run));
  EXPECT_TRUE(page.errors.empty());
  EXPECT_THAT(page.texts("header").at(0), HasSubstr(verdict));
  said.clear();
  for (const std::string& article : page.texts("article")) {
    const std::size_t i = said.size();
    ASSERT_LT(i, expected.size());
    const bool named = article.find(expected[i].rule) != kNpos;
    said.push_back({named ? expected[i].rule : "another rule", article});
  }
  std::vector<Expected> in_full = expected;
  in_full.resize(std::min<std::size_t>(in_full.size(), 12));
  expect_said(in_full, said, "HTML");

  // The figures: the graph has a note for each error and warning; a page marks the same culprits.
  const std::string dot = dot_report(filtered, run);
  std::size_t notes = 0;
  for (std::size_t i = 0; i < expected.size() && notes < 12; ++i) {
    if (report.findings[i].severity == verify::Severity::note) continue;
    ++notes;
    EXPECT_THAT(dot, HasSubstr(std::string(verify::to_string(report.findings[i].severity)) + " " +
                               expected[i].rule));
  }

  // Who stopped and what to run next stand on top of each.
  const verify::Finding* const first = headline_of(report);
  if (first == nullptr) return;
  EXPECT_TRUE(text.starts_with(first->headline + "\n")) << text.substr(0, 300);
  EXPECT_EQ(json["headline"], first->headline);
  const std::string capital =
      static_cast<char>(std::toupper(static_cast<unsigned char>(first->headline[0]))) +
      first->headline.substr(1);
  EXPECT_EQ(page.texts("h1").at(0), capital);
  EXPECT_THAT(markdown, HasSubstr("**" + markdown_text(capital) + ".**"));
  EXPECT_THAT(without_escapes(sarif["results"][0]["message"]["text"]), HasSubstr(first->headline));
  EXPECT_THAT(cases[1], HasSubstr(first->headline));
  EXPECT_EQ(field(0, "headline"), first->headline);
  for (const std::string& form : {text, markdown, github, cases[1], page.texts("header")[0],
                                  without_escapes(sarif["results"][0]["message"]["text"])})
    if (!first->next.empty() && first->next.find('<') == kNpos) {
      EXPECT_THAT(form, HasSubstr(first->next));
    }
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
      file.open(folder.file(fmt::format("rank_{}.trace.jsonl", files++)));
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
  judge(top / "examples/hung-job");
  if (const char* const more = std::getenv("LOCKSTEP_AGREEMENT_TRACES"); more != nullptr)
    for (const fs::directory_entry& entry : fs::directory_iterator(more)) judge(entry.path());
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
    std::ofstream(folder.file(fmt::format("rank_{}.trace.jsonl", r)))
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
