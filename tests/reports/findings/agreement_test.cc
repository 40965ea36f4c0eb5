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
  // The declaration is not an element.
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

// All forms of the report on one run, each held against the findings.
class Forms {
 public:
  explicit Forms(const trace::Run& run) : run_(run) {}

  void expect_agreement() const {
    expect_json_and_sarif();
    expect_gitlab();
    expect_github();
    expect_junit();
    expect_text();
    expect_markdown();
    expect_csv();
    expect_html();
    expect_dot();
    expect_headline();
  }

 private:
  void expect_json_and_sarif() const {
    expect_in_json_and_sarif(report_, json_, sarif_);
    std::vector<Said> said;
    for (const Json& one : sarif_["results"])
      said.push_back({one["ruleId"], without_escapes(one["message"]["text"])});
    expect_said(expected_, said, "SARIF");
  }

  void expect_gitlab() const {
    std::vector<Said> said;
    for (const Json& one : Json::parse(gitlab_report(filtered_)))
      said.push_back({one["check_name"], one["description"]});
    expect_said(expected_, said, "GitLab");
  }

  void expect_github() const {
    if (report_.findings.size() > 9) return;  // annotations show the ten worst
    std::vector<Expected> by_severity;
    for (const auto severity :
         {verify::Severity::error, verify::Severity::warning, verify::Severity::note})
      for (std::size_t i = 0; i < expected_.size(); ++i)
        if (report_.findings[i].severity == severity) by_severity.push_back(expected_[i]);
    const auto rule_in_title = [](const std::string& line) -> std::string {
      constexpr std::string_view kTitle = "title=lockstep ";
      const std::size_t title = line.find(kTitle);
      if (title == kNpos) return "";
      const std::size_t begin = title + kTitle.size();
      return line.substr(begin, line.find("::", begin) - begin);
    };
    expect_said(by_severity, cut_at(github_, rule_in_title), "GitHub");
  }

  // The test cases after the first, which is the verdict.
  void expect_junit() const {
    EXPECT_THAT(junit_.texts("system-out").back(), HasSubstr(verdict_ + ": "));
    ASSERT_EQ(cases_.size(), expected_.size() + 1);
    std::vector<Said> said;
    for (std::size_t i = 0; i < expected_.size(); ++i)
      said.push_back({word_at(junit_.names[i + 1], 0), cases_[i + 1]});
    expect_said(expected_, said, "JUnit");
  }

