// Placement of views, factories, concatenation and sizes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "ops/mapping.h"
#include "ops/named_arg.h"
#include "ops/number_ops.h"
#include "ops/rules.h"
#include "ops/sliced_run.h"
#include "placement/placement_blocks.h"
#include "placement/placement_reshape.h"
#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

Placement moved(const Placement& p, int dim) {
  Placement result = p;
  result.dim = dim;
  return result;
}

Placement same(PlacementCall& call) {
  return call.of(call.arg(0));
}

Placement whole(PlacementCall& call) {
  for (const Operand& operand : call.operands()) call.take_any(operand);
  return Placement::whole();
}

// Where a dimension of the first operand is in the result, by the mapping of the call's dimensions
// (ops/mapping.h).
Placement by_mapping(PlacementCall& call) {
  const Placement p = same(call);
  if (!p.is_divided() || (p.is_partial() && call.op().linearity == Linearity::kFirst)) return p;
  if (p.is_partial()) {
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  const auto mapped = mapped_node(call.graph(), call.node(), call.facts());
  const CallMapping mapping = map_dimensions(mapped->call);
  const auto factors = mapping.operand(0, static_cast<std::size_t>(p.dim));
  if (!p.is_rows() || factors.size() != 1 || mapping.use(factors[0]) != FactorUse::kPassed)
    call.refuse("chunk.along-divided",
                "an element of the result depends on its place among all of the divided dimension");
  const auto dim = mapping.result_dim(0, factors[0]);
  return dim ? moved(p, static_cast<int>(*dim)) : p;
}

Placement unsqueeze(PlacementCall& call) {
  const Placement p = same(call);
  if (!p.is_rows()) return p;
  const int dim = call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0)) + 1);
  return moved(p, p.dim + (dim <= p.dim ? 1 : 0));
}

Placement without_dims(PlacementCall& call, const Placement& p, std::vector<int> dims) {
  int before = 0;
  for (int dim : dims) {
    if (dim == p.dim) call.refuse("chunk.along-divided", "it removes the divided dimension");
    before += dim < p.dim ? 1 : 0;
  }
  return moved(p, p.dim - before);
}

Placement squeeze(PlacementCall& call) {
  const Placement p = same(call);
  if (!p.is_rows()) return p;
  const TensorType* type = call.tensor(call.arg(0));
  std::vector<int> dims;
  const Operand which = call.named("dim");
  auto add = [&](Arg arg) {
    const int dim = call.dim(arg.as_int(), type->rank());
    // An extent other than 1 stays.
    if (call.facts().pool().constant(type->sizes[static_cast<std::size_t>(dim)]) == 1) dims.push_back(dim);
  };
  if (which.arg.is_int()) add(which.arg);
  for (const Operand& item : call.items(which)) add(item.arg);
  for (std::size_t i = 0; !which && i < type->rank(); ++i) add(Arg::integer(static_cast<std::int64_t>(i)));
  return without_dims(call, p, dims);
}

Placement select(PlacementCall& call) {
  const Placement p = same(call);
  if (!p.is_rows()) return p;
  return without_dims(call, p, {call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0)))});
}

// The size list of a view: the item of the divided dimension takes the part's extent, every other
// the whole's.
Placement with_sizes(PlacementCall& call, Operand sizes, const Placement& result) {
  const auto items = call.items(sizes);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool is_divided_item = result.is_rows() && result.dim == static_cast<int>(i);
    if (items[i].arg.is_node() && call.of(items[i]).is_divided() && !is_divided_item)
      call.take_whole(items[i]);
    if (is_divided_item && items[i].arg.is_int() && items[i].arg.as_int() != -1)
      call.refuse("chunk.baked-extent",
                  fmt::format("the extent of the divided dimension {} is baked in as the number {}", i,
                              items[i].arg.as_int()),
                  "write x.shape[i] or -1 in the model instead of a Python number");
    if (is_divided_item && items[i].arg.is(ArgKind::kSymbolic))
      call.refuse("chunk.raw-symbol", "the extent of the divided dimension is a raw symbolic argument",
                  "trace with symbolic sizes as nodes");
  }
  return result;
}

