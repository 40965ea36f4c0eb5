// Chakra's nodes as protocol buffers: a decoder of the fields that are needed, for the wire format
// (varint, 64-bit, length-delimited, 32-bit). Every length is checked before it is used.
#include <algorithm>
#include <limits>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "trace/formats/chakra/nodes.h"

namespace lockstep::trace {

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr std::size_t kLargestMessage = std::size_t{64} << 20U;

// A message's fields one after another.
class Fields {
 public:
  explicit Fields(std::string_view bytes)
      : bytes_(bytes),
        in_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  // The next field's number; 0 at the end, or where the bytes are not a message (failed()).
  int next() {
    tag_ = in_.ReadTag();
    if (tag_ == 0) {
      failed_ |= !in_.ConsumedEntireMessage();
      return 0;
    }
    return WireFormatLite::GetTagFieldNumber(tag_);
  }
  bool failed() const { return failed_; }

  bool is_varint() const { return wire() == WireFormatLite::WIRETYPE_VARINT; }
  bool is_bytes() const { return wire() == WireFormatLite::WIRETYPE_LENGTH_DELIMITED; }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    if (!in_.ReadVarint64(&value)) failed_ = true;
    return failed_ ? 0 : value;
  }

  // The content of a string or an embedded message.
  std::string_view bytes() {
    std::uint64_t length = 0;  // ReadVarint32 would cut off what is longer
    if (!in_.ReadVarint64(&length)) return fail();
    const auto at = static_cast<std::size_t>(in_.CurrentPosition());
    if (length > bytes_.size() - at || !in_.Skip(static_cast<int>(length))) return fail();
    return bytes_.substr(at, length);
  }

  void skip() {
    if (!WireFormatLite::SkipField(&in_, tag_)) failed_ = true;
  }

 private:
  WireFormatLite::WireType wire() const { return WireFormatLite::GetTagWireType(tag_); }
  std::string_view fail() {
    failed_ = true;
    return {};
  }

  std::string_view bytes_;
  CodedInputStream in_;
  std::uint32_t tag_ = 0;
  bool failed_ = false;
};

// A repeated integer: packed, or one of its values alone.
bool read_integers(Fields& fields, std::vector<std::uint64_t>& out) {
  if (fields.is_varint()) {
    out.push_back(fields.varint());
    return !fields.failed();
  }
  if (!fields.is_bytes()) return false;
  const std::string_view packed = fields.bytes();
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(packed.data()),
                      static_cast<int>(packed.size()));
  while (in.CurrentPosition() < static_cast<int>(packed.size())) {
    std::uint64_t value = 0;
    if (!in.ReadVarint64(&value)) return false;
    out.push_back(value);
  }
  return !fields.failed();
}

struct Attribute {
  std::string_view name, text;
  std::optional<std::int64_t> number;
  std::vector<bool> flags;
  std::vector<std::int64_t> list;
};

// AttributeProto: a name, and one of many kinds of value. Numbers are taken whatever their type.
bool parse_attribute(std::string_view message, Attribute& out) {
  enum : int { kName = 1, kInt32 = 7, kInt64 = 9, kUint32 = 11, kUint64 = 13, kSint32 = 15 };
  enum : int { kInt64List = 10, kSint64 = 17, kBool = 27, kBoolList = 28, kString = 29 };
  Fields fields(message);
  while (const int field = fields.next()) {
    if (field == kName && fields.is_bytes()) {
      out.name = fields.bytes();
    } else if (field == kString && fields.is_bytes()) {
      out.text = fields.bytes();
    } else if ((field == kSint32 || field == kSint64) && fields.is_varint()) {
      out.number = WireFormatLite::ZigZagDecode64(fields.varint());
    } else if ((field == kInt32 || field == kInt64 || field == kUint32 || field == kUint64 ||
                field == kBool) &&
               fields.is_varint()) {
      out.number = static_cast<std::int64_t>(fields.varint());
    } else if ((field == kBoolList || field == kInt64List) && fields.is_bytes()) {
      Fields list(fields.bytes());
      std::vector<std::uint64_t> values;
      while (list.next() != 0) {
        if (!read_integers(list, values)) return false;
      }
      if (list.failed()) return false;
      for (const std::uint64_t value : values) {
        if (field == kBoolList)
          out.flags.push_back(value != 0);
        else
          out.list.push_back(static_cast<std::int64_t>(value));
      }
    } else {
      fields.skip();
    }
    if (fields.failed()) return false;
  }
  return !fields.failed();
}

