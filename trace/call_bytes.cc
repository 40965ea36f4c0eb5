#include "trace/call_bytes.h"

#include <string>
#include <vector>

#include "trace/dtype.h"

namespace lockstep {

double call_bytes(const Run& run, const Call& call) {
  const Signature& signature = run.tables.signatures[call.signature];
  std::int64_t elements = signature.in_elements;
  if (elements == kNone) elements = signature.out_elements;
  const std::vector<std::string> dtypes = run.tables.names(signature.dtypes);
  if (elements == kNone || dtypes.empty()) return 0;
  return static_cast<double>(elements) *
         static_cast<double>(element_bytes(dtypes.front()).value_or(0));
}

}  // namespace lockstep
