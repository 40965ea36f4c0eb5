#include "reports/html/page.h"

#include <cstdint>

#include "base/sha256.h"
#include "reports/html/markup.h"

namespace lockstep::reports::html {
namespace {

std::uint32_t nibble(char digit) {
  return static_cast<std::uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

// Converts hexadecimal digits to base64 (RFC 4648): three bytes become four characters; "=" fills
// up the last group.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 6) {
    const std::string_view part = hex.substr(i, 6);
    std::uint32_t bits = 0;
    for (std::size_t d = 0; d < 6; ++d) bits = bits << 4U | (d < part.size() ? nibble(part[d]) : 0);
    // One byte gives two characters, two give three, three give four.
    const std::size_t characters = part.size() / 2 + 1;
    for (std::size_t c = 0; c < 4; ++c)
      out += c < characters ? kAlphabet[bits >> (18U - 6U * c) & 63U] : '=';
  }
  return out;
}

}  // namespace

std::string content_security_policy(std::string_view style) {
  return "default-src 'none'; style-src 'sha256-" + base64_of_hex(sha256(style)) +
         "'; base-uri 'none'; form-action 'none'";
}

std::string page(std::string_view title, std::string_view body) {
  const std::string style(html_style());
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
         content_security_policy(style) +
         "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"referrer\" content=\"no-referrer\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         text(title) + "</title>\n<style>" + style + "</style>\n</head>\n<body>\n" +
         std::string(body) + "</body>\n</html>\n";
}

