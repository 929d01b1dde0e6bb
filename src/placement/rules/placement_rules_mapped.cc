// Placement by the mapping of a call's dimensions (ops/mapping.h), for families without a rule of
// their own.
//
//   mv(%a: Split(0), %v: Whole)                 rows of %a are passed: Split(0)
//   mv(%a: Split(1), %v: Split(0))              summed: Partial
//   index_add(%x: Split(0), 1, %i, %y: Split(0))  passed
//   index_add(%x: Split(0), 0, %i, %y)          data say which rows: refused
#include <fmt/format.h>

#include <algorithm>

#include "ops/mapping.h"
#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

// The tensors of a call, in the order of its mapping.
struct MappedOperands {
  std::vector<Operand> operands;
  std::vector<Placement> placements;
};

MappedOperands operands_of(PlacementCall& call) {
  MappedOperands result;
  const auto add = [&](const Operand& operand) {
    if (call.tensor(operand) != nullptr) result.operands.push_back(operand);
  };
  for (std::size_t p = 0; p < call.op().params.size(); ++p) {
    const Operand operand = call.arg(p);
    add(operand);
    for (const Operand& item : call.items(operand)) add(item);
  }
  for (const Operand& operand : result.operands) result.placements.push_back(call.of(operand));
  return result;
}

[[noreturn]] void refuse_use(PlacementCall& call, FactorUse use) {
  switch (use) {
    case FactorUse::kReduced:
      call.refuse("chunk.reduction",
                  "it reduces the divided dimension, and only a sum of the parts' results is known",
                  "reduce outside the selected module, or use a sum");
    case FactorUse::kIndexed:
      call.refuse("chunk.along-divided",
                  "data say which elements of the divided dimension it takes or writes",
                  call.op().family == OpFamily::kMaskedRows
                      ? std::string(kGroupRows)
                      : std::string("select roots that leave it outside, or divide another dimension"));
    case FactorUse::kPassed:
    case FactorUse::kSummed:
    case FactorUse::kWhole:
      break;
  }
  if (call.op().family == OpFamily::kLossBackward)  // of a mean
    call.refuse("chunk.reduction",
                "it divides by the number of all elements, of which a part does not have all",
                "compute the loss outside the selected module, or as a sum");
  call.refuse("chunk.along-divided",
              "an element of the result depends on its place among all of the divided dimension");
}

// A call while it is placed: the mapping, and the factor that is divided.
class FactorPlacement {
 public:
  FactorPlacement(PlacementCall& call, const MappedOperands& operands)
      : call_(call), operands_(operands.operands), placements_(operands.placements) {
    const auto mapped = mapped_node(call.graph(), call.node(), call.facts());
    mapping_ = map_dimensions(mapped->call);
    if (!mapping_.is_known() || mapping_.operand_count() != operands_.size()) refuse_unknown();
  }

  Placement run() {
    refuse_numbers();
    cut_outside_rows(call_, operands_, placements_);
    find_factor();
    if (const FactorUse use = mapping_.use(factor_); use != FactorUse::kPassed && use != FactorUse::kSummed)
      refuse_use(call_, use);
    require_factors();
    find_rows();
    cut_whole_operands();
    return results();
  }

 private:
  [[noreturn]] void refuse_unknown() const {
    call_.refuse("chunk.combination", "nothing is known of what it makes of parts of its operands",
                 "select roots that leave it outside");
  }

  // The mapping is of tensors: a number that the step computes may count the rows of all parts, as
  // the length that narrow takes does.
  void refuse_numbers() const {
    const auto refuse_number = [&](const Operand& operand) {
      if ((operand.arg.is_node() && call_.is_scalar(operand)) || operand.arg.kind() == ArgKind::kSymbolic)
        call_.refuse(
            "chunk.combination",
            fmt::format("'{}' is a number that may count the rows of all parts", call_.name_of(operand)),
            "select roots that leave it outside");
    };
    for (std::size_t p = 0; p < call_.op().params.size(); ++p) {
      const Operand operand = call_.arg(p);
      refuse_number(operand);
      for (const Operand& item : call_.items(operand)) refuse_number(item);
    }
  }

