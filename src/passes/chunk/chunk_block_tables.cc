#include "passes/chunk/chunk_block_tables.h"

#include <fmt/format.h>

namespace epweave {

PartBlockTables::Tables PartBlockTables::keep(Tables whole, const Kept& kept, const TableUse& place) {
  auto [found, is_new] = made_.try_emplace({whole, kept}, whole);
  if (!is_new) return found->second;
  place_ = place;
  Tables& tables = found->second;
  if (kept.rows) {
    tables.counts = keep_rows(whole.counts, *kept.rows, place.counts_origin);
    tables.indices = keep_rows(whole.indices, *kept.rows, place.indices_origin);
  }
  if (kept.columns) tables = keep_columns(tables, *kept.columns);
  return tables;
}

NodeId PartBlockTables::call(std::string_view what, std::string_view target, std::vector<Arg> args,
                             ArgRange kwargs) {
  return writer_.append(
      writer_.make({.name = fmt::format("{}_{}_chunk{}", writer_.name(origin_), what, place_.part),
                    .target = target,
                    .args = std::move(args),
                    .kwargs = kwargs,
                    .chunk_role = "chunk_input",
                    .role = ProvenanceRole::kAdded,
                    .origin = origin_,
                    .region = place_.region,
                    .part = place_.part}));
}

ArgRange PartBlockTables::keyword(std::string_view name, Arg value) const {
  return context_.args.add(std::vector{Arg::text(context_.strings.intern(name)), value});
}

// Kernels take any strides.
NodeId PartBlockTables::keep_rows(NodeId table, BlockRange rows, NodeId origin) {
  constexpr std::int64_t kRowDim = 2;
  origin_ = origin;
  return call("rows", "aten.slice.Tensor",
              {Arg::node(table), Arg::integer(kRowDim), Arg::integer(rows.begin), Arg::integer(rows.end)});
}

PartBlockTables::Tables PartBlockTables::keep_columns(Tables tables, BlockRange columns) {
  constexpr std::int64_t kColumnDim = 3;
  const TensorType type = *writer_.tensor(tables.indices);
  const std::int64_t width = context_.exprs.constant(type.sizes[kColumnDim]).value();
  const Arg counts = Arg::node(tables.counts), indices = Arg::node(tables.indices);
  const Arg begin = Arg::integer(columns.begin), end = Arg::integer(columns.end);
  auto then = [&](std::string_view what, std::string_view target, std::vector<Arg> args,
                  ArgRange kwargs = {}) { return Arg::node(call(what, target, std::move(args), kwargs)); };

  origin_ = place_.counts_origin;
  const Arg position = then("position", "aten.arange.default", {Arg::integer(width)},
                            keyword("device", Arg::named(ArgKind::kDevice, type.device)));
  const Arg count = then("count", "aten.unsqueeze.default", {counts, Arg::integer(-1)});
  const Arg is_listed = then("is_listed", "aten.lt.Tensor", {position, count});

  origin_ = place_.indices_origin;
  Arg is_kept = is_listed;
  if (columns.begin > 0)
    is_kept = then("is_behind", "aten.bitwise_and.Tensor",
                   {is_kept, then("is_from", "aten.ge.Scalar", {indices, begin})});
  if (columns.end < width)
    is_kept = then("is_within", "aten.bitwise_and.Tensor",
                   {is_kept, then("is_before", "aten.lt.Scalar", {indices, end})});
  const Arg is_dropped = then("is_dropped", "aten.bitwise_not.default", {is_kept});
  // The part's columns first, ascending; behind them padding, which must be columns, too.
  const Arg local = columns.begin == 0 ? indices : then("local", "aten.sub.Tensor", {indices, begin});
  const Arg marked =
      then("marked", "aten.masked_fill.Scalar", {local, is_dropped, Arg::integer(columns.size())});
  const Arg sort = then("sort", "aten.sort.stable", {marked}, keyword("stable", Arg::boolean(true)));
  const Arg sorted = then("sorted", "operator.getitem", {sort, Arg::integer(0)});
  const Arg first = then("first", "aten.slice.Tensor",
                         {sorted, Arg::integer(kColumnDim), Arg::integer(0), Arg::integer(columns.size())});
  const Arg kept = then("columns", "aten.clamp_max.default", {first, Arg::integer(columns.size() - 1)});

  origin_ = place_.counts_origin;
  const Arg int32 = Arg::named(ArgKind::kDType, context_.strings.intern(info(DType::kInt32).name));
  const Arg kept_count = then("columns", "aten.sum.dim_IntList", {is_kept, writer_.list({Arg::integer(-1)})},
                              keyword("dtype", int32));
  return {kept_count.as_node(), kept.as_node()};
}

}  // namespace epweave
