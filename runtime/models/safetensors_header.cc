#include "runtime/models/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kMaxDimensions = 64;  // as many as LibTorch indexes
constexpr const char* kHeaderFix = "export or download the file again: it is damaged";

struct TypeRow {
  StoredType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<TypeRow, 10> kStoredTypes = {{{StoredType::F64, "F64", 8},
                                                   {StoredType::F32, "F32", 4},
                                                   {StoredType::F16, "F16", 2},
                                                   {StoredType::BF16, "BF16", 2},
                                                   {StoredType::I64, "I64", 8},
                                                   {StoredType::I32, "I32", 4},
                                                   {StoredType::I16, "I16", 2},
                                                   {StoredType::I8, "I8", 1},
                                                   {StoredType::U8, "U8", 1},
                                                   {StoredType::BOOL, "BOOL", 1}}};

const TypeRow& row_of(StoredType type) { return kStoredTypes[static_cast<std::size_t>(type)]; }

std::optional<StoredType> stored_type_named(std::string_view name) {
  for (const TypeRow& row : kStoredTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

// A name from the file for a message: in single quotes, short and printable.
std::string in_quotes(std::string_view name) {
  constexpr std::size_t kMax = 80;
  const bool cut = name.size() > kMax;
  return fmt::format("'{}{}", printable(name.substr(0, kMax)), cut ? "…'" : "'");
}

// Takes nlohmann-json's events, so that no tree is built from what a file says: a header of nothing
// but brackets stops at the first one too many.
class HeaderEvents {
 public:
  explicit HeaderEvents(SafetensorsHeader& header) : header_(header) {}

  const std::string& problem() const { return problem_; }

  bool null() { return unexpected("null"); }
  bool boolean(bool /*value*/) { return unexpected("a truth value"); }
  bool number_integer(std::int64_t /*value*/) { return unexpected("a negative number"); }
  bool number_float(double /*value*/, const std::string& /*text*/) {
    return unexpected("a number with a fraction, or one too large");
  }
  bool binary(nlohmann::json::binary_t& /*value*/) { return unexpected("bytes"); }

  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return unexpected("a number too large");
    }
    if (state_ == State::kShape) {
      if (tensor_.shape.size() == kMaxDimensions) return fail("it has more than 64 dimensions");
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (state_ == State::kOffsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
      return true;
    }
    return unexpected("a number");
  }

  bool string(std::string& text) {
    if (state_ == State::kMetadata) {
      header_.metadata[field_] = text;
      return true;
    }
    if (state_ != State::kTensor || field_ != "dtype") return unexpected("a text");
    const auto type = stored_type_named(text);
    if (!type) {
      return fail(
          fmt::format("its type {} is none of F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL",
                      in_quotes(text)));
    }
    tensor_.type = *type;
    return true;
  }

  bool start_object(std::size_t /*unknown*/) {
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop) {
      state_ = tensor_.name == "__metadata__" ? State::kMetadata : State::kTensor;
      fields_.clear();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) {
    if (state_ == State::kTop) {
      if (!names_.insert(name).second)
        return fail_top(fmt::format("the name {} appears twice", in_quotes(name)));
      tensor_ = StoredTensor();
      tensor_.name = name;
      offsets_ = 0;
      return true;
    }
    field_ = name;
    if (!fields_.insert(name).second)
      return fail(fmt::format("its {} appears twice", in_quotes(name)));
    if (state_ == State::kTensor && name != "dtype" && name != "shape" && name != "data_offsets") {
      return fail(fmt::format("it has an unknown {}", in_quotes(name)));
    }
    return true;
  }

  bool start_array(std::size_t /*unknown*/) {
    if (state_ != State::kTensor || field_ == "dtype") return unexpected("a list");
    state_ = field_ == "shape" ? State::kShape : State::kOffsets;
    return true;
  }

  bool end_array() {
    if (state_ == State::kOffsets && offsets_ != 2) return fail("'data_offsets' needs two numbers");
    state_ = State::kTensor;
    return true;
  }

  bool end_object() {
    if (state_ == State::kTensor) {
      if (fields_.size() != 3) return fail("it needs 'dtype', 'shape' and 'data_offsets'");
      header_.tensors.push_back(std::move(tensor_));
    }
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    return fail_top(fmt::format("the header is not JSON at byte {}", position));
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool fail_top(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool fail(const std::string& problem) {
    return fail_top(fmt::format("tensor {}: {}", in_quotes(tensor_.name), problem));
  }
  bool unexpected(const std::string& what) {
    if (state_ == State::kStart || state_ == State::kEnd) {
      return fail_top(fmt::format("the header is {}, not an object", what));
    }
    const std::string at = state_ == State::kTop ? "" : fmt::format(" in {}", in_quotes(field_));
    return fail(fmt::format("{}{} where the format allows none", what, at));
  }

  SafetensorsHeader& header_;
  State state_ = State::kStart;
  StoredTensor tensor_;  // the one being read; its name is the last key of the outer object
  std::string field_;    // the last key of the inner object
  int offsets_ = 0;      // how many of the two were read
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
  std::string problem_;
};

// Values × bytes of one; nothing where that is too large for any file.
std::optional<std::uint64_t> bytes_needed(const StoredTensor& tensor) {
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t bytes = bytes_of(tensor.type);
  for (const std::int64_t side : tensor.shape) {
    const auto factor = static_cast<std::uint64_t>(side);
    if (bytes > kMax / factor) return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

Error bad(const StoredTensor& tensor, const std::string& problem) {
  return {fmt::format("tensor {}: {}", in_quotes(tensor.name), problem), {}, kHeaderFix};
}

// Sorted by their data, each tensor begins where the one before it ends, and the last one ends the
// data: neither overlap nor hole is possible then.
Status check_offsets(const std::vector<StoredTensor>& tensors, std::uint64_t data_bytes) {
  std::uint64_t position = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::string at = fmt::format("{} to {}", tensor.begin, tensor.end);
    if (tensor.end < tensor.begin)
      return bad(tensor, fmt::format("its data ends before it begins: {}", at));
    if (tensor.end > data_bytes) {
      return bad(
          tensor,
          fmt::format(
              "its data, bytes {}, lies beyond the end of the file, which has {} bytes of data", at,
              data_bytes));
    }
    const auto needed = bytes_needed(tensor);
    if (!needed || *needed != tensor.bytes()) {
      return bad(tensor,
                 fmt::format("its data has {} bytes, but {} {} takes {}", tensor.bytes(),
                             name_of(tensor.type), shape_in_words(tensor.shape),
                             needed ? std::to_string(*needed) : "more than a file can hold"));
    }
    if (tensor.begin != position) {
      const char* what = tensor.begin < position ? "overlaps the one before it"
                                                 : "leaves a hole after the one before it";
      return bad(tensor, fmt::format("its data {}: it begins at byte {}, the other ends at {}",
                                     what, tensor.begin, position));
    }
    position = tensor.end;
  }
  if (position != data_bytes) {
    return Error{fmt::format("{} bytes at the end belong to no tensor", data_bytes - position),
                 {},
                 kHeaderFix};
  }
  return Status::ok();
}

}  // namespace

std::string_view name_of(StoredType type) { return row_of(type).name; }

std::size_t bytes_of(StoredType type) { return row_of(type).bytes; }

std::string shape_in_words(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json,
                                                   std::uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') {
    return Error{"the header does not begin with '{'", {}, "name a safetensors file"};
  }
  SafetensorsHeader header;
  HeaderEvents events(header);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events)) {
    return Error{events.problem(), {}, kHeaderFix};
  }
  // Empty tensors share their offset with a neighbour: they come before it.
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const StoredTensor& a, const StoredTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  if (const Status fits = check_offsets(header.tensors, data_bytes); !fits) return fits.error();
  return header;
}

}  // namespace lockstep::runtime
