// nccl-tests' tables, in two shapes: a machine of one size, {"gpus": 8, "rows": [[bytes, time],
// …]}, or a machine with a list of rows per size, {"8": [[bytes, time], …], "16": …}.
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/quantities.h"
#include "base/text.h"
#include "sim/measured/table_row.h"

namespace lockstep::sim {

namespace {

using nlohmann::json;

struct MeasuredMachine {
  std::string name;
  std::int64_t ranks = 1, nodes = 1;
};

Status add_rows(MeasuredTable& table, const json& rows, const json& columns,
                const MeasuredMachine& machine) {
  // The unit is in the column's name: time_oop_ns or time_oop_us.
  const bool nanos = [&] {
    for (const json& column : columns)
      if (column == "time_oop_ns") return true;
    return false;
  }();
  std::size_t number = 0;
  for (const json& values : rows) {
    TableRow row(values, columns,
                 fmt::format("{}, {}, row {}", table.file, printable(machine.name), ++number));
    MeasuredCollective measured;
    measured.machine = machine.name;
    measured.ranks = machine.ranks;
    measured.nodes = machine.nodes;
    const double bytes = row.number("bytes");
    measured.seconds = row.number(nanos ? "time_oop_ns" : "time_oop_us") * (nanos ? 1e-9 : 1e-6);
    if (bytes > 1e15) row.refuse("\"bytes\" is above 10^15", "correct the value");
    if (const Status read = row.status(); !read) return read;
    measured.bytes = static_cast<std::int64_t>(bytes);
    measured.label =
        fmt::format("{}, {} GPUs, {}", machine.name, machine.ranks, bytes_text(measured.bytes));
    if (table.collectives.size() == kMaxTableRows)
      return Error{fmt::format("the table has more than {} rows", kMaxTableRows),
                   {table.file},
                   "give it in parts"};
    table.collectives.push_back(std::move(measured));
  }
  return Status::ok();
}

}  // namespace

Result<MeasuredTable> read_nccl_tests(const nlohmann::json& root, const std::string& file) {
  if (!root.contains("columns") || !root["columns"].is_array())
    return Error{"the table has no \"columns\"", {file}, "name them"};
  MeasuredTable table;
  table.file = file;
  table.machine_type = "nccl";
  for (const auto& [name, machine] : root["machines"].items()) {
    const std::string location = fmt::format("{}, {}", file, printable(name));
    if (!machine.is_object())
      return Error{fmt::format("{}: the machine is not an object", location),
                   {},
                   "give it \"gpus\" and \"rows\""};
    if (machine.contains("rows")) {
      TableRow about(machine, location);
      const MeasuredMachine one{name, about.count("gpus"), about.count("nodes", 1)};
      if (const Status read = about.status(); !read) return read.error();
      if (!is_list_of_lists(machine["rows"]))
        return Error{
            fmt::format("{}: \"rows\" is not a list of lists", location), {}, "correct it"};
      if (const Status s = add_rows(table, machine["rows"], root["columns"], one); !s)
        return s.error();
      continue;
    }
    for (const auto& [gpus, rows] : machine.items()) {
      const auto ranks = parse_number<std::int64_t>(gpus).value_or(0);
      if (ranks < 2 || ranks > 1 << 20 || !is_list_of_lists(rows))
        return Error{fmt::format("{}: \"{}\" is not a number of GPUs with its rows", location,
                                 printable(gpus)),
                     {},
                     "write \"8\": [[bytes, time, …], …]"};
      if (const Status s = add_rows(table, rows, root["columns"], {name, ranks, 1}); !s)
        return s.error();
    }
  }
  return table;
}

}  // namespace lockstep::sim