bool take_attribute(std::string_view message, ChakraNode& node) {
  Attribute attribute;
  if (!parse_attribute(message, attribute)) return false;
  constexpr std::size_t kLongestName = 1024;
  if (std::optional<std::int64_t>* const number = number_of(node, attribute.name)) {
    *number = attribute.number;
  } else if (std::string* const text = text_of(node, attribute.name)) {
    *text = attribute.text.substr(0, kLongestName);
    // Some writers number their groups.
    if (text == &node.group && attribute.text.empty() && attribute.number)
      *text = std::to_string(*attribute.number);
  } else if (attribute.name == "involved_dim") {
    node.involved = attribute.flags;
  } else if (attribute.name == "is_cpu_op" && attribute.number) {
    node.on_host = *attribute.number != 0;
  } else if (attribute.name == kChakraNanos && attribute.number) {
    node.nanos = std::max<std::int64_t>(0, *attribute.number);
  }
  return true;
}

bool take_inputs(std::string_view message, ChakraNode& node) {
  constexpr int kTypes = 3;
  constexpr std::size_t kLongestTypes = 4096;
  Fields fields(message);
  while (const int field = fields.next()) {
    if (field == kTypes && fields.is_bytes()) {
      node.input_types = fields.bytes().substr(0, kLongestTypes);
    } else {
      fields.skip();
    }
    if (fields.failed()) return false;
  }
  return !fields.failed();
}

ChakraType type_numbered(std::uint64_t number) {
  switch (number) {
    case 4:
      return ChakraType::compute;
    case 5:
      return ChakraType::send;
    case 6:
      return ChakraType::recv;
    case 7:
      return ChakraType::collective;
    default:
      return ChakraType::other;
  }
}

bool is_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c != 0x7F; });
}

}  // namespace

std::optional<std::string_view> ChakraMessages::next() {
  if (at_ >= bytes_.size()) return std::nullopt;
  const std::string_view rest = bytes_.substr(at_, 10);
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(rest.data()),
                      static_cast<int>(rest.size()));
  std::uint64_t length = 0;
  whole_ = false;  // until the message was seen to be there
  if (!in.ReadVarint64(&length)) return std::nullopt;
  const std::size_t begin = at_ + static_cast<std::size_t>(in.CurrentPosition());
  if (length > kLargestMessage || length > bytes_.size() - begin) return std::nullopt;
  at_ = begin + static_cast<std::size_t>(length);
  whole_ = true;
  return bytes_.substr(begin, static_cast<std::size_t>(length));
}

bool is_chakra_metadata(std::string_view message, std::vector<ChakraGroup>* groups) {
  enum : int { kVersion = 1, kAttribute = 2 };
  Fields fields(message);
  while (const int field = fields.next()) {
    if (!fields.is_bytes() || (field != kVersion && field != kAttribute)) return false;
    const std::string_view content = fields.bytes();
    if (fields.failed()) return false;
    if (field == kVersion && !is_text(content)) return false;
    Attribute attribute;
    if (field == kAttribute) {
      if (!parse_attribute(content, attribute) || attribute.name.empty()) return false;
      const bool group = attribute.name.starts_with(kChakraGroup);  // with any name
      if (!group && !is_text(attribute.name)) return false;
      if (group && groups != nullptr)
        groups->push_back(
            {std::string(attribute.name.substr(kChakraGroup.size())), std::move(attribute.list)});
    }
  }
  return !fields.failed();
}

bool parse_chakra_node(std::string_view message, ChakraNode& node, bool work) {
  enum : int { kId = 1, kName = 2, kType = 3, kData = 5, kMicros = 7, kInputs = 8, kAttr = 10 };
  constexpr std::size_t kLongestName = 256;
  std::vector<std::uint64_t> deps = std::move(node.deps);
  deps.clear();
  node = {};
  node.deps = std::move(deps);
  const auto communicates = [&] {
    return node.type != ChakraType::other && node.type != ChakraType::compute;
  };
  Fields fields(message);
  while (const int field = fields.next()) {
    bool good = true;
    if (field == kId && fields.is_varint()) {
      node.id = fields.varint();
    } else if (field == kName && fields.is_bytes()) {
      node.name = fields.bytes().substr(0, kLongestName);
    } else if (field == kType && fields.is_varint()) {
      node.type = type_numbered(fields.varint());
    } else if (field == kData) {
      good = read_integers(fields, node.deps);
    } else if (field == kMicros && fields.is_varint()) {
      const std::uint64_t micros = fields.varint();
      node.nanos = nanos_of_micros(static_cast<std::int64_t>(
          std::min<std::uint64_t>(micros, std::numeric_limits<std::int64_t>::max())));
    } else if (field == kInputs && fields.is_bytes() && communicates()) {
      good = take_inputs(fields.bytes(), node);
    } else if (field == kAttr && fields.is_bytes() &&
               (communicates() || (work && node.type == ChakraType::compute))) {
      good = take_attribute(fields.bytes(), node);
    } else {
      fields.skip();
    }
    if (!good || fields.failed()) return false;
  }
  return !fields.failed();
}

}  // namespace lockstep::trace
