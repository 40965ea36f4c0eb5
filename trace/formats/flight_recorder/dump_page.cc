#include "trace/formats/flight_recorder/dump_page.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kHeading = "<h2>Rank ";

// Text of an HTML page with its escapes resolved, as Jinja writes them.
std::string unescaped(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 6> kEscapes = {{{"&#34;", '"'},
                                                                          {"&quot;", '"'},
                                                                          {"&#39;", '\''},
                                                                          {"&lt;", '<'},
                                                                          {"&gt;", '>'},
                                                                          {"&amp;", '&'}}};
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto known =
        text.front() != '&'
            ? kEscapes.end()
            : std::find_if(kEscapes.begin(), kEscapes.end(),
                           [&](const auto& escape) { return text.starts_with(escape.first); });
    out += known == kEscapes.end() ? text.front() : known->second;
    text.remove_prefix(known == kEscapes.end() ? 1 : known->first.size());
  }
  return out;
}

}  // namespace

bool looks_like_dump_page(std::string_view bytes) {
  constexpr std::size_t kLooked = std::size_t{64} << 10U;
  const std::string_view head = bytes.substr(0, kLooked);
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == kNpos || head[first] != '<') return false;
  const std::size_t rank = head.find(kHeading);
  return rank != kNpos && head.find("<pre>", rank) != kNpos &&
         (head.find("pg_config", rank) != kNpos || head.find("pg_status", rank) != kNpos);
}

std::vector<DumpOnPage> dumps_on_page(std::string_view bytes) {
  constexpr std::string_view kBegin = "<pre>";
  constexpr std::string_view kEnd = "</pre>";
  std::vector<DumpOnPage> out;
  for (std::size_t at = bytes.find(kHeading); at != kNpos;) {
    const std::size_t next = bytes.find(kHeading, at + kHeading.size());
    const std::string_view section = bytes.substr(at, next == kNpos ? kNpos : next - at);
    at = next;
    // <h2>Rank 3: node7:25999</h2> <pre>…</pre>, or "Failed to fetch …" before any <pre>.
    const auto rank = number_after(section.substr(0, 64), kHeading);
    const std::size_t begin = section.find(kBegin);
    const bool failed = section.substr(0, begin).find("Failed to fetch") != kNpos;
    if (!rank || !is_possible_rank(*rank, kMaxWorldSize) || begin == kNpos || failed) continue;
    const std::size_t end = section.find(kEnd, begin);
    DumpOnPage dump;
    dump.rank = Rank(static_cast<std::int32_t>(*rank));
    dump.json = unescaped(
        section.substr(begin + kBegin.size(), end == kNpos ? kNpos : end - begin - kBegin.size()));
    const std::size_t colon = section.find(": ");
    const std::size_t close = section.find("</h2>");
    if (colon != kNpos && close != kNpos && colon + 2 < close && close - colon < 256) {
      dump.host = unescaped(section.substr(colon + 2, close - colon - 2));
    }
    out.push_back(std::move(dump));
  }
  return out;
}

}  // namespace lockstep::trace
