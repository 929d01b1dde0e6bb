// Every way in which overlap-ep declines a graph, met from random regions that are spoiled in one
// place.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <optional>

#include "base/error.h"
#include "ir/text/text.h"
#include "passes/overlap_ep/overlap_ep.h"
#include "passes/overlap_ep/overlap_ep_random_region.h"

namespace epweave {
namespace {

using testing::Random, testing::RegionGenerator;

// One line of the region's text, changed by `from` -> `to`; the line is the first or the last that
// has `line` in it. Nothing where there is none.
struct Edit {
  const char* line;
  const char* from;
  const char* to;
};

std::optional<std::string> apply(std::string text, const Edit& edit) {
  const std::size_t at = text.find(edit.line);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t from = text.find(edit.from, at);
  if (from == std::string::npos || from > text.find('\n', at)) return std::nullopt;
  return text.replace(from, std::string_view(edit.from).size(), edit.to);
}

std::string append(std::string text, const std::string& lines) {
  return text.insert(text.rfind("  output("), lines);
}

// The chunk record of a line: " chunk(@layers.0 body 0 fwd)".
std::string chunk_of(const std::string& text, const std::string& line) {
  const std::size_t begin = text.find(" chunk(", text.find(line));
  return text.substr(begin, text.find('\n', begin) - begin);
}

struct Spoil {
  const char* refusal;
  bool needs_counts;
  std::function<std::optional<std::string>(const std::string&)> spoil;
};

const std::vector<Spoil>& spoils() {
  static const std::vector<Spoil> all = {
      {"overlap-ep.label-misplaced", false,
       [](const std::string& text) {
         return append(text, "  %label = aten.neg.default(%x) : f32[4, 8] token_exchange=dispatch" +
                                 chunk_of(text, "%launch0_0 =") + "\n");
       }},
      {"overlap-ep.wait-count", false,
       [](const std::string& text) {
         return append(text, "  %again = _c10d_functional.wait_tensor.default(%launch0_1) : f32[4, 8]" +
                                 chunk_of(text, "%launch0_1 =") + "\n");
       }},
      {"overlap-ep.part-missing", false,
       [](std::string text) {
         for (std::size_t at = 0; (at = text.find(" body 0 ", at)) != std::string::npos;)
           text.replace(at, 8, " body 9 ");
         return text;
       }},
      {"overlap-ep.exchanges-missing", false,
       [](std::string text) -> std::optional<std::string> {
         for (const char* label : {" token_exchange=dispatch", " token_exchange=combine"})
           for (std::size_t at = 0; (at = text.find(label, at)) != std::string::npos;) {
             const bool is_of_first =
                 text.substr(at, text.find('\n', at) - at).find(" body 0 ") != std::string::npos;
             if (is_of_first) text.erase(at, std::string_view(label).size());
             at += is_of_first ? 0 : 1;
           }
         return text;
       }},
      {"overlap-ep.exchange-count", false,
       [](const std::string& text) {
         const std::string chunk = chunk_of(text, "%launch0_0 =");
         return append(text,
                       "  %more = _c10d_functional.all_to_all_single.default(%x, [], [], \"ep\") : f32[4, 8] "
                       "token_exchange=combine" +
                           chunk + "\n  %got = _c10d_functional.wait_tensor.default(%more) : f32[4, 8]" +
                           chunk + "\n");
       }},
      {"overlap-ep.exchange-labels", false,
       [](const std::string& text) {
         return apply(text, {"%launch0_0 =", "token_exchange=dispatch", "token_exchange=combine"});
       }},
      {"overlap-ep.nothing-to-schedule", false,
       [](std::string text) {
         for (std::size_t at = 0; (at = text.find(" token_exchange=", at)) != std::string::npos;)
           text.erase(at, text.find(' ', at + 1) - at);
         return text;
       }},
      {"overlap-ep.count-copy-place", false,
       [](const std::string& text) {
         return append(text,
                       "  %late = aten._to_copy.default(%counts, device=@cpu) : f32[4, 8]@cpu "
                       "token_count_sync=dispatch" +
                           chunk_of(text, "%launch0_0 =") + "\n");
       }},
      {"overlap-ep.count-copies", true,
       [](const std::string& text) {
         return apply(text, {"%k0 =", " token_count_sync=dispatch", ""});
       }},
      {"overlap-ep.count-copy-device", true,
       [](const std::string& text) {
         const auto moved = apply(text, {"%k0 =", "device=@cpu", "device=@cuda:0"});
         return moved ? apply(*moved, {"%k0 =", ": f32[4, 8]@cpu", ": f32[4, 8]"}) : moved;
       }},
      {"overlap-ep.count-copies-differ", true,
       [](const std::string& text) {
         const auto one = apply(text, {"%k0 =", " token_count_sync=dispatch", ""});
         return one ? apply(*one, {"%l0 =", " token_count_sync=dispatch", ""}) : one;
       }},
  };
  return all;
}

std::string refusal_of(const std::string& text) {
  try {
    overlap_ep(parse_text(text, "spoiled.txt"), {});
  } catch (const PassError& error) {
    return error.id();
  }
  return "none";
}

}  // namespace

TEST_CASE("a region spoiled in one place is declined by name") {
  Random random(77);
  std::map<std::string, int> met;
  for (int trial = 0; trial < 600; ++trial) {
    RegionGenerator generator(random);
    const std::string text = generator.write();
    if (generator.is_tangled()) continue;
    for (const Spoil& spoil : spoils()) {
      if (spoil.needs_counts && !generator.has_counts()) continue;
      const auto spoiled = spoil.spoil(text);
      REQUIRE(spoiled);
      CAPTURE(*spoiled, spoil.refusal);
      CHECK(refusal_of(*spoiled) == spoil.refusal);
      ++met[spoil.refusal];
    }
  }
  CHECK(met.size() == spoils().size());
  for (const auto& [refusal, count] : met) CHECK(count > 100);
}

}  // namespace epweave
