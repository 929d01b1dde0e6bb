#include "ir/graph.h"

#include <catch2/catch.hpp>

namespace epweave {
namespace {

TEST_CASE("a context stores equal metadata once, and tells apart what differs in one field") {
  Context context;
  const StringId u = context.strings.intern("u"), v = context.strings.intern("v");
  const auto list = [&](std::int64_t number) {
    const Arg items[] = {Arg::text(u), Arg::integer(number)};
    return context.args.add(items);
  };
  const auto full = [&] {
    NodeExtra extra;
    extra.bindings = {{u, list(1)}};
    extra.chunk_hints = {{u, 2}};
    extra.custom = list(3);
    extra.meta = list(4);
    extra.py_type = u;
    extra.unknown_fields = "5";
    return extra;
  };
  const NodeExtra* first = context.own(full());
  CHECK(context.own(full()) == first);

  std::vector<const NodeExtra*> stored = {first};
  const auto differs_by = [&](const auto& change) {
    NodeExtra extra = full();
    change(extra);
    const NodeExtra* other = context.own(extra);
    CHECK(context.own(std::move(extra)) == other);
    for (const NodeExtra* known : stored) CHECK(known != other);
    stored.push_back(other);
  };
  differs_by([&](NodeExtra& extra) { extra.bindings[0].symbol = v; });
  differs_by([&](NodeExtra& extra) { extra.bindings[0].path = list(9); });
  differs_by([&](NodeExtra& extra) { extra.chunk_hints[0].first = v; });
  differs_by([&](NodeExtra& extra) { extra.chunk_hints[0].second = 9; });
  differs_by([&](NodeExtra& extra) { extra.custom = list(9); });
  differs_by([&](NodeExtra& extra) { extra.meta = list(9); });
  differs_by([&](NodeExtra& extra) { extra.py_type = v; });
  differs_by([&](NodeExtra& extra) { extra.example_type = TypeId(0U); });
  differs_by([&](NodeExtra& extra) { extra.unknown_fields = "9"; });
}

}  // namespace
}  // namespace epweave
