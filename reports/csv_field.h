// Comma-separated values (RFC 4180), for reports, forecasts and sweeps.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::reports {

// One field: printable, quoted where necessary. Text that a spreadsheet would take for a formula (=
// + - @ at the start) gets a leading apostrophe, so that a name in a trace cannot run anything:
// https://owasp.org/www-community/attacks/CSV_Injection
std::string csv_field(std::string_view text);

}  // namespace lockstep::reports
