#include "verify/report.h"

namespace lockstep::verify {

std::string_view to_string(Verdict v) {
  switch (v) {
    case Verdict::clean:
      return "clean";
    case Verdict::findings:
      return "findings";
    case Verdict::inconclusive:
      return "inconclusive";
  }
  return "";
}

}  // namespace lockstep::verify