  void expect_text() const {
    std::string shouted = verdict_;
    std::transform(shouted.begin(), shouted.end(), shouted.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    EXPECT_THAT(text_, HasSubstr(shouted + ": "));
    const auto rule_in_title = [](const std::string& line) {
      const std::string first = word_at(line, 0);
      const bool title = first == "ERROR" || first == "WARNING" || first == "NOTE";
      return title && line.starts_with(first) ? word_at(line, 1) : "";
    };
    expect_said(expected_of(report_, 0), cut_at(text_, rule_in_title), "text");
  }

  // A row each, with who and where; the first finding in full.
  void expect_markdown() const {
    EXPECT_TRUE(markdown_.starts_with("## Lockstep: " + verdict_ + "\n"));
    std::vector<Expected> rows = expected_of(report_, 30);
    for (Expected& row : rows) {
      row.also.clear();
      for (std::string& part : row.parts) part = markdown_text(part);
    }
    rows.resize(std::min<std::size_t>(rows.size(), 50));
    const auto rule_in_row = [](const std::string& line) -> std::string {
      if (!line.starts_with("| ") || line.starts_with("| severity ")) return "";
      const std::size_t begin = line.find("| ", 1) + 2;
      return line.substr(begin, line.find(' ', begin) - begin);
    };
    expect_said(rows, cut_at(markdown_, rule_in_row), "Markdown");
    if (report_.findings.empty()) return;
    for (const std::string& other : also_in_words(report_.findings[0]))
      EXPECT_THAT(markdown_, HasSubstr(markdown_text(other)));
  }

  // Ranks in full, numbers in their columns.
  void expect_csv() const {
    ASSERT_EQ(table_.size(), expected_.size() + 1);
    for (std::size_t i = 0; i < report_.findings.size(); ++i) {
      const verify::Finding& f = report_.findings[i];
      const auto number = [](const auto& n) { return n ? std::to_string(*n) : std::string(); };
      EXPECT_EQ(field(i, "rule"), expected_[i].rule);
      EXPECT_EQ(field(i, "seq"), number(f.seq));
      EXPECT_EQ(field(i, "step"), number(f.step));
      EXPECT_EQ(field(i, "number"), number(f.number));
      std::vector<std::int32_t> culprits;
      for (const trace::Rank rank : f.culprits) culprits.push_back(rank.value);
      EXPECT_EQ(field(i, "culprits"), ranges(culprits));
    }
  }

  void expect_html() const {
    EXPECT_TRUE(page_.errors.empty());
    EXPECT_THAT(page_.texts("header").at(0), HasSubstr(verdict_));
    std::vector<Said> said;
    for (const std::string& article : page_.texts("article")) {
      const std::size_t i = said.size();
      ASSERT_LT(i, expected_.size());
      const bool named = article.find(expected_[i].rule) != kNpos;
      said.push_back({named ? expected_[i].rule : "another rule", article});
    }
    std::vector<Expected> in_full = expected_;
    in_full.resize(std::min<std::size_t>(in_full.size(), 12));
    expect_said(in_full, said, "HTML");
  }

  // The graph has a note for each error and warning.
  void expect_dot() const {
    const std::string dot = dot_report(filtered_, run_);
    std::size_t notes = 0;
    for (std::size_t i = 0; i < expected_.size() && notes < 12; ++i) {
      const verify::Severity severity = report_.findings[i].severity;
      if (severity == verify::Severity::note) continue;
      ++notes;
      EXPECT_THAT(dot,
                  HasSubstr(fmt::format("{} {}", verify::to_string(severity), expected_[i].rule)));
    }
  }

  // Who stopped, and what to run next, are at the top of each form.
  void expect_headline() const {
    const verify::Finding* const first = headline_of(report_);
    if (first == nullptr) return;
    const std::string in_sarif = without_escapes(sarif_["results"][0]["message"]["text"]);
    std::string capital = first->headline;
    capital[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(capital[0])));
    EXPECT_TRUE(text_.starts_with(first->headline + "\n")) << text_.substr(0, 300);
    EXPECT_EQ(json_["headline"], first->headline);
    EXPECT_EQ(page_.texts("h1").at(0), capital);
    EXPECT_THAT(markdown_, HasSubstr("**" + markdown_text(capital) + ".**"));
    EXPECT_THAT(in_sarif, HasSubstr(first->headline));
    EXPECT_THAT(cases_.at(1), HasSubstr(first->headline));
    EXPECT_EQ(field(0, "headline"), first->headline);
    // Forms escape a placeholder such as <pid> in ways of their own.
    if (first->next.empty() || first->next.find('<') != kNpos) return;
    for (const std::string& form :
         {text_, markdown_, github_, cases_.at(1), page_.texts("header")[0], in_sarif})
      EXPECT_THAT(form, HasSubstr(first->next));
  }

  // A field of the finding's row in the CSV table.
  std::string field(std::size_t finding, const std::string& name) const {
    const std::vector<std::string>& head = table_[0];
    const auto at = std::find(head.begin(), head.end(), name) - head.begin();
    return table_[finding + 1].at(static_cast<std::size_t>(at));
  }

  // Wide enough that no line is wrapped, and no finding left out.
  static TextOptions everything() {
    TextOptions out;
    out.width = out.max_findings = 100'000;
    return out;
  }

  const trace::Run& run_;
  const verify::Report report_ = verify::verify(run_);
  const FilteredReport filtered_{report_};
  const std::vector<Expected> expected_ = expected_of(report_, 60);
  const std::string verdict_{verify::to_string(report_.verdict)};
  const Json json_ = Json::parse(json_report(report_));
  const Json sarif_ = Json::parse(sarif_report(filtered_))["runs"][0];
  const std::string github_ = github_report(filtered_);
  const Xml junit_ = read_xml(junit_report(filtered_));
  const std::vector<std::string> cases_ = junit_.texts("testcase");
  const std::string text_ = text_report(report_, run_, everything());
  const std::string markdown_ = markdown_report(filtered_, run_);
  const std::vector<std::vector<std::string>> table_ = read_csv(csv_report(filtered_));
  const Page page_ = read_page(html_report(filtered_, run_));
};

void expect_agreement(const trace::Run& run) { Forms(run).expect_agreement(); }

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
        "nccl_log", "nsys", "text_trace", "watchdog_log"}) {
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
