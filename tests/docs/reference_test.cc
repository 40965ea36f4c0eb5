// docs/reference is what the program says; docs/ring-file.md is what a compiler makes of the ring
// file's structures.
#include "tests/docs/reference.h"

#include <cstddef>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "trace/formats/ring/ring_file.h"
#include "verify/rules/page.h"

namespace lockstep::docs {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

const std::string kDocs = LOCKSTEP_SOURCE_DIR "/docs/";

TEST(Reference, ThePagesAreWhatTheProgramSays) {
  const auto pages = reference_pages(
      [](const std::vector<std::string>& arguments) { return cli::run_lockstep(arguments).out; });
  EXPECT_EQ(pages.size(), 6U);
  for (const auto& [name, text] : pages)
    EXPECT_TRUE(TempDir::read(kDocs + "reference/" + name) == text)
        << "docs/reference/" << name << " is not what the program says now; renew it:\n"
        << "  scripts/docs --renew";
  for (const auto& entry : std::filesystem::directory_iterator(kDocs + "reference"))
    EXPECT_TRUE(pages.contains(entry.path().filename().string()))
        << entry.path() << " is a page that nothing makes";
}

TEST(RuleExamples, AReportIsWhatVerifyPrintsForTheTraceAboveIt) {
  std::size_t reports = 0;
  for (const EmbeddedFile& file : verify::rule_files()) {
    const std::string page(file.text);
    reports += contains_text(page, "```report") ? 1U : 0U;
    const std::string renewed = with_reports(page, [](const std::vector<std::string>& arguments) {
      return cli::run_lockstep(arguments).out;
    });
    EXPECT_EQ(page, renewed) << file.path << ": renew it with scripts/docs --renew";
    // The example shows what it is there for.
    const std::string name = std::filesystem::path(file.path).stem().string();
    if (contains_text(page, "```report")) {
      EXPECT_THAT(page.substr(page.find("```report")),
                  AnyOf(HasSubstr("\nERROR " + name + " ("), HasSubstr("\nWARNING " + name + " ("),
                        HasSubstr("\nNOTE " + name + "\n")));
    }
  }
  EXPECT_GE(reports, 15U);
}

TEST(Reference, ATableHasEveryKeyWithTypeDefaultAndMeaning) {
  const std::string table = key_table(nlohmann::ordered_json::parse(R"({
    "definitions": {"kind": {"type": "string", "enum": ["a", "b|c"], "description": "which"}},
    "required": ["n"],
    "properties": {
      "n": {"type": "integer", "minimum": 1, "maximum": 8, "description": "how many"},
      "inner": {"type": "object", "description": "more", "properties": {
        "share": {"type": "number", "exclusiveMinimum": 0, "default": 0.5, "description": "part"},
        "kind": {"$ref": "#/definitions/kind"}}},
      "list": {"description": "some", "oneOf": [{"type": "string"},
        {"type": "array", "maxItems": 3, "items": {"type": "object",
          "properties": {"x": {"type": "boolean", "default": true, "description": "yes"}}}}]}}})"));
  EXPECT_EQ(table,
            "| key | holds | left out | meaning |\n|---|---|---|---|\n"
            "| `n` | integer, 1 to 8 | must be there | how many |\n"
            "| `inner` | keys |  | more |\n"
            "| `inner.share` | number, above 0 | `0.5` | part |\n"
            "| `inner.kind` | `a`, `b\\|c` |  | which |\n"
            "| `list` | text, or list of keys, to 3 |  | some |\n"
            "| `list[].x` | boolean | `true` | yes |\n");
}

TEST(Reference, SubcommandsAreReadFromHelp) {
  EXPECT_THAT(
      subcommands_of("Usage\n\nSubcommands:\n  run    Train\n          more\n  a-b  B\n\nx"),
      ::testing::ElementsAre("run", "a-b"));
  EXPECT_TRUE(subcommands_of("Options:\n  -h\n").empty());
}

// "| 8 | i64 | `time` | …": the row of the page for a field at an offset.
std::string row(std::size_t offset, const std::string& type, const std::string& field) {
  return fmt::format("\n| {} | {} | `{}` |", offset, type, field);
}

TEST(RingFilePage, HasTheHeadersOffsets) {
  using trace::ring::Header;
  const std::string page = TempDir::read(kDocs + "ring-file.md");
  const std::string header =
      page.substr(page.find("### Header"), page.find("### Table") - page.find("### Header"));
  for (const std::string& expected :
       {row(offsetof(trace::ring::Header, magic), "char[8]", "magic"),
        fmt::format("{} {} |", row(offsetof(trace::ring::Header, version), "u32", "version"),
                    trace::ring::kVersion),
        fmt::format("{} {} |",
                    row(offsetof(trace::ring::Header, header_bytes), "u32", "header_bytes"),
                    trace::ring::kHeaderBytes),
        fmt::format("{} {} |",
                    row(offsetof(trace::ring::Header, record_bytes), "u32", "record_bytes"),
                    sizeof(trace::ring::Record)),
        row(offsetof(trace::ring::Header, rank), "i32", "rank"),
        row(offsetof(trace::ring::Header, world_size), "i32", "world_size"),
        row(offsetof(trace::ring::Header, semantics), "u32", "semantics"),
        row(offsetof(trace::ring::Header, capacity), "u64", "capacity"),
        row(offsetof(trace::ring::Header, table_offset), "u64", "table_offset"),
        row(offsetof(trace::ring::Header, table_bytes), "u64", "table_bytes"),
        row(offsetof(trace::ring::Header, ring_offset), "u64", "ring_offset"),
        row(offsetof(trace::ring::Header, pid), "i64", "pid"),
        row(offsetof(trace::ring::Header, backend), "char[32]", "backend"),
        row(offsetof(trace::ring::Header, host), "char[64]", "host"),
        row(offsetof(trace::ring::Header, program), "char[256]", "program"),
        row(offsetof(trace::ring::Header, written), "u64, atomic", "written"),
        row(offsetof(trace::ring::Header, table_used), "u64, atomic", "table_used"),
        row(offsetof(trace::ring::Header, table_lost), "u64, atomic", "table_lost"),
        row(offsetof(trace::ring::Header, end_mark), "u32, atomic", "end_mark"),
        row(offsetof(trace::ring::Header, gpu), "u32, atomic", "gpu")})
    EXPECT_THAT(header, HasSubstr(expected));
  EXPECT_THAT(header, HasSubstr("`" + std::string(trace::ring::kMagic, 8) + "`"));
}

TEST(RingFilePage, HasTheRecordsOffsets) {
  using trace::ring::Record;
  const std::string page = TempDir::read(kDocs + "ring-file.md");
  const std::string record = page.substr(page.find("### Record"));
  for (const std::string& expected :
       {row(offsetof(trace::ring::Record, stamp), "u64, atomic", "stamp"),
        row(offsetof(trace::ring::Record, time), "i64", "time"),
        row(offsetof(trace::ring::Record, id), "u32", "id"),
        row(offsetof(trace::ring::Record, kind), "u16", "kind"),
        row(offsetof(trace::ring::Record, part), "u16", "part"),
        fmt::format("\n| {} | {} bytes |", offsetof(trace::ring::Record, call),
                    sizeof(trace::ring::Record) - offsetof(trace::ring::Record, call))})
    EXPECT_THAT(record, HasSubstr(expected));
}

struct Payload {
  std::string names;  // of its fields, in order
  std::size_t size, alignment;
};

// The payload's fields as the page lists them, in order, take the bytes that the compiler gives
// them.
TEST(RingFilePage, ListsEachKindsFieldsInTheirPlaces) {
  using trace::ring::RecordKind;
  const std::map<std::string, Payload> fields = {
      {"issue",
       {"group signature what at tag step peer ptag seq is_async", sizeof(trace::ring::CallFields),
        alignof(trace::ring::CallFields)}},
      {"exception",
       {"what has_call", sizeof(trace::ring::ExceptionFields),
        alignof(trace::ring::ExceptionFields)}},
      {"step", {"loss samples", sizeof(trace::ring::StepFields), alignof(trace::ring::StepFields)}},
      {"modality",
       {"has", sizeof(trace::ring::ModalityFields), alignof(trace::ring::ModalityFields)}},
      {"data",
       {"count more modality indices", sizeof(trace::ring::DataFields),
        alignof(trace::ring::DataFields)}},
      {"state",
       {"hash norm name shape dtype kind when sharded has_hash sketch",
        sizeof(trace::ring::StateFields), alignof(trace::ring::StateFields)}},
      {"span",
       {"duration name", sizeof(trace::ring::SpanFields), alignof(trace::ring::SpanFields)}},
  };
  const std::string page = TempDir::read(kDocs + "ring-file.md");
  for (const auto& [kind, expected] : fields) {
    const std::size_t at = page.find(" | " + kind + " | ");
    ASSERT_NE(at, std::string::npos) << kind;
    const std::string line = page.substr(at + 3, page.find('\n', at + 1) - at - 3);
    // Every "TYPE `name`" of the line: u32 `group`, `what` …; a type holds until the next one.
    std::string names, type;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      for (const char* known : {"u8", "u16", "u32", "u64", "i32", "i64", "f64"})
        if (line.compare(i, std::string(known).size() + 1, std::string(known) + " ") == 0)
          type = known;
      if (line[i] != '`') continue;
      const std::size_t end = line.find('`', i + 1);
      const std::string name = line.substr(i + 1, end - i - 1);
      i = end;
      if (type.empty() || (expected.names + " ").find(name + " ") == std::string::npos) continue;
      if ((" " + names).find(" " + name + " ") != std::string::npos) continue;
      names += name + " ";
      const std::size_t size = std::stoul(type.substr(1)) / 8;
      bytes += size * (line.compare(end, 2, "`[") == 0 ? std::stoul(line.substr(end + 2)) : 1);
    }
    EXPECT_EQ(names, expected.names + " ") << kind;
    if (line.find("u32 0") != std::string::npos) bytes += 4;  // reserved
    const std::size_t aligned =
        (bytes + expected.alignment - 1) / expected.alignment * expected.alignment;
    EXPECT_EQ(aligned, expected.size) << kind;
  }
  for (const auto& [number, name] : std::map<int, std::string>{{1, "issue"},
                                                               {6, "exception"},
                                                               {7, "step"},
                                                               {8, "modality"},
                                                               {9, "data"},
                                                               {10, "state"},
                                                               {11, "span"}})
    EXPECT_THAT(page, HasSubstr(fmt::format("\n| {} | {} | ", number, name)));
  static_assert(static_cast<int>(trace::ring::RecordKind::issue) == 1 &&
                static_cast<int>(trace::ring::RecordKind::span) == 11);
}

}  // namespace
}  // namespace lockstep::docs
