#include "tests/verify/injection/program_writer.h"

namespace lockstep::verify::injection {

CallSpec all_reduce(const std::string& group, std::int64_t size, std::vector<std::string> what) {
  CallSpec c;
  c.op = "all_reduce";
  c.group = group;
  c.in = c.out = {size};
  c.redop = "sum";
  c.what = std::move(what);
  return c;
}

CallSpec collective(const std::string& op, const std::string& group, std::int64_t in,
                    std::int64_t out) {
  CallSpec c;
  c.op = op;
  c.group = group;
  if (in > 0) c.in = {in};
  if (out > 0) c.out = {out};
  return c;
}

CallSpec transfer(const std::string& op, const std::string& group, int peer, int tag,
                  std::int64_t size) {
  CallSpec c;
  c.op = op;
  c.group = group;
  (op == "send" ? c.in : c.out) = {size};
  c.peer = peer;
  c.ptag = tag;
  return c;
}

}  // namespace lockstep::verify::injection
