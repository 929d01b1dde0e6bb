// Which generator makes which input, as JSON:
//
//   {"document": 128,
//    "inputs": [{"name": "tokens", "make": "integers", "from": 0, "below": 500},
//               {"role": "parameter", "name": "layers.*.router.*", "make": "uniform", "scale": 0.5}]}
//
// The first row that fits an input makes it; after the rows of a file come those that ship for
// torchtitan's roles (torchtitan_recipe.json). Integers that no row fits are below what they index
// (indexed_extents.h). A row fits if all it says does:
//
//   role   "parameter", "buffer", "user", ... as recorded; `*` stands for any text
//   name   the input's: of a parameter or buffer its qualified name, of a user input what it is
//          (`tokens`); a node's name where the graph records none; `*` stands for any text
//   dims   number of dimensions
//   dtype  "f32", "i64", ..., or "floating"
//
// What it makes (the key `make`) and with which further keys:
//
//   uniform          in [-scale, scale); scale: a number (1 if not given), or "fan-in": the power
//                    of two that comes nearest to a standard deviation of 1/sqrt(16 * last extent)
//   gain             1 + u/8, u in [-1, 1)
//   constant         `value`
//   integers         from `from` (0 if not given) to `below` - 1
//   rope             exp(i * t / base^(j/n)), or its cosines and sines; row t, column j of n; base:
//                    10000 if not given
//   tokens           integers below the vocabulary (rows of the parameter named `*embed*`) and below
//                    what they index (indexed_extents.h), from place `first` on of one sequence:
//                    labels are the tokens one place on
//   token-count      the tokens (elements of the input `tokens` or `input_ids`, where they are
//                    integers; else of labels or positions) of all batch
//                    coordinates together
//   positions        i modulo the document length
//   documents        the document of each row
//   document-starts  the first row of each document
//   block-table      as torch's create_block_mask: the mask function of the FlexAttention call that
//                    takes the table, evaluated on all pairs (block_mask.h)
//
// `document`: rows of a document; else the graph's (info.options: ctx, else sequence), else 256.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/types/type.h"

namespace epweave::replay {

enum class Generator : std::uint8_t {
  kUniform,
  kGain,
  kConstant,
  kIntegers,
  kRope,
  kTokens,
  kTokenCount,
  kPositions,
  kDocuments,
  kDocumentStarts,
  kBlockTable,
};

struct RecipeRow {
  std::string role = "*", name = "*";
  std::optional<std::size_t> dims;
  std::optional<DType> dtype;
  bool must_float = false;
  Generator make = Generator::kUniform;
  std::optional<double> scale = 1;  // none: fan-in
  double value = 0, base = 10000;
  std::int64_t from = 0, below = 1, first = 0;
};

struct RecipeInput {
  std::string_view role, name;
  std::size_t dims = 0;
  DType dtype = DType::kFloat32;
};

struct Recipe {
  std::optional<std::int64_t> document;
  std::vector<RecipeRow> rows;
  std::string path;  // of the file whose rows go before those that ship; or empty

  const RecipeRow* find(const RecipeInput& input) const;  // null: no row fits
};

// The rows of the text, then those that ship. Throws InputError naming `path` and the row.
Recipe parse_recipe(std::string_view text, const std::string& path);
const Recipe& torchtitan_recipe();
std::string_view torchtitan_recipe_text();

}  // namespace epweave::replay
