// lockstep-worker data: checks a data set, tokenizes, shows what a sampler draws, decodes an image,
// and writes the built-in data set as files.
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "base/text.h"
#include "base/threads.h"
#include "runtime/data/data_check.h"
#include "runtime/data/distributed_sampler.h"
#include "runtime/data/npy.h"
#include "runtime/data/shapes.h"
#include "runtime/data/transform.h"
#include "runtime/worker/commands.h"

namespace lockstep::runtime {
namespace {

// Exit statuses, as kDataExamples documents them.
constexpr int kFine = 0;
constexpr int kFound = 1;
constexpr int kBad = 2;

constexpr const char* kDataExamples = R"(Examples:
  what is in a data set, and which items cannot be read:
    lockstep-worker data check train/ --vocab vocab.txt
    lockstep-worker data check 'shards/train-{000..007}.tar'
  token ids of texts:
    echo '{"text": "a red circle"}' |
      lockstep-worker data tokenize --vocab vocab.txt
  which items each rank reads in an epoch:
    lockstep-worker data sampler --n 10 --world-size 3 --seed 0 --epoch 1
  an image as the encoder sees it:
    lockstep-worker data image cat.png --npy cat.npy

Exit status: 0 fine; 1 `check` found items that cannot be used; 2 bad usage,
or a file that cannot be read.
)";

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.str().c_str());
  return kBad;
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// What was printed may still have to reach a full disk.
int finish(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  return fail({"cannot write to the standard output", {}, "is the disk full?"});
}

Result<WordPiece> open_tokenizer(const std::string& file) {
  Result<Vocabulary> vocabulary = Vocabulary::open(file);
  if (!vocabulary) return vocabulary.error();
  return WordPiece(std::move(*vocabulary));
}

}  // namespace

struct DataCommands::Options {
  CLI::App* check = nullptr;
  CLI::App* tokenize = nullptr;
  CLI::App* sampler = nullptr;
  CLI::App* image = nullptr;
  CLI::App* shapes = nullptr;

  std::vector<std::string> manifest;
  std::string vocab;
  std::size_t show = 20;
  int workers = static_cast<int>(processors());
  std::size_t max_length = kDefaultMaxLength;
  SamplerOptions sampling;
  bool no_shuffle = false;
  std::string image_file, npy_file, folder;
  ImageTransform transform;
  ShapesFiles files;

  int run_check() const;
  int run_tokenize() const;
  int run_sampler() const;
  int run_image() const;
};

// With a vocabulary texts are tokenized, and those that are too long counted; without one they are
// only read.
int DataCommands::Options::run_check() const {
  std::optional<WordPiece> tokenizer;
  if (!vocab.empty()) {
    Result<WordPiece> opened = open_tokenizer(vocab);
    if (!opened) return fail(opened.error());
    tokenizer.emplace(std::move(*opened));
  }
  const Result<Manifest> data = Manifest::open(manifest);
  if (!data) return fail(data.error());
  const DataCheck result = check_data(*data, tokenizer ? &*tokenizer : nullptr, workers, show);
  print(check_report(result));
  return finish(result.is_fine() ? kFine : kFound);
}

