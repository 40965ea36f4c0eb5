// How many images a second the loader gives: a data set's images, decoded, scaled to a square,
// normalised and put into batches, epoch after epoch. Prints the images a second of the last epoch
// and the processor's milliseconds for each image; the epochs before it warm the caches.
#include <sys/resource.h>

#include <cstdio>
#include <numeric>

#include <CLI/CLI.hpp>

#include "base/clock.h"
#include "runtime/data/distributed_sampler.h"
#include "runtime/data/loader.h"
#include "runtime/data/npy.h"

namespace lockstep::runtime {
namespace {

struct Options {
  std::string source;
  int workers = 1;
  int batch = 32;
  int prefetch = 2;
  int epochs = 2;
  int side = 224;
  std::string first;
};

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Images that one epoch gave; -1 after a message.
std::int64_t epoch(const Manifest& data, const Options& options) {
  ItemRecipe recipe{&data, nullptr, {}, kDefaultMaxLength};
  recipe.image.side = options.side;
  LoaderOptions how;
  how.workers = options.workers;
  how.prefetch = static_cast<std::size_t>(options.prefetch);
  how.on_error = LoaderOptions::OnError::stop;
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  Loader loader(recipe, how, batches_of(all, static_cast<std::size_t>(options.batch), false));
  std::int64_t images = 0;
  while (true) {
    const Result<std::optional<LoadedBatch>> batch = loader.next();
    if (!batch) {
      std::fprintf(stderr, "%s\n", batch.error().str().c_str());
      return -1;
    }
    if (!*batch) return images;
    images += static_cast<std::int64_t>((*batch)->image_rows.size());
  }
}

int write_first(const Manifest& data, const Options& options) {
  ItemRecipe recipe{&data, nullptr, {}, kDefaultMaxLength};
  recipe.image.side = options.side;
  std::vector<float> pixels(recipe.image.floats());
  const Result<LoadedItem> item = load_item(recipe, 0, pixels);
  const std::vector<std::int64_t> shape = {kRgbChannels, options.side, options.side};
  const Status written = item ? write_npy(options.first, pixels, shape) : Status(item.error());
  if (written) return 0;
  std::fprintf(stderr, "%s\n", written.error().str().c_str());
  return 2;
}

int run(const Options& options) {
  const Result<Manifest> data = Manifest::open({options.source});
  if (!data) {
    std::fprintf(stderr, "%s\n", data.error().str().c_str());
    return 2;
  }
  if (!options.first.empty()) return write_first(*data, options);
  for (int i = 0; i + 1 < options.epochs; ++i) {
    if (epoch(*data, options) < 0) return 2;
  }
  const std::int64_t start = monotonic_nanos();
  const double processor = processor_seconds();
  const std::int64_t images = epoch(*data, options);
  if (images < 0) return 2;
  const double seconds = 1e-9 * static_cast<double>(monotonic_nanos() - start);
  std::printf("%.2f %.3f\n", static_cast<double>(images) / seconds,
              1e3 * (processor_seconds() - processor) / static_cast<double>(images));
  return 0;
}

}  // namespace
}  // namespace lockstep::runtime

int main(int argc, char** argv) {
  lockstep::runtime::Options options;
  CLI::App app("Prints the images a second that the loader gives, and CPU ms for each.");
  app.add_option("source", options.source, "a folder, JSONL file or tar shards")->required();
  app.add_option("--workers", options.workers, "threads")->check(CLI::Range(1, 256));
  app.add_option("--batch", options.batch, "images")->check(CLI::Range(1, 4096));
  app.add_option("--prefetch", options.prefetch, "batches")->check(CLI::Range(1, 64));
  app.add_option("--epochs", options.epochs, "the last one counts")->check(CLI::Range(1, 100));
  app.add_option("--side", options.side, "pixels")->check(CLI::Range(1, 4096));
  app.add_option("--first", options.first, "write the first image as an .npy file, and end");
  CLI11_PARSE(app, argc, argv);
  return lockstep::runtime::run(options);
}
