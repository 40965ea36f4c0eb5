// The suppressions file: findings that a team has accepted, each with a reason and a date at which
// it wants to be asked again. YAML, a list of entries:
//
//   - rule: never-waited
//     group: dp0                   # optional, as are the next three; all that are given must hold
//     what: image.proj.*           # a glob, or a list of them: every parameter matches one
//     at: "*/legacy_sync.py:*"     # a glob, or a list of them: one place of the evidence matches
//     ranks: [0, 1]                # the culprits are among these
//     reason: fixed by the new scheduler, TICKET-12
//     expires: 2026-12-31          # the last day that it holds (UTC), or `never`
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "reports/filter/filter.h"

namespace lockstep::reports {

// The entries in `text`, the contents of `file`; a file without entries gives none. Errors, with
// line and column: not YAML, an unknown key or rule, no reason, no date or none that exists.
Result<std::vector<Suppression>> parse_suppressions(const std::string& text,
                                                    const std::string& file);

}  // namespace lockstep::reports