Placement expand(PlacementCall& call) {
  const Operand sizes = call.arg(1, "size");
  Placement p = same(call);
  const auto items = call.items(sizes);
  if (p.is_rows()) p.dim += static_cast<int>(items.size()) - static_cast<int>(call.rank(call.arg(0)));
  if (p.is_whole()) {
    // A whole repeated along a divided extent: each part repeats it its own number of times.
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Placement size = call.of(items[i]);
      if (size.is_partial()) return with_sizes(call, sizes, call.constant_rows(static_cast<int>(i)));
      if (size.is_divided()) return with_sizes(call, sizes, Placement::local(static_cast<int>(i)));
    }
  }
  return with_sizes(call, sizes, p);
}

Placement reshape(PlacementCall& call) {
  const Operand sizes = call.arg(1);
  const Placement p = same(call);
  if (!p.is_rows()) return with_sizes(call, sizes, p);
  const TensorType *source = call.tensor(call.arg(0)), *target = call.result_tensor();
  if (source == nullptr || target == nullptr)
    call.refuse("chunk.no-type", "the value or its argument has no recorded type");
  const Followed followed = follow_reshape(call.facts(), *source, *target, p);
  if (followed.placement) return with_sizes(call, sizes, *followed.placement);
  switch (followed.refusal) {
    case ReshapeRefusal::kInnerFactor:
      call.refuse("chunk.inner-factor",
                  "it merges rows that are in an order of their part's own behind another dimension");
    case ReshapeRefusal::kBrokenExtent:
      call.refuse("chunk.broken-extent",
                  fmt::format("it moves the divided extent {} into a dimension of fixed size",
                              call.facts().pool().text(source->sizes[static_cast<std::size_t>(p.dim)])));
    case ReshapeRefusal::kNotFollowed:
    case ReshapeRefusal::kNone:
      break;
  }
  call.refuse("chunk.reshape", "the divided dimension cannot be followed through the reshape");
}

// Of how many equal runs of the divided dimension a slice takes or fills one, by bounds of which
// each part has its own; `first` is the parameter that says where it starts. None where it takes
// other rows.
std::optional<std::int64_t> count_sliced_runs(PlacementCall& call, std::size_t first, int dim) {
  const auto run = sliced_run(call.graph(), call.node(), call.facts());
  if (!run || static_cast<int>(run->dim) != dim) return std::nullopt;
  const std::array bounds = {call.arg(first, "start"), call.arg(first + 1, "end")};
  for (const Operand& bound : bounds)
    if (call.is_scalar(bound) && call.of(bound).is_divided()) call.take_part(bound);
  const auto is_own = [&](const Operand& bound, std::int64_t number) {
    return !bound || bound.arg.is(ArgKind::kNone) || bound.arg == Arg::integer(number) ||
           (call.is_scalar(bound) && call.of(bound).is_divided());
  };
  const bool have_own = is_own(bounds[0], 0) && is_own(bounds[1], std::numeric_limits<std::int64_t>::max());
  return have_own ? std::optional(run->count) : std::nullopt;
}

Placement slice(PlacementCall& call) {
  const Placement p = same(call);
  if (!p.is_rows() || call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0))) != p.dim) return p;
  const auto runs = count_sliced_runs(call, 2, p.dim);
  std::optional<Placement> run;
  if (runs && (*runs == 1 || p.is(PlacementKind::kSplit))) run = cut_blocks(call.facts().pool(), p, *runs);
  if (!run)
    call.refuse(
        "chunk.along-divided", "it slices the divided dimension",
        p.blocks ? "take whole blocks, one by one: by slices whose bounds are made of x.shape, by chunk, or "
                   "by a view as [blocks, rows]"
                 : "");
  return *run;
}

