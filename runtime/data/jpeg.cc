// JPEG through libturbojpeg: the decoder that Pillow uses, with the same settings (slow integer
// transform, smooth upsampling), so the same pixels.
#include <turbojpeg.h>

#include <memory>
#include <new>

#include <fmt/format.h>

#include "base/text.h"
#include "runtime/data/image.h"

namespace lockstep::runtime {
namespace {

constexpr int kCmykChannels = 4;

// Huffman codes take a bit for each block of 8 × 8 samples at least, and some component has half as
// many blocks as the picture has such squares, or more. Arithmetic codes may take less; small
// pictures are read in any case.
constexpr std::int64_t kMaxPixelsPerByte = 1024;
constexpr std::int64_t kSmallPicture = 4'000'000;  // pixels

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Handle = std::unique_ptr<void, Destroy>;

// True where the entropy-coded data of the last scan is not followed by an end-of-image marker.
// Inside such data 0xff is always followed by 0 or a restart marker.
bool lacks_end(std::string_view bytes) {
  const std::size_t scan = bytes.rfind("\xff\xda");
  return scan == std::string_view::npos || bytes.find("\xff\xd9", scan) == std::string_view::npos;
}

std::uint8_t scaled(int value, int by) {  // value · by / 255, rounded as Pillow rounds it
  const int product = value * by + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

// Adobe's CMYK is stored inverted: 0 is full ink.
std::vector<std::uint8_t> rgb_from_inverted_cmyk(const std::vector<std::uint8_t>& cmyk) {
  std::vector<std::uint8_t> rgb(cmyk.size() / kCmykChannels * kRgbChannels);
  for (std::size_t from = 0, to = 0; from < cmyk.size(); from += kCmykChannels) {
    const int paper = cmyk[from + 3];
    for (std::size_t channel = 0; channel < kRgbChannels; ++channel, ++to) {
      const int ink = 255 - cmyk[from + channel];
      rgb[to] = static_cast<std::uint8_t>(paper - scaled(ink, paper));
    }
  }
  return rgb;
}

Error unreadable_jpeg(const std::string& why, const std::string& name) {
  return {
      fmt::format("not a readable JPEG file: {}", why), {name}, "copy it again from its source"};
}

std::string last_message(void* handle) { return printable(tjGetErrorStr2(handle)); }

}  // namespace

Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name) {
  const Handle handle(tjInitDecompress());
  if (!handle) return Error{"no memory for a JPEG decoder", {name}, "use fewer workers"};
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto size = static_cast<unsigned long>(bytes.size());
  RgbImage image;
  int subsampling = 0;
  int colours = 0;
  if (tjDecompressHeader3(handle.get(), data, size, &image.width, &image.height, &subsampling,
                          &colours) != 0 &&
      tjGetErrorCode(handle.get()) == TJERR_FATAL) {
    return unreadable_jpeg(last_message(handle.get()), name);
  }
  if (const Status fits = check_image_size(image.width, image.height, name); !fits) {
    return fits.error();
  }
  const std::int64_t declared = std::int64_t{image.width} * image.height;
  if (declared > kSmallPicture &&
      static_cast<std::size_t>(declared / kMaxPixelsPerByte) > bytes.size()) {
    return unreadable_jpeg("its header promises more than it can hold", name);
  }
  const bool four = colours == TJCS_CMYK || colours == TJCS_YCCK;
  const auto pixels =
      static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
  try {
    image.pixels.resize(pixels * static_cast<std::size_t>(four ? kCmykChannels : kRgbChannels));
    // TJFLAG_LIMITSCANS: a few kilobytes can ask for hours of passes over the picture.
    if (tjDecompress2(handle.get(), data, size, image.pixels.data(), image.width, 0, image.height,
                      four ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) != 0) {
      if (tjGetErrorCode(handle.get()) == TJERR_FATAL) {
        return unreadable_jpeg(last_message(handle.get()), name);
      }
      if (lacks_end(bytes)) return unreadable_jpeg("it is cut off", name);
      image.damage = last_message(handle.get());
    }
    if (four) image.pixels = rgb_from_inverted_cmyk(image.pixels);
  } catch (const std::bad_alloc&) {
    return Error{"no memory for the image", {name}, "use fewer workers"};
  }
  return image;
}

}  // namespace lockstep::runtime