namespace {

constexpr std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #f7f7f4; --sheet: #ffffff; --faint: #f1f1ed; --line: #d9dad4;
  --ink: #1b1f24; --soft: #565d67; --link: #1557a0;
  --error: #ab2418; --error-ground: #fcefed;
  --warning: #7d4d00; --warning-ground: #fbf3e0;
  --good: #1a6641; --good-ground: #eaf5ee;
  --sans: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --sheet: #1b1f25; --faint: #23282f; --line: #39404a;
    --ink: #e8e9ea; --soft: #a7aeb9; --link: #8dbdff;
    --error: #ff9d92; --error-ground: #37211f;
    --warning: #efbd63; --warning-ground: #322917;
    --good: #84d4a8; --good-ground: #1b2f25;
  }
}
@media print {
  :root {
    --paper: #ffffff; --sheet: #ffffff; --faint: #f1f1ed; --line: #d9dad4;
    --ink: #1b1f24; --soft: #565d67; --link: #1557a0;
    --error: #ab2418; --error-ground: #fcefed;
    --warning: #7d4d00; --warning-ground: #fbf3e0;
    --good: #1a6641; --good-ground: #eaf5ee;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 72rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.55 var(--sans); overflow-wrap: anywhere;
}
h1, h2, h3, p, dl, dd, ul, figure { margin: 0; }
h1 { font-size: 1.95rem; line-height: 1.2; font-weight: 650; letter-spacing: -.018em; text-wrap: balance; }
h2 { font-size: 1.25rem; line-height: 1.4; font-weight: 600; letter-spacing: -.006em; text-wrap: pretty; }
h2.long { font-size: 1.0625rem; line-height: 1.5; letter-spacing: 0; }
h2, .do p, .facts, .so, .plain, footer p { max-width: 54rem; }
h3 { font-size: .8125rem; line-height: 1.4; font-weight: 600; color: var(--soft); margin-bottom: .5rem; }
code { font: .9em/1.5 var(--mono); unicode-bidi: isolate; }
a { color: var(--link); text-underline-offset: .15em; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 3px; }
.soft { color: var(--soft); }
.small { font-size: .875rem; }

.brand { font-size: .8125rem; font-weight: 600; color: var(--soft); margin-bottom: 2rem; }
.badge {
  display: inline-flex; align-items: center; gap: .45em; padding: .1rem .6rem; border-radius: 1rem;
  font-size: .8125rem; font-weight: 600; background: var(--faint); color: var(--soft);
}
.error .badge, .badge.error { background: var(--error-ground); color: var(--error); }
.warning .badge, .badge.warning { background: var(--warning-ground); color: var(--warning); }
.good .badge { background: var(--good-ground); color: var(--good); }
.verdict h1 { margin: .7rem 0 1.5rem; }
.numbers { display: flex; flex-wrap: wrap; gap: .75rem 2.5rem; padding: 1rem 0 0; border-top: 1px solid var(--line); }
.numbers dt { font-size: .8125rem; color: var(--soft); }
.numbers dd { font-weight: 550; font-variant-numeric: tabular-nums; }

nav { margin-top: 2rem; }
nav ol { margin: 0; padding: 0; list-style: none; border-top: 1px solid var(--line); }
nav li { border-bottom: 1px solid var(--line); }
nav a { display: grid; grid-template-columns: 6rem 1fr; gap: .15rem 1rem; padding: .6rem 0; color: inherit; text-decoration: none; }
nav a:hover span:last-child { text-decoration: underline; }

.card {
  margin-top: 2rem; padding: 1.75rem; border: 1px solid var(--line); border-radius: 10px;
  background: var(--sheet);
}
.card.error { border-top: 3px solid var(--error); }
.card.warning { border-top: 3px solid var(--warning); }
.card > * + * { margin-top: 1.5rem; }
.kind { display: flex; flex-wrap: wrap; align-items: baseline; gap: .35rem .9rem; margin-bottom: .7rem; }
.do { padding: .9rem 1.1rem; border-radius: 6px; background: var(--faint); }
.do h3 { margin-bottom: .15rem; color: var(--ink); }
.facts { display: grid; grid-template-columns: 5.5rem 1fr; gap: .55rem 1.25rem; }
.facts dt { color: var(--soft); font-size: .9375rem; }
.facts dd > ul { margin: 0; padding: 0; list-style: none; }
.so > li + li { margin-top: .5rem; }
ul.so { padding-left: 1.1rem; }

.scroll { overflow-x: auto; padding-bottom: .25rem; overflow-wrap: break-word; }
figcaption, .caption { margin: .6rem 0; font-size: .875rem; color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-size: .875rem; line-height: 1.45; }
th { text-align: left; font-weight: 550; color: var(--soft); white-space: nowrap; }
th, td { padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; color: var(--soft); }
td.place { white-space: nowrap; }
tr:target { background: var(--warning-ground); }
details > summary { cursor: pointer; color: var(--link); font-size: .9375rem; width: fit-content; }
details[open] > summary { margin-bottom: .75rem; }

svg { display: block; font: 12px/1 var(--mono); fill: var(--ink); }
svg .lane { stroke: var(--line); stroke-width: 1; }
svg .box { fill: var(--sheet); stroke: var(--line); stroke-width: 1.25; }
svg .ground { fill: var(--sheet); }
svg .none { fill: none; stroke: var(--line); stroke-dasharray: 3 3; }
svg .waits { fill: var(--warning-ground); stroke: var(--warning); }
svg .bad { fill: var(--error-ground); stroke: var(--error); stroke-width: 2; }
svg .join { fill: none; stroke: var(--soft); stroke-width: 1.25; }
svg .join.bad { fill: none; stroke: var(--error); stroke-width: 1.75; stroke-dasharray: 5 3; }
svg .dashed { stroke-dasharray: 4 4; }
svg .head { fill: var(--soft); }
svg .tip { fill: var(--soft); }
svg .tip.bad { fill: var(--error); stroke: none; }
svg .name { font-family: var(--sans); font-size: 13px; font-weight: 600; }
svg .head, svg .note { font-family: var(--sans); font-size: 12px; fill: var(--soft); }
svg .op { font-weight: 600; }
svg .state { font-family: var(--sans); font-weight: 600; }
svg .warn-ink { fill: var(--warning); }
svg .bad-ink { fill: var(--error); }
svg .focus { fill: var(--faint); }
svg a { cursor: pointer; }
svg a:hover rect, svg a:focus-visible rect { stroke: var(--link); stroke-width: 2; }
svg .axis { stroke: var(--line); stroke-width: 1; }
svg .dot { fill: var(--sheet); stroke: var(--soft); stroke-width: 1.25; }
svg .dot.front { fill: var(--link); stroke: var(--link); }
svg .dot.off { stroke: var(--error); stroke-dasharray: 2 2; }
svg .mark { stroke: var(--error); stroke-width: 1; stroke-dasharray: 3 3; }
svg .curve { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
svg .s0 { stroke: var(--link); } svg .s1 { stroke: var(--error); stroke-dasharray: 6 3; }
svg .s2 { stroke: var(--warning); stroke-dasharray: 2 3; } svg .s3 { stroke: var(--good); stroke-dasharray: 8 3 2 3; }
svg .f { stroke: var(--sheet); stroke-width: .75; }
svg .f0 { fill: var(--link); } svg .f1 { fill: var(--warning); fill-opacity: .75; } svg .f2 { fill: var(--line); }
svg .f3 { fill: var(--good); } svg .f4 { fill: var(--error); } svg .f5 { fill: var(--soft); }
svg .f6 { fill: var(--faint); stroke: var(--soft); } svg .f7 { fill: var(--ink); }
svg .same { fill: var(--line); } svg .differ { fill: var(--error); }

.diff td { width: 50%; border-bottom: 0; padding: .2rem .6rem; }
.diff td.n { width: 3.2rem; padding-right: .35rem; }
.diff th { padding: .4rem .6rem; }
.diff .sign { display: inline-block; width: 1.1em; font-family: var(--mono); }
.diff .out { background: var(--error-ground); } .diff .out .sign { color: var(--error); }
.diff .in { background: var(--good-ground); } .diff .in .sign { color: var(--good); }
.diff .empty { background: var(--faint); }
.diff .at { display: block; padding-left: 1.2em; color: var(--soft); font-size: .8125rem; }
.has { display: inline-block; white-space: nowrap; padding: 0 .45em; margin: 0 .25em .15em 0; border-radius: 4px; background: var(--faint); }
.lacks { outline: 1.5px dashed var(--error); outline-offset: -1px; background: none; color: var(--error); }
td.here { background: var(--warning-ground); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(18.5rem, 1fr)); gap: 1.75rem 1.5rem; }
.charts h3 { font-weight: 400; } .charts h3 code { font-weight: 600; color: var(--ink); }
.charts svg { width: 100%; height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .8125rem; color: var(--soft); }
.legend svg { display: inline-block; vertical-align: middle; margin-right: .4em; width: 28px; }
.legend.squares svg { width: 12px; }
.wide + .wide, .wide + .scroll { margin-top: 1.25rem; }
.plain { padding-left: 1.1rem; } .plain li + li { margin-top: .3rem; }
footer { margin-top: 3rem; font-size: .8125rem; color: var(--soft); }

@media (max-width: 40rem) {
  body { padding: 1.25rem 1rem 3rem; }
  .brand { margin-bottom: 1.25rem; }
  h1 { font-size: 1.5rem; }
  h2 { font-size: 1.0625rem; }
  .card { padding: 1.1rem; margin-left: -.5rem; margin-right: -.5rem; }
  .facts { grid-template-columns: 1fr; gap: .1rem; }
  .facts dd { margin-bottom: .6rem; }
  nav a { grid-template-columns: 1fr; }
  .diff tr { display: grid; grid-template-columns: 2.6rem minmax(0, 1fr); }
  .diff td, .diff td.n, .diff th { width: auto; padding: .2rem .4rem; }
  .diff .twin, .diff .empty { display: none; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  .card { break-inside: auto; border-radius: 0; padding: 1rem 0; border-width: 1px 0 0; }
  .kind, h2, h3 { break-after: avoid; }
  svg, tr, .do { break-inside: avoid; }
  .scroll { overflow: visible; }
  .scroll > svg { max-width: 100%; height: auto; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
)css";

}  // namespace

std::string_view html_style() { return kStyle; }

}  // namespace lockstep::reports::html
