#include "reports/output_targets.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace lockstep::reports {
namespace {

const OutputForms kForms{"table", {"text", "json"}};

// What is printed by write_targets().
std::string printed(const std::vector<OutputTarget>& targets, bool quiet) {
  testing::internal::CaptureStdout();
  const Status written = write_targets(targets, quiet, [](const std::string& kind, bool to_stdout) {
    return kind + (to_stdout ? " on stdout\n" : " in a file\n");
  });
  std::string out = testing::internal::GetCapturedStdout();
  return written ? out : "error: " + written.error().message;
}

TEST(ParseOutputTarget, TakesKindAndPath) {
  const Result<OutputTarget> json = parse_output_target("json=out/a=b.json", kForms);
  ASSERT_TRUE(json);
  EXPECT_EQ(json->kind, "json");
  EXPECT_EQ(json->path, "out/a=b.json");
  EXPECT_FALSE(json->to_stdout());
  const Result<OutputTarget> text = parse_output_target("text=-", kForms);
  ASSERT_TRUE(text);
  EXPECT_TRUE(text->to_stdout());
}

TEST(ParseOutputTarget, TheEndingChoosesTheKind) {
  const OutputForms forms{"report", {"text", "json", "html", "sarif", "junit", "timeline"}};
  const auto kind = [&](const std::string& path) {
    const Result<OutputTarget> target = parse_output_target(path, forms);
    return target && target->path == path ? target->kind : "none";
  };
  EXPECT_EQ(kind("report.html"), "html");
  EXPECT_EQ(kind("out/r.json"), "json");
  EXPECT_EQ(kind("r.sarif"), "sarif");
  EXPECT_EQ(kind("r.xml"), "junit");
  EXPECT_EQ(kind("r.txt"), "text");
  EXPECT_EQ(kind("r.timeline.json"), "timeline");
  EXPECT_EQ(kind("runs/lr=0.1/r.html"), "html");
  EXPECT_EQ(kind("-"), "text");
  EXPECT_EQ(kind("r.csv"), "none") << "no form of this command";
  const Error unknown = parse_output_target("report.pdf", forms).error();
  EXPECT_EQ(unknown.message, "--output report.pdf: no kind of report has this ending");
  EXPECT_EQ(unknown.fix.substr(0, 41), "write KIND=PATH, such as text=report.pdf;");
}

TEST(ParseOutputTarget, RefusesWhatHasNoKindOrPath) {
  for (const char* bad : {"", "json", "json=", "=x", "xml=x", "JSON=x"})
    EXPECT_FALSE(parse_output_target(bad, kForms)) << bad;
  EXPECT_EQ(parse_output_target("json=", kForms).error().fix, "write json=table.json");
}

TEST(ParseOutputTarget, SaysWhatThereIsAndWhatWasMeant) {
  const Error near = parse_output_target("jsno=x", kForms).error();
  EXPECT_EQ(near.message, "--output jsno=x: no such kind of table");
  EXPECT_EQ(near.fix, "did you mean json? kinds: text and json");
  EXPECT_EQ(parse_output_target("parquet=x", kForms).error().fix, "kinds: text and json");
  EXPECT_EQ(parse_output_target("\x1b=x", kForms).error().message,
            "--output \\x1b=x: no such kind of table");
}

TEST(ParseOutputTarget, ManyKindsFitATerminal) {
  OutputForms forms{"report", {}};
  for (const char* kind : {"text", "json", "html", "markdown", "csv", "timeline", "dot", "sarif",
                           "junit", "github", "gitlab"})
    forms.kinds.emplace_back(kind);
  EXPECT_EQ(parse_output_target("timelines=x", forms).error().str(),
            "error: --output timelines=x: no such kind of report\n"
            "  fix: did you mean timeline? kinds: text, json, html, markdown, csv, timeline,\n"
            "       dot, sarif, junit, github and gitlab");
}

TEST(ParseOutputTargets, OnlyOneMayTakeStandardOutput) {
  EXPECT_TRUE(parse_output_targets({"json=-", "text=a"}, kForms));
  EXPECT_FALSE(parse_output_targets({"json=-", "text=-"}, kForms));
}

TEST(WriteTargets, PrintsTheTextUnlessQuietOrStandardOutputIsTaken) {
  EXPECT_EQ(printed({}, false), "text on stdout\n");
  EXPECT_EQ(printed({}, true), "");
  EXPECT_EQ(printed({{"json", "-"}}, false), "json on stdout\n");
}

TEST(WriteTargets, WritesFilesAsWellAsThePrintedText) {
  const TempDir folder;
  EXPECT_EQ(printed({{"json", folder.file("a")}, {"text", folder.file("b")}}, false),
            "text on stdout\n");
  EXPECT_EQ(TempDir::read(folder.file("a")), "json in a file\n");
  EXPECT_EQ(TempDir::read(folder.file("b")), "text in a file\n");
}

// `lockstep verify … | head -1` ends the process with SIGPIPE once `head` has its line.
TEST(WriteTargets, AClosedPipeLosesNoFile) {
  const TempDir folder;
  std::vector<std::string> order;
  testing::internal::CaptureStdout();
  ASSERT_TRUE(write_targets({{"text", "-"}, {"json", folder.file("a")}, {"text", folder.file("b")}},
                            false, [&](const std::string& kind, bool to_stdout) {
                              order.push_back(to_stdout ? "stdout" : kind);
                              if (to_stdout) {
                                EXPECT_EQ(TempDir::read(folder.file("a")), "content\n");
                                EXPECT_EQ(TempDir::read(folder.file("b")), "content\n");
                              }
                              return std::string("content\n");
                            }));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "content\n");
  EXPECT_EQ(order, (std::vector<std::string>{"json", "text", "stdout"}));
}

TEST(WriteTargets, SaysWhatCannotBeWritten) {
  const TempDir folder;
  EXPECT_EQ(printed({{"json", folder.file("no/such/folder")}}, true).find("error: "), 0U);
}

}  // namespace
}  // namespace lockstep::reports
