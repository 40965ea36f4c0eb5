// What to do about an error, by what its message says.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep::verify {

// What to do about an end for that reason.
struct Advice {
  std::string fix;   // a sentence; empty: the rule's own
  std::string next;  // a shell command; empty: none
};
// `text`: the exception, or what the launcher said.
Advice advice_about(std::string_view text, const std::string& host);

// Precedes the address in PyTorch's message about a store that does not answer:
// "… while trying to connect to (10.0.0.7, 29500)".
inline constexpr std::string_view kStoreAddress = "while trying to connect to (";

// "node4" of "closed by remote peer node4<42830>", "10.0.0.4" of "[10.0.0.4]:8021"; empty where the
// text names no peer, or one that a shell could take for something else.
std::string peer_in(std::string_view text);

// Whether nothing answers at a peer's address at all, so that no process there needs to have ended.
bool is_unreachable(std::string_view text);

// Whether the text has one of the words.
bool mentions_any(std::string_view text, std::initializer_list<std::string_view> signs);

}  // namespace lockstep::verify
