// Any bytes as a machine file: an error with its place, or a machine that can be written, reads as
// the same again, and says of every call how long it lasts or why it does not.
#include <array>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "sim/machine/machine.h"
#include "sim/machine/work_time.h"
#include "tests/fuzz/targets.h"
#include "trace/signature.h"

namespace lockstep {

namespace {

constexpr std::array kOps = {
    trace::Op::all_reduce, trace::Op::all_gather, trace::Op::reduce_scatter, trace::Op::broadcast,
    trace::Op::reduce,     trace::Op::all_to_all, trace::Op::barrier,        trace::Op::send};
constexpr std::array kLayouts = {sim::GroupLayout{1, 1, 1}, sim::GroupLayout{8, 1, 8},
                                 sim::GroupLayout{16, 2, 8}, sim::GroupLayout{96, 12, 8},
                                 sim::GroupLayout{5, 2, 2, 0, 0, 0, 3}};
constexpr std::array kSizes = {Bytes{0}, Bytes{1}, Bytes{1 << 26U}, Bytes{INT64_MAX}};

void price_calls(const sim::Machine& machine) {
  for (const trace::Op op : kOps) {
    for (const sim::GroupLayout& layout : kLayouts) {
      for (const Bytes bytes : kSizes) {
        sim::ProgramCall call;
        call.op = op;
        call.bytes = bytes;
        const Result<Picos> time = sim::call_time(call, layout, machine);
        LOCKSTEP_CHECK(!time || time->value >= 0, "no call ends before it began");
        const Result<sim::CallCost> cost = sim::call_cost(call, layout, machine);
        LOCKSTEP_CHECK(!cost || cost->hops >= 0, "nor makes fewer hops than none");
      }
    }
  }
}

}  // namespace

void fuzz_machine(std::string_view bytes) {
  const Result<sim::Machine> machine = sim::parse_machine(std::string(bytes), "fuzz.yaml");
  if (!machine) {
    LOCKSTEP_CHECK(!machine.error().message.empty(), "an error says what is wrong");
    LOCKSTEP_CHECK(machine.error().location.file == "fuzz.yaml", "and where");
    return;
  }
  const std::string text = sim::machine_text(*machine, "");
  const Result<sim::Machine> again = sim::parse_machine(text, "again.yaml");
  LOCKSTEP_CHECK(again, "what was written can be read: " + text);
  LOCKSTEP_CHECK(sim::machine_text(*again, "") == text, "and is the same");
  price_calls(*machine);
}

}  // namespace lockstep
