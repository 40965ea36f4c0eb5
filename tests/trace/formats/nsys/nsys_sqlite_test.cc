// Reports of Nsight Systems as SQLite databases: as lines of JSON say it, damaged, and hostile.
#include <sqlite3.h>

#include <cstddef>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_dump.h"
#include "tests/trace/formats/format_testing.h"
#include "tests/trace/formats/nsys/nsys_report.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

// All that was read.
std::string nsys_dump(const ReadNsys& report) {
  EXPECT_EQ(report.error, "");
  std::string out;
  for (const RankTrace& rank : report.ranks) out += lockstep::dump(rank, report.tables);
  return out;
}

TEST(NsysSqlite, SaysWhatTheLinesSay) {
  NsysReport report = small_nsys();
  report.copy(1, 158'000, 159'000, 5, 9).fill(160'000, 161'000, 6);
  report.range("step 4", 400'000, 500'000).kernel(kNameAllReduce, 410'000, 420'000, 7, 20);
  const ReadNsys lines = read_nsys_report(report.str()), rows = read_nsys_report(report.sqlite());
  EXPECT_EQ(nsys_dump(rows), nsys_dump(lines));
  EXPECT_EQ(nsys_spans(rows), nsys_spans(lines));
  EXPECT_EQ(rows.ranks.at(0).steps.size(), 2U);
  EXPECT_EQ(rows.ranks.at(0).damaged_count, 0U);
  EXPECT_EQ(recognise(report.sqlite()), format_named("nsys"));
}

TEST(NsysSqlite, ProcessesOfANodeAreItsRanks) {
  NsysReport node = small_nsys(9, 0);
  const NsysReport other = small_nsys(8, 3);
  node.text += other.text;
  node.rows += other.rows;
  EXPECT_EQ(nsys_dump(read_nsys_report(node.sqlite(), "node.sqlite")),
            nsys_dump(read_nsys_report(node.str(), "node.sqlite")));
}

// Tables without rows are not written, and columns come and go with versions.
TEST(NsysSqlite, TablesAndColumnsMayBeMissing) {
  const ReadNsys report = read_nsys_report(sqlite_database(R"(
      CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, "end" INT, shortName INT, streamId INT);
      INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(5, 15, 1, 7);)"));
  ASSERT_EQ(report.error, "");
  EXPECT_THAT(nsys_spans(report), testing::Contains(HasSubstr(" in 7: 10")));
}

TEST(NsysSqlite, WhatIsNoReportIsSaid) {
  EXPECT_THAT(
      read_nsys_report(sqlite_database("CREATE TABLE t(a); INSERT INTO t VALUES(1);")).error,
      HasSubstr("is not a report of Nsight Systems"));
  EXPECT_THAT(read_nsys_report(sqlite_database(kNsysTables)).error,
              HasSubstr("shows no work of a GPU"));
  const std::string whole = small_nsys().sqlite();
  EXPECT_THAT(read_nsys_report(whole.substr(0, whole.size() - 512)).error,
              HasSubstr("cut off or damaged"));
  std::string wal = whole;
  wal[18] = wal[19] = 2;
  EXPECT_THAT(read_nsys_report(wal).error, HasSubstr("journal_mode=DELETE"));
}