// What was sliced, or selected, among zeros.
Placement unslice(PlacementCall& call) {
  const Operand sizes = call.arg(1, "input_sizes");
  Placement p = same(call);
  const bool is_selected = call.rank(call.arg(0)) < call.items(sizes).size();
  if (p.is_rows() && is_selected) p.dim += call.dim_arg(0, call.items(sizes).size()) <= p.dim ? 1 : 0;
  if (!is_selected && p.is_rows() && call.dim(call.int_arg(2, "dim", 0), call.items(sizes).size()) == p.dim) {
    const auto runs = count_sliced_runs(call, 3, p.dim);
    if (!runs || (*runs > 1 && !p.is(PlacementKind::kSplit)))
      call.refuse("chunk.along-divided", "it pads the divided dimension");
    p = join_blocks(call.facts().pool(), p, *runs);
  }
  return with_sizes(call, sizes, p);
}

bool is_literal_zero(Arg arg) {
  return is_zero_number(arg) || (arg.is(ArgKind::kBool) && !arg.as_bool());
}

// Parts of a sum may each be padded with zeros only: any other fill would be added once per part.
Placement pad(PlacementCall& call) {
  const Placement p = same(call);
  if (!p.is_rows()) {
    call.take_whole(call.arg(1, "pad"));
    const Operand fill = call.arg(2, "value");
    if (!p.is_partial() || !fill || is_literal_zero(fill.arg)) return p;
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  const auto amounts = call.items(call.arg(1, "pad"));
  const auto rank = static_cast<int>(call.rank(call.arg(0)));
  for (std::size_t i = 0; i < amounts.size(); ++i)
    if (rank - 1 - static_cast<int>(i / 2) == p.dim &&
        !(amounts[i].arg.is_int() && amounts[i].arg.as_int() == 0))
      call.refuse("chunk.along-divided", "it pads the divided dimension");
  call.take_whole(call.arg(1, "pad"));
  return p;
}

// The elements' extents along a dimension, if they are all the same.
bool has_equal_elements(PlacementCall& call, int dim) {
  const Context& context = *call.graph().context;
  ExprId first;
  for (TypeId element : context.types[call.node().type].elements) {
    const TensorType* type = tensor_of(context, element);
    if (type == nullptr) return false;
    const ExprId extent = type->sizes[static_cast<std::size_t>(dim)];
    if (first && !call.facts().equal(first, extent)) return false;
    first = extent;
  }
  return true;
}

// Equal pieces of the divided dimension that are whole blocks of it are divided as blocks are.
Placement split_blocks(PlacementCall& call, const Placement& p) {
  const auto count = static_cast<std::int64_t>(call.result_count());
  std::optional<Placement> piece;
  if (p.is(PlacementKind::kSplit) && has_equal_elements(call, p.dim))
    piece = cut_blocks(call.facts().pool(), p, count);
  const Operand sizes = call.arg(1);
  std::vector<Operand> items = call.items(sizes);
  if (items.empty()) items.push_back(sizes);
  const bool has_own_sizes = std::ranges::all_of(
      items, [&](const Operand& item) { return item.arg.is_node() && call.of(item).is_divided(); });
  if (!piece || !has_own_sizes)
    call.refuse("chunk.along-divided", "it splits the divided dimension",
                p.is_local() && has_own_sizes ? std::string(kGroupRows) : std::string());
  for (const Operand& item : items) call.take_part(item);
  return Placement::tuple(std::vector<Placement>(call.result_count(), *piece));
}

Placement split(PlacementCall& call) {
  const Placement p = same(call);
  if (p.is_rows() && call.dim(call.int_arg(2, "dim", 0), call.rank(call.arg(0))) == p.dim)
    return split_blocks(call, p);
  call.take_whole(call.arg(1));  // sizes along another dimension
  if (p.is_whole()) return p;
  return Placement::tuple(std::vector<Placement>(call.result_count(), p));
}

Placement unbind(PlacementCall& call) {
  const Placement p = same(call);
  if (p.is_whole()) return p;
  const int dim = call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0)));
  const Placement element = p.is_rows() ? without_dims(call, p, {dim}) : p;
  return Placement::tuple(std::vector<Placement>(call.result_count(), element));
}

