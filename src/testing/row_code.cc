#include "testing/row_code.h"

#include <span>

namespace epweave {

NodeId RowCode::grow(RowPool& rows, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) rows.values.push_back(bounded(step(rows)));
  return rows.values.back();
}

Arg RowCode::list(const std::vector<std::int64_t>& items) const {
  std::vector<Arg> args;
  for (std::int64_t item : items) args.push_back(build_.arg(item));
  return build_.list(args);
}

NodeId RowCode::call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw) {
  return build_.call(target, args, kw);
}

NodeId RowCode::step(const RowPool& rows) {
  static constexpr Step kSteps[] = {
      &RowCode::unary,    &RowCode::unary,       &RowCode::composed,   &RowCode::binary,
      &RowCode::binary,   &RowCode::with_number, &RowCode::chosen,     &RowCode::softmax,
      &RowCode::reduced,  &RowCode::folded,      &RowCode::transposed, &RowCode::cut,
      &RowCode::split,    &RowCode::product,     &RowCode::product,    &RowCode::biased,
      &RowCode::top,      &RowCode::scanned,     &RowCode::selected,   &RowCode::cast,
      &RowCode::squeezed, &RowCode::rotated,     &RowCode::normalised, &RowCode::made,
      &RowCode::padded,   &RowCode::batched,     &RowCode::gradient,   &RowCode::by_size,
      &RowCode::permuted, &RowCode::logical,     &RowCode::by_table,   &RowCode::by_table,
      &RowCode::by_table, &RowCode::by_table,    &RowCode::by_table,   &RowCode::looked_up,
      &RowCode::filled,   &RowCode::shaped,      &RowCode::largest,    &RowCode::by_number,
  };
  const Step picked = dice_.pick(std::span<const Step>(kSteps));
  const bool may_regroup =
      picked == &RowCode::by_size || picked == &RowCode::by_number || picked == &RowCode::filled;
  return (this->*(may_regroup && !regroups_rows_ ? &RowCode::unary : picked))(rows);
}

NodeId RowCode::bounded(NodeId a) {
  switch (dice_.below(4)) {
    case 0:
      return call("aten.tanh.default", {arg(a)});
    case 1:
      return call("aten.clamp.default", {arg(a), build_.arg(-4.0), build_.arg(4.0)});
    default:
      return a;
  }
}

NodeId RowCode::like(const RowPool& rows, NodeId a) {
  for (int i = 0; i < 4; ++i)
    if (const NodeId b = any(rows); width(b) == width(a)) return b;
  return a;
}

}  // namespace epweave
