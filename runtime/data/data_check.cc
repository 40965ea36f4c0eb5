#include "runtime/data/data_check.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "base/quantities.h"
#include "base/text.h"
#include "runtime/data/distributed_sampler.h"
#include "runtime/data/loader.h"
#include "runtime/data/unicode.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kBatch = 64;  // items that a worker loads at a time

void count_text(const std::string& text, const WordPiece* tokenizer, DataCheck& check) {
  const std::size_t size =
      tokenizer ? tokenizer->encode(text, kLargestMaxLength).size() : decode_utf8(text).size();
  const auto length = static_cast<std::int64_t>(size);
  const auto bin = std::lower_bound(kLengthBins.begin(), kLengthBins.end(), length);
  ++check.lengths[static_cast<std::size_t>(bin - kLengthBins.begin())];
  check.longest = std::max(check.longest, length);
}

void count_item(const ManifestItem& item, const WordPiece* tokenizer, DataCheck& check) {
  if (item.text) count_text(*item.text, tokenizer, check);
  ++(item.image && item.text ? check.both : item.image ? check.image_only : check.text_only);
}

std::string share(std::int64_t part, std::int64_t whole) {
  return fmt::format(
      "{} ({})", part,
      percent(whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole)));
}

std::string histogram(const DataCheck& check) {
  std::string out;
  std::int64_t low = 0;
  for (std::size_t bin = 0; bin < check.lengths.size(); ++bin) {
    const bool last = bin == kLengthBins.size();
    std::string range =
        last ? fmt::format("over {}", low - 1) : fmt::format("{}-{}", low, kLengthBins[bin]);
    if (check.lengths[bin] > 0) {
      range.resize(std::max<std::size_t>(range.size(), 10), ' ');
      out += fmt::format("  {} {}\n", range, check.lengths[bin]);
    }
    if (!last) low = kLengthBins[bin] + 1;
  }
  return out;
}

}  // namespace

DataCheck check_data(const Manifest& data, const WordPiece* tokenizer, int workers,
                     std::size_t most_reasons) {
  DataCheck check;
  check.items = data.size();
  check.misalignment = data.misalignment();
  check.notes = data.notes();
  check.tokens = tokenizer != nullptr;
  check.digest = data.map().digest();
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  ItemRecipe recipe{&data, nullptr, {}, kDefaultMaxLength};
  recipe.image.side = 1;  // only whether they can be read is of interest
  LoaderOptions options;
  options.workers = workers;
  options.prefetch = 4;
  options.keep_reasons = most_reasons;
  Loader loader(recipe, options, batches_of(all, kBatch, false));
  while (true) {
    const Result<std::optional<LoadedBatch>> batch = loader.next();
    LOCKSTEP_CHECK(batch, "a loader that skips bad items has no errors");
    if (!*batch) break;
    for (const SampleKey& key : (*batch)->keys) {
      count_item(data.item(key.index), tokenizer, check);
    }
  }
  check.unreadable = loader.counts().skipped;
  check.damaged = loader.counts().damaged;
  check.reasons = loader.counts().reasons;
  return check;
}

std::string check_report(const DataCheck& check) {
  const std::int64_t usable = check.items - check.unreadable;
  std::string out = fmt::format("items           {}\n", check.items);
  out += fmt::format("image and text  {}\n", share(check.both, usable));
  out += fmt::format("image only      {}\n", share(check.image_only, usable));
  out += fmt::format("text only       {}\n", share(check.text_only, usable));
  out += fmt::format("unreadable      {}\n", check.unreadable);
  for (const Error& reason : check.reasons) out += fmt::format("  {}\n", reason.summary());
  const auto shown = static_cast<std::int64_t>(check.reasons.size());
  if (shown < check.unreadable) {
    out += fmt::format("  and {} more\n", check.unreadable - shown);
  }
  if (check.damaged > 0) out += fmt::format("damaged images  {}\n", check.damaged);
  out += fmt::format("alignment       {}\n",
                     check.misalignment.empty() ? std::string("in order") : check.misalignment);
  for (const std::string& note : check.notes) out += fmt::format("note            {}\n", note);
  out += check.tokens ? "tokens a text   " : "characters a text ";
  out += fmt::format("at most {}\n{}", check.longest, histogram(check));
  out += fmt::format("digest          {}\n", hex(check.digest));
  return out;
}

}  // namespace lockstep::runtime