Placement getitem(PlacementCall& call) {
  const Placement p = same(call);
  if (!p.is(PlacementKind::kTuple)) return p;
  const std::int64_t i = call.int_arg(1, "index", 0);
  const auto count = static_cast<std::int64_t>(p.elements.size());
  const std::int64_t index = i < 0 ? i + count : i;
  if (index < 0 || index >= count) call.refuse("chunk.index", fmt::format("element {} of {}", i, count));
  const Placement& element = p.elements[static_cast<std::size_t>(index)];
  // Each part's tuple has one that is no tensor: nothing, a number, or a tuple of nothing.
  return element.is_divided() || call.result_tensor() != nullptr ? element : Placement::local();
}

// Whether all are divided in as many rows each, in a known order.
bool is_equally_divided(PlacementCall& call, const std::vector<Operand>& items, const Placement& rows) {
  const auto extent_of = [&](const Operand& item) {
    return call.tensor(item)->sizes[static_cast<std::size_t>(rows.dim)];
  };
  return rows.is(PlacementKind::kSplit) && std::all_of(items.begin(), items.end(), [&](const Operand& item) {
           return call.of(item).is(PlacementKind::kSplit) &&
                  call.facts().equal(extent_of(item), extent_of(items[0]));
         });
}

// No rows, and not sums alone: of what only a part has, the part's own; else joined once.
Placement join_sums(PlacementCall& call, std::span<const Placement> placements) {
  if (std::ranges::any_of(placements, &Placement::is_local)) return Placement::local();
  call.take_whole(call.arg(0));
  return Placement::whole();
}

Placement concatenate(PlacementCall& call) {
  const auto items = call.items(call.arg(0));
  std::vector<Placement> placements;
  for (const Operand& item : items) placements.push_back(call.of(item));
  auto all = [&](PlacementKind kind) {
    return std::all_of(placements.begin(), placements.end(), [&](auto& p) { return p.is(kind); });
  };
  if (all(PlacementKind::kWhole)) return Placement::whole();
  if (all(PlacementKind::kPartial)) return Placement::partial();
  if (std::none_of(placements.begin(), placements.end(), [](auto& p) { return p.is_rows(); }))
    return join_sums(call, placements);
  const Placement rows = common_rows(call, placements);
  if (rows.dim == call.dim(call.int_arg(1, "dim", 0), call.result_tensor()->rank())) {
    if (!is_equally_divided(call, items, rows))
      call.refuse("chunk.along-divided", "it concatenates along the divided dimension");
    return join_blocks(call.facts().pool(), rows, static_cast<std::int64_t>(items.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i)
    if (placements[i].is_whole()) call.take_slice_like(items[i], rows.dim, rows);
  return rows;
}

Placement stack(PlacementCall& call) {
  const auto items = call.items(call.arg(0));
  std::vector<Placement> placements;
  for (const Operand& item : items) placements.push_back(call.of(item));
  const auto is_partial = [](const Placement& p) { return p.is_partial(); };
  if (std::all_of(placements.begin(), placements.end(), is_partial)) return Placement::partial();
  if (std::none_of(placements.begin(), placements.end(), [](auto& p) { return p.is_rows(); }))
    return join_sums(call, placements);
  if (std::any_of(placements.begin(), placements.end(), is_partial))
    call.refuse("chunk.combination", "it stacks rows and a sum of parts");
  const Placement rows = common_rows(call, placements);
  for (std::size_t i = 0; i < items.size(); ++i)
    if (placements[i].is_whole()) call.take_slice_like(items[i], rows.dim, rows);
  const int dim = call.dim(call.int_arg(1, "dim", 0), call.result_tensor()->rank());
  return moved(rows, rows.dim + (dim <= rows.dim ? 1 : 0));
}

Placement repeat(PlacementCall& call) {
  const Placement p = same(call);
  const auto counts = call.items(call.arg(1, "repeats"));
  for (const Operand& count : counts)
    if (call.of(count).is_divided())
      call.refuse("chunk.combination", "it repeats a value as often as there are tokens",
                  "use expand with the size of a tensor of the part");
  if (!p.is_rows()) return p;
  const int dim = p.dim + static_cast<int>(counts.size()) - static_cast<int>(call.rank(call.arg(0)));
  const Arg count = counts[static_cast<std::size_t>(dim)].arg;
  if (count == Arg::integer(1)) return moved(p, dim);
  if (!p.is(PlacementKind::kSplit) || !count.is_int() || count.as_int() < 1)
    call.refuse("chunk.along-divided", "it repeats the divided dimension");
  return join_blocks(call.facts().pool(), moved(p, dim), count.as_int());
}

// A new tensor: divided where its size list is.
Placement factory(PlacementCall& call, Operand sizes) {
  Placement result;
  const auto items = call.items(sizes);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Placement size = call.of(items[i]);
    if (!size.is_divided()) continue;
    if (result.is_divided()) call.refuse("chunk.two-token-extents", "two of its sizes are divided");
    result =
        size.is_partial() ? call.constant_rows(static_cast<int>(i)) : Placement::local(static_cast<int>(i));
  }
  return result;
}

// A new tensor with strides of its own: strides do not decide what a row is, but must not count
// rows.
Placement strided(PlacementCall& call, Operand sizes, Operand strides) {
  for (const Operand& stride : call.items(strides))
    if (call.of(stride).is_divided()) call.refuse("chunk.combination", "one of its strides counts tokens");
  return factory(call, sizes);
}

// A number as a tensor has no size: numbers are taken whole.
Placement new_tensor(PlacementCall& call) {
  const Operand sizes = call.named("size"), strides = call.named("stride");
  return strides ? strided(call, sizes, strides) : factory(call, sizes);
}

Placement new_like(PlacementCall& call) {
  call.take_any(call.arg(0));
  return new_tensor(call);
}

Placement arange(PlacementCall& call) {
  bool is_divided = false;
  for (const Operand& operand : call.operands()) {
    call.take_part(operand);
    is_divided |= call.of(operand).is_divided();
  }
  if (!is_divided) return Placement::whole();
  call.assume("counts from zero in each part");
  return Placement::local(0);
}

Placement size_of_dim(PlacementCall& call) {
  const Placement p = same(call);
  if (p.is_rows() && p.dim == call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0))))
    return p.is(PlacementKind::kSplit) ? Placement::partial() : Placement::local();
  if (p.is_divided()) call.take_any(call.arg(0));
  return Placement::whole();
}

