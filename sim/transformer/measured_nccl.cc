// nccl-tests' tables: two shapes, a machine with its size or a machine with a table per size.
#include <cstdlib>
#include <string>

#include "base/text.h"
#include "sim/transformer/measured_columns.h"

namespace lockstep::sim {
namespace {

using nlohmann::json;

struct MeasuredMachine {
  std::string name;
  std::int64_t ranks = 1, nodes = 1;
};

Status add_rows(MeasuredTable& table, const json& rows, const json& columns,
                const MeasuredMachine& machine) {
  const bool nanos = [&] {
    for (const json& column : columns)
      if (column == "time_oop_ns") return true;
    return false;
  }();
  std::size_t number = 0;
  for (const json& values : rows) {
    TableRow row(values, columns,
                 table.file + ", " + printable(machine.name) + ", row " + std::to_string(++number));
    MeasuredCollective measured;
    measured.machine = machine.name;
    measured.ranks = machine.ranks;
    measured.nodes = machine.nodes;
    const double bytes = row.number("bytes");
    measured.seconds = row.number(nanos ? "time_oop_ns" : "time_oop_us") * (nanos ? 1e-9 : 1e-6);
    if (bytes > 1e15) row.refuse("\"bytes\" is above 10^15", "correct the value");
    if (const Status read = row.status(); !read) return read;
    measured.bytes = static_cast<std::int64_t>(bytes);
    measured.label = machine.name + ", " + std::to_string(machine.ranks) + " GPUs, " +
                     bytes_in_words(static_cast<std::uint64_t>(measured.bytes));
    if (table.collectives.size() == kMostTableRows)
      return Error{"the table has more than " + std::to_string(kMostTableRows) + " rows",
                   {table.file},
                   "give it in parts"};
    table.collectives.push_back(std::move(measured));
  }
  return Status::ok();
}

}  // namespace

Result<MeasuredTable> read_nccl_tests(const json& root, const std::string& file) {
  if (!root.contains("columns") || !root["columns"].is_array())
    return Error{"the table has no \"columns\"", {file}, "name them"};
  MeasuredTable table;
  table.file = file;
  table.machine_type = "nccl";
  for (const auto& [name, machine] : root["machines"].items()) {
    const std::string place = file + ", " + printable(name);
    if (!machine.is_object())
      return Error{place + ": the machine is no object", {}, "give it \"gpus\" and \"rows\""};
    if (machine.contains("rows")) {
      TableRow about(machine, place);
      const MeasuredMachine one{name, about.count("gpus"), about.count("nodes", 1)};
      if (const Status read = about.status(); !read) return read.error();
      if (!is_list_of_lists(machine["rows"]))
        return Error{place + ": \"rows\" is no list of lists", {}, "correct it"};
      if (const Status s = add_rows(table, machine["rows"], root["columns"], one); !s)
        return s.error();
      continue;
    }
    for (const auto& [gpus, rows] : machine.items()) {
      const long ranks = std::strtol(gpus.c_str(), nullptr, 10);
      if (ranks < 2 || ranks > 1 << 20 || !is_list_of_lists(rows))
        return Error{place + ": \"" + printable(gpus) + "\" is no number of GPUs with its rows",
                     {},
                     "write \"8\": [[bytes, time, …], …]"};
      if (const Status s = add_rows(table, rows, root["columns"], {name, ranks, 1}); !s)
        return s.error();
    }
  }
  return table;
}

}  // namespace lockstep::sim
