#include "replay/inputs/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/nearest_name.h"
#include "replay/inputs/torchtitan_recipe.h"

namespace epweave::replay {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMatchKeys[] = {"role", "name", "dims", "dtype", "make"};

// The generators, with the keys that each may have.
struct GeneratorRow {
  std::string_view name;
  Generator generator;
  std::vector<std::string_view> keys;
};
const std::vector<GeneratorRow>& generator_rows() {
  static const std::vector<GeneratorRow> rows{
      {"uniform", Generator::kUniform, {"scale"}},   {"gain", Generator::kGain, {}},
      {"constant", Generator::kConstant, {"value"}}, {"integers", Generator::kIntegers, {"from", "below"}},
      {"rope", Generator::kRope, {"base"}},          {"tokens", Generator::kTokens, {"first"}},
      {"token-count", Generator::kTokenCount, {}},   {"positions", Generator::kPositions, {}},
      {"documents", Generator::kDocuments, {}},      {"document-starts", Generator::kDocumentStarts, {}},
      {"block-table", Generator::kBlockTable, {}},
  };
  return rows;
}

// `*` stands for any text. Linear but for the text that a `*` skips.
bool fits(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

class RecipeReader {
 public:
  explicit RecipeReader(const std::string& path) : path_(path) {}

  Recipe read(std::string_view text) {
    const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
    if (json.is_discarded()) fail("is not valid JSON");
    if (!json.is_object()) fail("is not an object");
    Recipe recipe;
    for (const auto& [key, value] : json.items()) {
      if (key == "document") {
        recipe.document = integer(value, key);
        if (*recipe.document < 1) fail("`document` is the rows of a document: at least 1");
      } else if (key == "inputs") {
        if (!value.is_array()) fail("`inputs` is a list of rows");
        for (const Json& row : value) recipe.rows.push_back(read_row(row, recipe.rows.size() + 1));
      } else if (key != "about") {
        fail_name("key", key, {"about", "document", "inputs"});
      }
    }
    return recipe;
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw InputError(fmt::format("{}: the recipe{} {}", path_, where_, why));
  }
  [[noreturn]] void fail_name(std::string_view what, std::string_view name,
                              const std::vector<std::string_view>& known) const {
    const std::string_view nearest = nearest_name(name, known);
    fail(fmt::format("has an unknown {} `{:.60}`{}", what, name,
                     nearest.empty() ? fmt::format("; there are {}", fmt::join(known, ", "))
                                     : fmt::format("; did you mean `{}`?", nearest)));
  }

  RecipeRow read_row(const Json& json, std::size_t number) {
    where_ = fmt::format(": row {} of `inputs`", number);
    if (!json.is_object()) fail("is not an object");
    if (!json.contains("make")) fail("does not say what to `make`");
    const GeneratorRow& generator = find_generator(text(json["make"], "make"));
    RecipeRow row;
    row.make = generator.generator;
    for (const auto& [key, value] : json.items()) {
      std::vector<std::string_view> known(std::begin(kMatchKeys), std::end(kMatchKeys));
      known.insert(known.end(), generator.keys.begin(), generator.keys.end());
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail_name(fmt::format("key of `{}`", generator.name), key, known);
      read_key(row, key, value);
    }
    if (row.make == Generator::kIntegers && (!json.contains("below") || row.below <= row.from))
      fail("makes integers: `below` must be above `from`");
    where_.clear();
    return row;
  }

  const GeneratorRow& find_generator(const std::string& name) const {
    std::vector<std::string_view> known;
    for (const GeneratorRow& row : generator_rows()) {
      if (row.name == name) return row;
      known.push_back(row.name);
    }
    fail_name("generator", name, known);
  }

  void read_key(RecipeRow& row, const std::string& key, const Json& value) const {
    if (key == "role") row.role = text(value, key);
    if (key == "name") row.name = text(value, key);
    if (key == "dims") {
      const std::int64_t dims = integer(value, key);
      if (dims < 0) fail("`dims` is a number of dimensions");
      row.dims = static_cast<std::size_t>(dims);
    }
    if (key == "dtype") read_dtype(row, text(value, key));
    if (key == "scale") {
      const bool is_fan_in = value.is_string() && value.get<std::string>() == "fan-in";
      row.scale = is_fan_in ? std::nullopt : std::optional(number(value, key));
    }
    if (key == "value") row.value = number(value, key);
    if (key == "base") {
      row.base = number(value, key);
      if (row.base <= 0) fail("`base` must be above 0");
    }
    if (key == "from") row.from = integer(value, key);
    if (key == "below") row.below = integer(value, key);
    if (key == "first") {
      row.first = integer(value, key);
      if (row.first < 0) fail("`first` is a place in the sequence of tokens: 0 or more");
    }
  }

  void read_dtype(RecipeRow& row, const std::string& name) const {
    row.must_float = name == "floating";
    if (row.must_float) return;
    row.dtype = find_dtype(name);
    if (!row.dtype) fail(fmt::format("has an unknown dtype `{:.60}`", name));
  }

  std::string text(const Json& value, std::string_view key) const {
    if (!value.is_string()) fail(fmt::format("has a `{}` that is not text", key));
    return value.get<std::string>();
  }
  double number(const Json& value, std::string_view key) const {
    if (!value.is_number()) fail(fmt::format("has a `{}` that is not a number", key));
    return value.get<double>();
  }
  // Exact in double, so that the numbers made are exact too.
  std::int64_t integer(const Json& value, std::string_view key) const {
    constexpr double kLimit = 0x1p53;
    if (!value.is_number_integer() || std::abs(value.get<double>()) > kLimit)
      fail(fmt::format("has a `{}` that is not a whole number", key));
    return value.get<std::int64_t>();
  }

  std::string path_, where_;
};

}  // namespace

const RecipeRow* Recipe::find(const RecipeInput& input) const {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const RecipeRow& candidate) {
    return fits(candidate.role, input.role) && fits(candidate.name, input.name) &&
           (!candidate.dims || *candidate.dims == input.dims) &&
           (!candidate.dtype || *candidate.dtype == input.dtype) &&
           (!candidate.must_float || is_floating(input.dtype));
  });
  return row == rows.end() ? nullptr : &*row;
}

Recipe parse_recipe(std::string_view text, const std::string& path) {
  Recipe recipe = RecipeReader(path).read(text);
  recipe.path = path;
  const std::vector<RecipeRow>& shipped = torchtitan_recipe().rows;
  recipe.rows.insert(recipe.rows.end(), shipped.begin(), shipped.end());
  return recipe;
}

std::string_view torchtitan_recipe_text() {
  return kTorchtitanRecipe;
}

const Recipe& torchtitan_recipe() {
  static const Recipe recipe = RecipeReader("torchtitan_recipe.json").read(torchtitan_recipe_text());
  return recipe;
}

}  // namespace epweave::replay
