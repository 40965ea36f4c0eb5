// Reports of Nsight Systems as SQLite databases: `nsys export --type sqlite`, and the file that
// `nsys stats` leaves beside a report. Tables and columns: NVIDIA, "SQLite Export Schema
// Reference".
//
// SQLite reads the file where it is in memory, and nothing in it is run: it is read only, views and
// triggers are off, a database with virtual tables is refused, generated columns are not read, and
// an authorizer refuses all but reading tables. Each table is read once from its start to its end,
// without its indices.
//
// A hostile tree of pages may have more rows than the file has bytes, and many rows may share one
// text. So SQLite's steps, and the bytes of texts, are limited by the size of the file, which
// limits time and memory. What was read before the limit, or before damage, stays.
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/nsys/events.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kSqliteMagic{"SQLite format 3\0", 16};
// The length of a row, a text or a statement in the schema. Names of kernels have some kilobytes at
// most.
constexpr int kLongestSqliteRow = 1 << 16;
constexpr int kSqliteSteps = 1000;  // of SQLite's machine between two looks at the limit
// Steps beyond one for each byte of the file: for the schema, and small files. A row takes about
// ten and has some forty bytes.
constexpr std::int64_t kSqliteFreeSteps = 200'000;

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct FinishStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

// Reading tables, and asking for their columns.
int only_reading(void* /*unused*/, int action, const char* name, const char* /*unused*/,
                 const char* /*unused*/, const char* /*unused*/) {
  if (action == SQLITE_SELECT || action == SQLITE_READ) return SQLITE_OK;
  return action == SQLITE_PRAGMA && std::string_view(name) == "table_info" ? SQLITE_OK
                                                                           : SQLITE_DENY;
}

int count_steps(void* left) { return (*static_cast<std::int64_t*>(left) -= kSqliteSteps) < 0; }

// One row of a table.
class SqliteRow {
 public:
  explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement) {}

  std::optional<std::int64_t> integer(int column) const {
    if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return std::nullopt;
    return sqlite3_column_int64(statement_, column);
  }
  // Until the next row.
  std::string_view text(int column) const {
    if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return {};
    const auto* const bytes =
        reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    if (bytes == nullptr) return {};
    return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
  }

 private:
  sqlite3_stmt* statement_;
};

class SqliteReport {
 public:
  SqliteReport(const TraceFile& file, Tables& tables)
      : file_(file),
        steps_left_(static_cast<std::int64_t>(file.bytes.size()) + kSqliteFreeSteps),
        text_left_(file.bytes.size()),
        events_(file, tables, [this](std::int64_t index) { return string_at(index); }) {}

  Result<std::vector<RankTrace>> read() {
    if (const Status open = open_database(); !open) return open.error();
    if (const Status known = check_schema(); !known) return known.error();
    read_strings();
    read_kernels();
    read_copies("CUPTI_ACTIVITY_KIND_MEMCPY", true);
    read_copies("CUPTI_ACTIVITY_KIND_MEMSET", false);
    read_graphs();
    if (file_.work) read_api_calls();
    read_ranges();
    return events_.assemble(whole_);
  }

 private:
  Error damaged(const std::string& how) const {
    return {fmt::format("this SQLite database is cut off or damaged: {}", how),
            {file_.name},
            "export the report again: nsys export --type sqlite"};
  }

  Status open_database() {
    // Bytes 18 and 19 are 2 where the last changes may still be in a file beside this one.
    if (file_.bytes.size() >= 20 && (file_.bytes[18] == 2 || file_.bytes[19] == 2))
      return Error{"this SQLite database keeps its last changes in a file of its own (\"WAL\")",
                   {file_.name},
                   "sqlite3 FILE 'PRAGMA journal_mode=DELETE', or export the report again"};
    sqlite3* database = nullptr;
    const int opened = sqlite3_open_v2(":memory:", &database,
                                       SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    database_.reset(database);
    if (opened != SQLITE_OK) return damaged(sqlite3_errstr(opened));
    // It is not written to: SQLITE_DESERIALIZE_READONLY.
    auto* const bytes =
        const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(file_.bytes.data()));
    const auto size = static_cast<sqlite3_int64>(file_.bytes.size());
    const int taken =
        sqlite3_deserialize(database, "main", bytes, size, size, SQLITE_DESERIALIZE_READONLY);
    if (taken != SQLITE_OK) return damaged(sqlite3_errstr(taken));
    // After that, since it attaches the bytes by a statement of its own.
    for (const auto& [limit, most] : {std::pair(SQLITE_LIMIT_LENGTH, kLongestSqliteRow),
                                      {SQLITE_LIMIT_SQL_LENGTH, kLongestSqliteRow},
                                      {SQLITE_LIMIT_COLUMN, 200},
                                      {SQLITE_LIMIT_EXPR_DEPTH, 20},
                                      {SQLITE_LIMIT_ATTACHED, 0},
                                      {SQLITE_LIMIT_WORKER_THREADS, 0}})
      sqlite3_limit(database, limit, most);
    for (const auto& [option, value] : {std::pair(SQLITE_DBCONFIG_DEFENSIVE, 1),
                                        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                        {SQLITE_DBCONFIG_ENABLE_VIEW, 0}})
      sqlite3_db_config(database, option, value, nullptr);
    sqlite3_progress_handler(database, kSqliteSteps, count_steps, &steps_left_);
    sqlite3_set_authorizer(database, only_reading, nullptr);
    return Status::ok();
  }