  // The one factor of all divided dimensions.
  void find_factor() {
    std::optional<Factor> found;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Placement& p = placements_[i];
      if (!p.is_divided()) continue;
      if (p.is_partial()) {  // rows of each part are made of all of it
        call_.take_whole(operands_[i]);
        placements_[i] = Placement::whole();
        continue;
      }
      if (!p.is_rows())
        call_.refuse("chunk.combination", fmt::format("'{}' is placed {}, beside rows of a part",
                                                      call_.name_of(operands_[i]), print_placement(p)));
      const auto factors = mapping_.operand(i, static_cast<std::size_t>(p.dim));
      if (factors.size() != 1) refuse_use(call_, FactorUse::kWhole);
      if (found && *found != factors[0])
        call_.refuse("chunk.mixed-dimensions", "its operands are divided along dimensions that do not pair");
      found = factors[0];
    }
    factor_ = *found;
  }

  ExprId extent_of(std::size_t operand, std::size_t dim) const {
    return call_.tensor(operands_[operand])->sizes[dim];
  }
  std::optional<std::size_t> divided_dim(std::size_t operand) const {
    for (std::size_t d = 0; d < mapping_.operand_rank(operand); ++d)
      if (std::ranges::find(mapping_.operand(operand, d), factor_) != mapping_.operand(operand, d).end())
        return d;
    return std::nullopt;
  }

  // The mapping is that of the extents that were traced: what has the factor must have one extent,
  // whatever that is, and a dimension without a factor, which the mapping does not look at, must be
  // of one element, or of none.
  void require_factors() const {
    ExprId extent;
    const auto require_equal = [&](ExprId other) {
      if (extent && !call_.facts().equal(extent, other)) refuse_unknown();
      extent = other;
    };
    for (std::size_t i = 0; i < operands_.size(); ++i)
      for (std::size_t d = 0; d < mapping_.operand_rank(i); ++d) {
        const auto factors = mapping_.operand(i, d);
        const auto size = call_.facts().pool().constant(extent_of(i, d));
        if (factors.empty() && size != 0 && size != 1) refuse_unknown();
        if (factors.size() == 1 && factors[0] == factor_) require_equal(extent_of(i, d));
      }
    const TensorType* result = call_.result_tensor();
    if (const auto dim = result == nullptr ? std::nullopt : mapping_.result_dim(0, factor_))
      require_equal(result->sizes[*dim]);
  }

  void find_rows() {
    std::vector<Placement> divided;
    for (const Placement& p : placements_)
      if (p.is_divided()) divided.push_back(p);
    rows_ = divided[0];
    if (divided.size() == 1) return;
    for (Placement& p : divided) p.dim = 0;
    rows_ = common_rows(call_, divided);
  }

  // What all parts share is cut where it has the factor.
  void cut_whole_operands() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const auto dim = placements_[i].is_divided() ? std::nullopt : divided_dim(i);
      if (!dim) continue;
      const RowsOfValue shared{operands_[i], static_cast<int>(*dim)};
      if (!call_.tokens().scales(extent_of(i, *dim))) refuse_shared_rows(call_, shared);
      rows_.any_order = false;
      call_.take_slice_like(shared.value, shared.dim, rows_);
    }
  }

  // What pieces give of a result without the factor adds up.
  Placement result(std::size_t tensor, const TensorType& type) const {
    const auto dim = mapping_.result_dim(tensor, factor_);
    if (!dim && mapping_.use(factor_) == FactorUse::kPassed && has_elements(call_, type))
      call_.refuse("chunk.combination", "a result that has no rows is not known to be a sum of the parts'",
                   "select roots that leave it outside");
    if (!dim) return Placement::partial();
    Placement placement = rows_;
    placement.dim = static_cast<int>(*dim);
    return placement;
  }

  // What is no tensor of a tuple is nothing that is divided.
  Placement results() const {
    if (const TensorType* type = call_.result_tensor()) return result(0, *type);
    const Context& context = *call_.graph().context;
    std::vector<Placement> elements;
    std::size_t tensor = 0;
    for (const TypeId element : context.types[call_.node().type].elements) {
      const TensorType* type = tensor_of(context, element);
      elements.push_back(type != nullptr ? result(tensor++, *type) : Placement::local());
    }
    return elements.empty() ? Placement::local() : Placement::tuple(std::move(elements));
  }

  PlacementCall& call_;
  const std::vector<Operand>& operands_;
  std::vector<Placement> placements_;
  CallMapping mapping_;
  Factor factor_ = 0;
  Placement rows_;
};

}  // namespace

Placement by_factors(PlacementCall& call) {
  const MappedOperands operands = operands_of(call);
  const auto any = [&](auto&& is) { return std::ranges::any_of(operands.placements, is); };
  if (!any([](const Placement& p) { return p.is_divided(); })) return Placement::whole();
  // Sums of parts alone.
  if (!any([](const Placement& p) { return p.is_divided() && !p.is_partial(); }))
    return sum_arithmetic(call, operands.operands, operands.placements, call.op().linearity);
  return FactorPlacement(call, operands).run();
}

Placement by_factors_in_place(PlacementCall& call) {
  return call.of(call.arg(0)).is_whole() ? write_to_shared(call) : by_factors(call);
}

}  // namespace epweave
