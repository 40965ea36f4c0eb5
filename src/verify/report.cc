#include "verify/report.h"

namespace lockstep {

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

std::string_view to_string(Certainty c) {
  switch (c) {
    case Certainty::proven:
      return "proven";
    case Certainty::observed:
      return "observed";
    case Certainty::possible:
      return "possible";
  }
  return "";
}

}  // namespace lockstep