  Status check_schema() {
    bool has_virtual = false, of_nsys = false;
    const int end = each_row("SELECT name, sql FROM sqlite_master", [&](const SqliteRow& row) {
      const std::string statement = upper_case(row.text(1).substr(0, 100));
      has_virtual |= statement.find("VIRTUAL") != std::string::npos;
      of_nsys |= row.text(0) == "StringIds" || row.text(0).starts_with("CUPTI_ACTIVITY_KIND_");
    });
    if (end != SQLITE_DONE) return damaged(sqlite3_errstr(end));
    if (has_virtual)
      return Error{"this SQLite database has virtual tables, which no report has",
                   {file_.name},
                   "export the report again: nsys export --type sqlite"};
    if (!of_nsys)
      return Error{"this SQLite database is not a report of Nsight Systems",
                   {file_.name},
                   "export one: nsys export --type sqlite"};
    return Status::ok();
  }

  static std::string upper_case(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    return out;
  }

  // Calls `use` with each row. Returns SQLITE_DONE, or why there are no more.
  template <class Use>
  int each_row(const std::string& sql, const Use& use) {
    sqlite3_stmt* prepared = nullptr;
    const int known = sqlite3_prepare_v2(database_.get(), sql.c_str(), static_cast<int>(sql.size()),
                                         &prepared, nullptr);
    const std::unique_ptr<sqlite3_stmt, FinishStatement> statement(prepared);
    if (known != SQLITE_OK) return known;
    for (;;) {
      const int state = sqlite3_step(prepared);
      if (state != SQLITE_ROW) return state;
      use(SqliteRow(prepared));
    }
  }

  // Calls `use` with the columns of each row of a table; a column that this version of the format
  // does not have is null. Nothing if there is no such table: tables without rows are not written.
  template <std::size_t kColumns, class Use>
  void each_row_of(const std::string& table, const std::array<std::string_view, kColumns>& columns,
                   const Use& use) {
    std::vector<std::string> there;  // without generated columns
    each_row(fmt::format("PRAGMA table_info(\"{}\")", table),
             [&](const SqliteRow& row) { there.emplace_back(row.text(1)); });
    if (there.empty()) return;
    std::string list;
    for (const std::string_view column : columns) {
      const bool known = std::find(there.begin(), there.end(), column) != there.end();
      list += fmt::format("{}{}", list.empty() ? "" : ", ",
                          known ? fmt::format("\"{}\"", column) : std::string("NULL"));
    }
    const int end = each_row(fmt::format("SELECT {} FROM \"{}\" NOT INDEXED", list, table), use);
    if (end == SQLITE_DONE) return;
    whole_ = false;
    events_.lose(fmt::format(
        "table {}: {}", table,
        end == SQLITE_INTERRUPT ? "more rows than fit into the file" : sqlite3_errstr(end)));
  }

  // All texts of a file together have no more bytes than the file.
  std::string_view limited(std::string_view text) {
    if (text.size() > text_left_) {
      steps_left_ = 0;  // ends the statement
      return {};
    }
    text_left_ -= text.size();
    return text;
  }

  void read_strings() {
    each_row_of<2>("StringIds", {"id", "value"}, [&](const SqliteRow& row) {
      if (const auto id = row.integer(0)) strings_.try_emplace(*id, limited(row.text(1)));
    });
  }
  std::string string_at(std::int64_t index) const {
    const auto found = strings_.find(index);
    return found == strings_.end() ? std::string() : to_utf8(found->second);  // or any other bytes
  }

  // Columns 0 to 5 of a table of work.
  static NsysEvents::Work work_of(const SqliteRow& row) {
    return {nsys_times(row.integer(0), row.integer(1)), row.integer(2), row.integer(3),
            row.integer(4), row.integer(5)};
  }

  void read_kernels() {
    each_row_of<8>("CUPTI_ACTIVITY_KIND_KERNEL",
                   {"start", "end", "globalPid", "deviceId", "streamId", "correlationId",
                    "demangledName", "shortName"},
                   [&](const SqliteRow& row) {
                     const auto name = row.integer(6);
                     events_.take_kernel(work_of(row), name ? name : row.integer(7));
                   });
  }

  void read_copies(const std::string& table, bool copies) {
    each_row_of<7>(
        table, {"start", "end", "globalPid", "deviceId", "streamId", "correlationId", "copyKind"},
        [&](const SqliteRow& row) {
          if (copies) return events_.take_copy(work_of(row), row.integer(6).value_or(0));
          events_.take_fill(work_of(row));
        });
  }

  void read_graphs() {
    each_row_of<6>("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
                   {"start", "end", "globalPid", "deviceId", "streamId", "correlationId"},
                   [&](const SqliteRow& row) { events_.take_graph(work_of(row)); });
  }

  void read_api_calls() {
    each_row_of<5>("CUPTI_ACTIVITY_KIND_RUNTIME",
                   {"start", "end", "globalTid", "correlationId", "nameId"},
                   [&](const SqliteRow& row) {
                     events_.take_api_call(row.integer(0), row.integer(1), row.integer(2),
                                           row.integer(3), row.integer(4));
                   });
  }

  void read_ranges() {
    each_row_of<5>("NVTX_EVENTS", {"start", "end", "globalTid", "text", "textId"},
                   [&](const SqliteRow& row) {
                     std::string text(limited(row.text(3)));
                     const auto listed = row.integer(4);
                     if (text.empty() && listed) text = string_at(*listed);
                     events_.take_range(text, row.integer(0), row.integer(1), row.integer(2));
                   });
  }

  const TraceFile& file_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
  std::int64_t steps_left_;
  std::size_t text_left_;
  bool whole_ = true;
  std::unordered_map<std::int64_t, std::string> strings_;
  NsysEvents events_;
};

}  // namespace

bool looks_like_sqlite(std::string_view bytes) { return bytes.starts_with(kSqliteMagic); }

Result<std::vector<RankTrace>> read_nsys_sqlite(const TraceFile& file, Tables& tables) {
  return SqliteReport(file, tables).read();
}

}  // namespace lockstep::trace
