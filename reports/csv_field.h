// Comma-separated values (RFC 4180), as reports, forecasts and sweeps write them.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::reports {

// One field: printable, quoted where it must be. What a spreadsheet would take for a formula (= + -
// @ at the start) gets an apostrophe in front, so that a name in a trace cannot run anything:
// https://owasp.org/www-community/attacks/CSV_Injection
std::string csv_field(std::string_view text);

}  // namespace lockstep::reports