// nsys profile --cuda-graph-trace=graph.
TEST(NsysSqlite, AGraphThatWasRecordedAsAWholeIsWork) {
  NsysReport r;
  r.api(kNameGraphLaunch, 0, 5'000, 1).graph(6'000, 56'000, 1);
  r.api(kNameGraphLaunch, 60'000, 61'000, 2).graph(61'000, 111'000, 2, INT32_MAX);
  r.api(kNameSync, 62'000, 112'000, 3);
  const ReadNsys report = read_nsys_report(r.sqlite());
  ASSERT_EQ(report.error, "");
  EXPECT_THAT(nsys_spans(report), testing::Contains(HasSubstr("CUDA graph in 7: ")).Times(2));
  const RankTrace& rank = report.ranks.at(0);
  EXPECT_EQ(rank.damaged_count, 2U);
  EXPECT_THAT(
      rank.damaged.at(0).message,
      HasSubstr("2 launches of a CUDA graph recorded as a whole: each counts as one kernel"));
  // Times that CUPTI could not collect.
  const ReadNsys without = read_nsys_report(NsysReport(r).graph(0, 0, 9).sqlite());
  EXPECT_EQ(without.ranks.at(0).damaged_count, 3U);
  EXPECT_THAT(nsys_spans(without), testing::Contains(HasSubstr("CUDA graph in 7: ")).Times(2));
}

// Pages of the tables of rows are damaged one by one: what the others hold is read.
TEST(NsysSqlite, WhatIsBeforeDamageIsRead) {
  NsysReport report = small_nsys();
  for (int i = 0; i < 100; ++i) report.kernel(kNameGemm, 400'000 + i, 400'001 + i, 10 + i);
  const std::string whole = report.sqlite();
  std::size_t partly = 0;
  for (std::size_t page = 512; page < whole.size(); page += 512) {
    std::string bad = whole;
    bad.replace(page, 512, 512, '\x7f');
    const ReadNsys read = read_nsys_report(bad);
    if (read.error.empty() && read.ranks.at(0).damaged_count > 0) ++partly;
  }
  EXPECT_GT(partly, 3U);
}

// Nothing in the file is run, whatever its schema says.
TEST(NsysSqlite, RefusesWhatRuns) {
  const std::string table = "CUPTI_ACTIVITY_KIND_KERNEL";
  // A view in place of a table: views are off.
  EXPECT_THAT(read_nsys_report(sqlite_database("CREATE TABLE StringIds(id, value);"
                                               "CREATE VIEW " +
                                               table + " AS SELECT 1 AS start, 2 AS \"end\";"))
                  .error,
              HasSubstr("shows no work of a GPU"));
  EXPECT_THAT(read_nsys_report(
                  sqlite_database("CREATE VIRTUAL TABLE " + table + " USING fts4(start, \"end\");"))
                  .error,
              HasSubstr("virtual tables"));
  // The times of a row are computed: the column is not read, so the row has no time.
  const ReadNsys computed = read_nsys_report(
      sqlite_database("CREATE TABLE " + table +
                      "(start INT, \"end\" INT AS (start + length(hex(zeroblob(9)))));"
                      "INSERT INTO " +
                      table + "(start) VALUES(5);"));
  EXPECT_THAT(computed.error, HasSubstr("shows no work of a GPU"));
}

// A database of a few kilobytes whose second page, the first table's only one, became the root of a
// tree: all branches of all levels lead to that page. Each of the six levels has 60 branches.
std::string endless_rows(const std::string& statements) {
  constexpr std::size_t kPage = 512, kBranches = 60;
  // Pages to write over, at the end.
  std::string bytes = sqlite_database(
      statements + "CREATE TABLE filler(a); INSERT INTO filler VALUES(zeroblob(6000));");
  std::size_t below = bytes.size() / kPage - 8;
  bytes.replace(below * kPage, kPage, bytes.substr(kPage, kPage));
  for (int level = 0; level < 6; ++level) {
    std::string page(kPage, '\0');
    page[0] = 5;  // an interior page of a table
    page[4] = static_cast<char>(kBranches);
    const std::size_t cells = kPage - kBranches * 5;
    page[5] = static_cast<char>(cells >> 8U);
    page[6] = static_cast<char>(cells & 0xFFU);
    page[11] = static_cast<char>(below + 1);
    for (std::size_t i = 0; i < kBranches; ++i) {
      const std::size_t cell = cells + 5 * i;
      page[12 + 2 * i] = static_cast<char>(cell >> 8U);
      page[13 + 2 * i] = static_cast<char>(cell & 0xFFU);
      page[cell + 3] = static_cast<char>(below + 1);
      page[cell + 4] = static_cast<char>(i + 1);
    }
    const std::size_t here = level == 5 ? 1 : below + 1;
    bytes.replace(here * kPage, kPage, page);
    below = here;
  }
  return bytes;
}

TEST(NsysSqlite, RowsWithoutEndEnd) {
  std::string statements =
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, \"end\" INT, shortName INT);";
  for (int i = 0; i < 20; ++i)
    statements += "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1, 2, 3);";
  const ReadNsys read = read_nsys_report(endless_rows(statements));
  ASSERT_EQ(read.error, "");
  EXPECT_GT(read.ranks.at(0).spans.size(), 1000U);
  EXPECT_LT(read.ranks.at(0).spans.size(), 100'000U);
  EXPECT_EQ(read.ranks.at(0).damaged_count, 1U);
}

// Many rows may share one long text: together texts have no more bytes than the file.
TEST(NsysSqlite, TextsWithoutEndEnd) {
  const ReadNsys read = read_nsys_report(endless_rows(
      "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, \"end\" INT, shortName INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1, 2, 3);"
      "INSERT INTO StringIds VALUES(3, hex(zeroblob(1000)));"));
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.ranks.at(0).damaged_count, 1U);
}

TEST(NsysSqlite, ATextThatIsTooLongIsDamage) {
  const ReadNsys read = read_nsys_report(sqlite_database(
      "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, \"end\" INT, shortName INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1, 2, 3);"
      "INSERT INTO StringIds VALUES(3, hex(zeroblob(40000)));"));
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.ranks.at(0).damaged_count, 1U);
}

// Cut off, and with bits flipped; not everywhere, since a database is mostly zeros.
TEST(NsysSqlite, SurvivesDamage) {
  const std::string bytes = small_nsys().sqlite();
  for (std::size_t length = 0; length <= bytes.size(); length += length < 128 ? 1 : 97)
    digest(nsys_format(), bytes.substr(0, length));
  std::string damaged = bytes;
  for (std::size_t at = 0; at < bytes.size(); at += std::size_t{bytes[at] == 0 ? 61U : 1U}) {
    for (const int bits : {1 << (at % 8), 0xFF}) {
      damaged[at] = static_cast<char>(bytes[at] ^ bits);
      digest(nsys_format(), damaged);
    }
    damaged[at] = bytes[at];
  }
}

// SQLite's own memory, beyond what the reader allocates (memory_test), is its cache of pages.
TEST(NsysSqlite, TakesLittleMemoryOfSqlite) {
  NsysReport report = small_nsys();
  for (int i = 0; i < 20'000; ++i) report.kernel(kNameGemm, 400'000 + i, 400'001 + i, 10 + i);
  const std::string bytes = report.sqlite();
  sqlite3_memory_highwater(1);
  const auto before = sqlite3_memory_used();
  ASSERT_EQ(read_nsys_report(bytes).error, "");
  EXPECT_LT(sqlite3_memory_highwater(0) - before, 4 << 20);
}

}  // namespace
}  // namespace lockstep::trace