Placement numel(PlacementCall& call) {
  const Placement p = same(call);
  if (p.is_rows()) return p.is(PlacementKind::kSplit) ? Placement::partial() : Placement::local();
  if (p.is_divided()) call.take_any(call.arg(0));
  return Placement::whole();
}

Placement size_number(PlacementCall& call) {
  return call.op().find_param("dim") ? size_of_dim(call) : numel(call);
}

bool says_end(const OpInfo& op) {
  return op.find_param("end").has_value();
}
// Not where an element lies in memory.
bool is_size(const OpInfo& op) {
  return op.type_rule == rules::sym_size || op.type_rule == rules::sym_numel;
}

constexpr PlacementRow kShapeRows[] = {
    {OpFamily::kPermute, by_mapping},
    {OpFamily::kBitView, by_mapping},
    {OpFamily::kReorder, by_mapping},
    {OpFamily::kTriangle, by_mapping},
    {OpFamily::kOneHot, by_mapping},
    {OpFamily::kUnsqueeze, unsqueeze},
    {OpFamily::kSqueeze, squeeze},
    {OpFamily::kSelect, select},
    {OpFamily::kExpand, expand},
    {OpFamily::kReshape, reshape},
    {OpFamily::kSlice, slice, says_end},
    {OpFamily::kUnslice, unslice},
    {OpFamily::kPad, pad},
    {OpFamily::kSplit, split},
    {OpFamily::kUnbind, unbind},
    {OpFamily::kElement, getitem},
    {OpFamily::kJoin, concatenate},
    {OpFamily::kStack, stack},
    {OpFamily::kRepeat, repeat},
    {OpFamily::kNew, new_like},
    {OpFamily::kFactory, new_tensor},
    {OpFamily::kIota, arange, is_arange},
    {OpFamily::kSize, size_number, is_size},
    {OpFamily::kMesh, whole},
};

}  // namespace

std::span<const PlacementRow> shape_placement_rows() {
  return kShapeRows;
}

}  // namespace epweave