// {"text": "a red circle"} → {"ids":[101,1037,2417,4418,102],"length":5}, one line for each line of
// the input.
int DataCommands::Options::run_tokenize() const {
  const Result<WordPiece> tokenizer = open_tokenizer(vocab);
  if (!tokenizer) return fail(tokenizer.error());
  LineReader lines(stdin, "standard input");
  while (true) {
    const Result<std::optional<std::string>> line = lines.next();
    if (!line) return fail(line.error());
    if (!*line) return finish(kFine);
    if ((*line)->find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto object = nlohmann::json::parse(to_utf8(**line), nullptr, false);
    // Answers so far are written before the error: they belong to good lines.
    const bool has_text = object.is_object() && object.contains("text");
    if (!has_text || !object["text"].is_string()) {
      finish(kFine);
      return fail({"not an object with a text",
                   {"standard input", lines.line()},
                   "one JSON object a line: {\"text\": \"a red circle\"}"});
    }
    const auto ids = tokenizer->encode(object["text"].get_ref<const std::string&>(), max_length);
    print(nlohmann::ordered_json{{"ids", ids}, {"length", ids.size()}}.dump() + "\n");
  }
}

// {"rank":0,"indices":[4,7,2,0]}, one line for each rank. PyTorch's DistributedSampler gives the
// same for the same seed and epoch, so the two can be compared.
int DataCommands::Options::run_sampler() const {
  SamplerOptions chosen = sampling;
  chosen.shuffle = !no_shuffle;
  const Result<DistributedSampler> sampled = DistributedSampler::make(chosen);
  if (!sampled) return fail(sampled.error());
  for (int rank = 0; rank < chosen.world_size; ++rank) {
    print(nlohmann::ordered_json{{"rank", rank}, {"indices", sampled->indices(rank)}}.dump() +
          "\n");
  }
  return finish(kFine);
}

// A damaged image (a JPEG that is cut off) is written as far as it was decoded, with a warning, as
// the loader would train on it.
int DataCommands::Options::run_image() const {
  const Result<std::string> bytes = read_file(image_file, kLargestImageFile);
  if (!bytes) return fail(bytes.error());
  const Result<RgbImage> decoded = decode_image(*bytes, image_file);
  if (!decoded) return fail(decoded.error());
  std::vector<float> pixels(transform.floats());
  transform_image(*decoded, transform, pixels);
  const std::vector<std::int64_t> shape = {kRgbChannels, transform.side, transform.side};
  if (const Status written = write_npy(npy_file, pixels, shape); !written) {
    return fail(written.error());
  }
  if (!decoded->damage.empty()) {
    std::fprintf(stderr, "%s: warning: %s\n", printable(image_file).c_str(),
                 decoded->damage.c_str());
  }
  return kFine;
}

DataCommands::DataCommands(CLI::App& app) : options_(std::make_unique<Options>()) {
  Options& o = *options_;
  command_ = app.add_subcommand("data", "look at data sets and at their preprocessing");
  command_->footer(kDataExamples);
  command_->require_subcommand(1);

  o.check = command_->add_subcommand("check", "read all items; say which cannot be used");
  o.check->add_option("MANIFEST", o.manifest, "folder, JSONL file, or tar shards")->required();
  o.check->add_option("--vocab", o.vocab, "vocab.txt; lengths are in tokens then");
  o.check->add_option("--show", o.show, "reasons to print")->capture_default_str();
  o.check->add_option("--workers", o.workers, "threads")->check(CLI::Range(1, 256));

  o.tokenize = command_->add_subcommand("tokenize", "token ids of {\"text\": ...} lines on stdin");
  o.tokenize->add_option("--vocab", o.vocab, "vocab.txt, a piece a line")->required();
  o.tokenize->add_option("--max-length", o.max_length, "tokens, with [CLS] and [SEP]")
      ->check(CLI::Range(std::size_t{2}, kLargestMaxLength))
      ->capture_default_str();

  o.sampler = command_->add_subcommand("sampler", "items of each rank: DistributedSampler");
  o.sampler->add_option("--n", o.sampling.items, "items of the data set")->required();
  o.sampler->add_option("--world-size", o.sampling.world_size, "ranks")
      ->required()
      ->check(CLI::Range(1, 1'000'000));
  o.sampler->add_option("--seed", o.sampling.seed, "seed")->capture_default_str();
  o.sampler->add_option("--epoch", o.sampling.epoch, "the epoch, as in set_epoch()")
      ->capture_default_str();
  o.sampler->add_flag("--no-shuffle", o.no_shuffle, "in the order of the data set");
  o.sampler->add_flag("--drop-last", o.sampling.drop_last,
                      "leave out the last items, not repeat some");

  o.image =
      command_->add_subcommand("image", "write an image as the encoder gets it, as a .npy file");
  o.image->add_option("FILE", o.image_file, "JPEG or PNG")->required();
  o.image->add_option("--npy", o.npy_file, "file to write: float32 [3, side, side]")->required();
  o.image->add_option("--side", o.transform.side, "pixels")
      ->check(CLI::Range(1, kMaxSide))
      ->capture_default_str();

  o.shapes = command_->add_subcommand("shapes", "write the built-in data set as files");
  o.shapes->add_option("FOLDER", o.folder, "folder to make")->required();
  o.shapes->add_option("--items", o.files.items, "items")->capture_default_str();
  o.shapes->add_option("--side", o.files.side, "pixels")->capture_default_str();
  o.shapes->add_option("--seed", o.files.seed, "seed")->capture_default_str();
  o.shapes->add_option("--text-only", o.files.text_only, "share without a picture, 0 to 1")
      ->capture_default_str();
  for (CLI::App* command : {o.check, o.tokenize, o.sampler, o.image, o.shapes}) {
    command->footer(kDataExamples);
  }
}

DataCommands::~DataCommands() = default;

bool DataCommands::chosen() const { return command_->parsed(); }

int DataCommands::run() const {
  // Blocked for the watchdog of a rank. This command has none, so the signals must end it again.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_DFL);

  const Options& o = *options_;
  if (o.check->parsed()) return o.run_check();
  if (o.tokenize->parsed()) return o.run_tokenize();
  if (o.sampler->parsed()) return o.run_sampler();
  if (o.image->parsed()) return o.run_image();
  const Status written = write_shapes(o.folder, o.files);
  return written ? kFine : fail(written.error());
}

}  // namespace lockstep::runtime
