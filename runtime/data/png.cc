// PNG through libpng. Its errors jump (longjmp) over frames of ours, so everything that owns memory
// lives in the caller of the frame that sets the jump, never in that frame itself.
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "base/text.h"
#include "runtime/data/image.h"

namespace lockstep::runtime {
namespace {

// Deflate packs at most 1032:1.
constexpr std::size_t kMaxInflation = 1032;

struct Reading {
  std::string_view left;  // what libpng has not asked for yet
  std::string message;    // libpng's, of what stopped it
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::vector<png_bytep> rows;

  Reading() = default;
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() { png_destroy_read_struct(&png, &info, nullptr); }
};

void stop(png_structp png, png_const_charp message) {
  auto* const reading = static_cast<Reading*>(png_get_error_ptr(png));
  try {
    reading->message = message;
  } catch (const std::bad_alloc&) {
    // An empty message then.
  }
  png_longjmp(png, 1);
}

void ignore_warning(png_structp /*png*/, png_const_charp /*message*/) {}

void take(png_structp png, png_bytep to, std::size_t bytes) {
  auto* const reading = static_cast<Reading*>(png_get_io_ptr(png));
  if (bytes > reading->left.size()) png_error(png, "it is cut off");
  std::memcpy(to, reading->left.data(), bytes);
  reading->left.remove_prefix(bytes);
}

// Reads up to the pixels. False: `message` says why.
bool read_header(Reading& reading) {
  if (setjmp(png_jmpbuf(reading.png)) != 0) return false;
  png_set_read_fn(reading.png, &reading, take);
  png_set_user_limits(reading.png, 0x7fffffff, 0x7fffffff);  // check_image_size bounds the product
  png_read_info(reading.png, reading.info);
  return true;
}

// Asks for plain 8-bit RGB. Allocates what a few rows take.
bool ask_for_rgb(Reading& reading) {
  png_structp const png = reading.png;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_strip_16(png);  // the upper byte
  png_set_packing(png);
  const int colour = png_get_color_type(png, reading.info);
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if ((colour & PNG_COLOR_MASK_COLOR) == 0) {
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
  }
  png_set_strip_alpha(png);  // also what png_set_palette_to_rgb makes of transparent entries
  png_set_interlace_handling(png);
  png_read_update_info(png, reading.info);
  return true;
}

bool read_rows(Reading& reading) {
  if (setjmp(png_jmpbuf(reading.png)) != 0) return false;
  png_read_image(reading.png, reading.rows.data());
  return true;
}

Error unreadable_png(const Reading& reading, const std::string& name) {
  return {fmt::format("not a readable PNG file: {}", printable(reading.message)),
          {name},
          "copy it again from its source"};
}

Error no_memory(const std::string& name) {
  return {"no memory for the image", {name}, "use fewer workers"};
}

}  // namespace

Result<RgbImage> decode_png(std::string_view bytes, const std::string& name) {
  Reading reading;
  reading.left = bytes;
  reading.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, stop, ignore_warning);
  if (reading.png != nullptr) reading.info = png_create_info_struct(reading.png);
  if (reading.info == nullptr) return no_memory(name);
  if (!read_header(reading)) return unreadable_png(reading, name);

  RgbImage image;
  const std::int64_t width = png_get_image_width(reading.png, reading.info);
  const std::int64_t height = png_get_image_height(reading.png, reading.info);
  if (const Status fits = check_image_size(width, height, name); !fits) return fits.error();
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  // A pixel takes a bit at least.
  if (static_cast<std::size_t>(width * height) / 8 / kMaxInflation > bytes.size()) {
    reading.message = "its header promises more than it can hold";
    return unreadable_png(reading, name);
  }
  if (!ask_for_rgb(reading)) return unreadable_png(reading, name);
  if (png_get_rowbytes(reading.png, reading.info) != image.row_bytes()) {
    reading.message = "a kind of picture that PNG does not have";
    return unreadable_png(reading, name);
  }
  try {
    image.pixels.resize(image.row_bytes() * static_cast<std::size_t>(height));
    reading.rows.resize(static_cast<std::size_t>(height));
  } catch (const std::bad_alloc&) {
    return no_memory(name);
  }
  for (std::size_t row = 0; row < reading.rows.size(); ++row) {
    reading.rows[row] = image.pixels.data() + row * image.row_bytes();
  }
  if (!read_rows(reading)) return unreadable_png(reading, name);
  return image;
}

Result<std::string> encode_png(const RgbImage& image) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr) ==
      0) {
    return Error{fmt::format("cannot encode a PNG file: {}", header.message), {}, ""};
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace lockstep::runtime
