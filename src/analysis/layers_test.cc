#include "analysis/layers.h"

#include <catch2/catch.hpp>

#include "ir/text/text.h"

namespace epweave {
namespace {

std::string names_of(std::string_view exchanges) {
  const std::string text = "epweave text 1\n\ngraph\n  %x = placeholder : bf16[4, 8]\n" +
                           std::string(exchanges) + "  output([%x])\n";
  const BlockNames names = find_block_names(parse_text(text, "f", std::make_shared<Context>()));
  return names.pattern + names.exchanging;
}

std::string exchange(std::string_view name, std::string_view rest) {
  return "  %" + std::string(name) +
         " = _c10d_functional.all_to_all_single.default(%x, [2, 2], [2, 2], \"0\") : bf16[4, 8] @" +
         std::string(rest) + "\n";
}

TEST_CASE("tokens are exchanged where exchanges are labelled, else where most are") {
  const std::string attention =
      exchange("a", "layers.0.attention.inner") + exchange("b", "layers.0.attention");
  CHECK(names_of("") == "layers.*.moe");
  CHECK(names_of(attention + exchange("c", "layers.0.moe ep=dispatch")) == "layers.*.moe");
  CHECK(names_of(attention + exchange("c", "layers.0.ffn")) == "layers.*.attention");
  CHECK(names_of(exchange("a", "blocks.3")) == "blocks.*");
}

}  // namespace
}  // namespace epweave
