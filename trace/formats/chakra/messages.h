// The protobuf messages of a Chakra execution trace, one at a time. Internal to its reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::trace {

enum class ChakraType : std::uint8_t { other, send, recv, collective };

// What is used of a Node. Its lists are reused from node to node.
struct ChakraNode {
  std::uint64_t id = 0;
  ChakraType type = ChakraType::other;
  std::vector<std::uint64_t> deps;  // data_deps: the ones that Chakra's feeder waits for
  std::string name;
  std::string input_types;  // "['Tensor(float)']"
  std::optional<std::int64_t> comm_type, comm_size, src, dst, tag;
  std::string group;            // pg_name
  std::vector<bool> involved;   // involved_dim
  std::optional<bool> on_host;  // is_cpu_op
};

// Cuts a file into its messages.
class ChakraMessages {
 public:
  explicit ChakraMessages(std::string_view bytes) : bytes_(bytes) {}

  // The bytes of the next message; nothing at the end of the file, or where it is cut off or is no
  // message (whole() tells).
  std::optional<std::string_view> next();
  bool whole() const { return whole_; }
  std::size_t position() const { return at_; }  // of what comes next

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool whole_ = true;
};

// Both are false where the bytes are no such message.
bool is_chakra_metadata(std::string_view message);
bool parse_chakra_node(std::string_view message, ChakraNode& node);

}  // namespace lockstep::trace
