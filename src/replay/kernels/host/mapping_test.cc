// What a mapping says of a call's dimensions (ops/mapping.h), tried by execution on PyTorch's cases
// of every kernel: pieces along a factor that is passed, or summed, are run, and joined or added
// they must be the whole; of every factor that is needed whole, reduced or indexed there must be a
// case in which they are not.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "ops/mapping.h"
#include "replay/kernels/host/conformance_cases.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay {
namespace {

using Kind = MappedCall::Kind;

struct Piece {
  std::int64_t begin = 0, end = 0;
};

// Which indices of a dimension are in a piece of a factor, in order.
std::vector<std::int64_t> indices_of(const CallMapping& mapping, std::span<const Factor> factors, Factor cut,
                                     Piece piece, std::int64_t extent) {
  std::int64_t inner = 1, cut_extent = 0;
  for (std::size_t i = factors.size(); i-- > 0;) {
    if (factors[i] == cut) {
      cut_extent = mapping.extent(cut);
      break;
    }
    inner *= mapping.extent(factors[i]);
  }
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < extent; ++i) {
    const std::int64_t place = cut_extent == 0 ? 0 : i / inner % cut_extent;
    if (cut_extent == 0 || (place >= piece.begin && place < piece.end)) indices.push_back(i);
  }
  return indices;
}

template <class FactorsOf>
Tensor cut_tensor(Memory& memory, const Tensor& tensor, const CallMapping& mapping, Factor cut, Piece piece,
                  FactorsOf factors_of) {
  std::vector<std::vector<std::int64_t>> indices;
  Extents sizes;
  for (std::size_t d = 0; d < tensor.rank(); ++d) {
    indices.push_back(indices_of(mapping, factors_of(d), cut, piece, tensor.sizes[d]));
    sizes.push_back(static_cast<std::int64_t>(indices.back().size()));
  }
  const Tensor result = make_tensor(memory, tensor.dtype, sizes);
  const std::size_t bytes = tensor.element_bytes();
  std::byte* to = result.bytes();
  std::vector<std::size_t> at(sizes.size(), 0);
  for (std::int64_t n = 0; n < result.numel(); ++n, to += bytes) {
    std::int64_t offset = tensor.offset;
    for (std::size_t d = 0; d < at.size(); ++d) offset += indices[d][at[d]] * tensor.strides[d];
    std::memcpy(to, tensor.storage->data() + offset * static_cast<std::int64_t>(bytes), bytes);
    for (std::size_t d = at.size(); d-- > 0 && ++at[d] == indices[d].size();) at[d] = 0;
  }
  return result;
}

class Trial {
 public:
  Trial(const KernelTable& table, const Json& json)
      : table_(table), json_(json), op_(*find_op(json.at("op").get<std::string>())) {
    call_.op = &op_;
    const std::vector<Value> args = read_arguments();
    for (const Value& arg : args) call_.arguments.push_back(describe(arg));
    whole_ = tensors_of(run(args));
    for (const Tensor& result : whole_) call_.results.push_back(result.sizes);
    mapping_ = map_dimensions(call_);
  }

  const MappedCall& call() const { return call_; }
  const CallMapping& mapping() const { return mapping_; }

  // The dimensions that have the factor, counted from the last: "x[-1] w[-2]"; else those of the
  // results: "out[-1]".
  std::string place_of(Factor factor) const {
    std::set<std::string> places;
    for (std::size_t p = 0; p < call_.arguments.size(); ++p)
      for (std::size_t i = call_.arguments[p].begin; is_tensors(p) && i < call_.arguments[p].end; ++i)
        for (std::size_t d = 0; d < mapping_.operand_rank(i); ++d)
          if (std::ranges::find(mapping_.operand(i, d), factor) != mapping_.operand(i, d).end())
            places.insert(fmt::format("{}[-{}]", op_.params[p].name, mapping_.operand_rank(i) - d));
    for (std::size_t r = 0; r < mapping_.result_count() && places.empty(); ++r)
      for (std::size_t d = 0; d < mapping_.result_rank(r); ++d)
        if (std::ranges::find(mapping_.result(r, d), factor) != mapping_.result(r, d).end())
          places.insert(fmt::format("out[-{}]", mapping_.result_rank(r) - d));
    return fmt::format("{}", fmt::join(places, " "));
  }

  // Whether results have elements to differ in.
  bool has_elements() const {
    return std::ranges::any_of(whole_, [](const Tensor& tensor) { return tensor.numel() > 0; });
  }
  // Whether some tensor has the factor.
  bool is_used(Factor factor) const {
    for (std::size_t i = 0; i < mapping_.operand_count(); ++i)
      for (std::size_t d = 0; d < mapping_.operand_rank(i); ++d)
        if (std::ranges::find(mapping_.operand(i, d), factor) != mapping_.operand(i, d).end()) return true;
    for (std::size_t r = 0; r < mapping_.result_count(); ++r)
      if (has_factor(r, factor)) return true;
    return false;
  }

  // Whether the pieces, joined along the factor or added up, are the whole; else why not.
  std::string compare(Factor factor) {
    const std::int64_t extent = mapping_.extent(factor), middle = (extent + 1) / 2;
    std::vector<std::vector<Tensor>> pieces;
    for (const Piece piece : {Piece{0, middle}, Piece{middle, extent}}) {
      try {
        pieces.push_back(tensors_of(run(arguments_of(factor, piece))));
      } catch (const std::exception& error) {
        return std::string("throws: ") + error.what();
      }
      if (pieces.back().size() != whole_.size()) return "other results";
    }
    for (std::size_t r = 0; r < whole_.size(); ++r) {
      const std::string difference = has_factor(r, factor) ? compare_rows(r, factor, middle, pieces)
                                                           : compare_sum(r, pieces[0][r], pieces[1][r]);
      if (!difference.empty()) return fmt::format("result {}: {}", r, difference);
    }
    return "";
  }

 private:
  std::vector<Value> read_arguments() {
    CaseReader reader(memory_, calls_of(table_, memory_));
    std::vector<Value> args;
    for (const Json& arg : json_.at("args")) args.push_back(reader.value(arg));
    return args;
  }

  Value run(std::vector<Value> args) {
    KernelCall call(op_, std::move(args), ~0u, memory_);
    return table_.find(op_)(call);
  }

  static std::vector<Tensor> tensors_of(const Value& value) {
    std::vector<Tensor> tensors;
    if (value.is_tensor()) tensors.push_back(value.tensor());
    if (value.is<List>())
      for (const Value& item : value.items())
        if (item.is_tensor()) tensors.push_back(item.tensor());
    return tensors;
  }

  void add_tensor(const Value& value, std::uint32_t place) {
    call_.tensors.push_back(value.tensor().sizes);
    call_.is_mask.push_back(value.tensor().dtype == DType::kBool);
    call_.places.push_back(place);
  }

  MappedCall::Argument describe(const Value& value) {
    MappedCall::Argument argument;
    if (value.is_tensor()) {
      const auto at = static_cast<std::uint32_t>(call_.tensors.size());
      argument = {Kind::kTensor, 0, at, at + 1};
      add_tensor(value, 0);
    } else if (value.is<bool>() || value.is<std::int64_t>()) {
      argument = {Kind::kNumber, value.integer(), 0, 0};
    } else if (value.is<double>()) {
      argument = {Kind::kNumber, std::llround(value.real()), 0, 0};
    } else if (value.is<List>()) {
      argument = describe_list(value.items());
    } else if (!value.is_none()) {
      argument.kind = Kind::kOther;
    }
    return argument;
  }

  MappedCall::Argument describe_list(const std::vector<Value>& items) {
    const bool is_tensors = std::ranges::any_of(items, [](const Value& item) { return item.is_tensor(); });
    const auto size = [&] {
      return static_cast<std::uint32_t>(is_tensors ? call_.tensors.size() : call_.numbers.size());
    };
    MappedCall::Argument argument{is_tensors ? Kind::kTensors : Kind::kNumbers, 0, size(), 0};
    for (std::uint32_t place = 0; const Value& item : items) {
      if (item.is_tensor())
        add_tensor(item, place);
      else if (!is_tensors && item.is_number())
        call_.numbers.push_back(item.integer());
      ++place;
    }
    argument.end = size();
    return argument;
  }

  bool is_tensors(std::size_t argument) const {
    const Kind kind = call_.arguments[argument].kind;
    return kind == Kind::kTensor || kind == Kind::kTensors;
  }

  bool has_factor(std::size_t result, Factor factor) const {
    for (std::size_t d = 0; d < mapping_.result_rank(result); ++d)
      if (std::ranges::find(mapping_.result(result, d), factor) != mapping_.result(result, d).end())
        return true;
    return false;
  }

  Extents piece_sizes(std::size_t result, Factor factor, Piece piece) const {
    Extents sizes;
    for (std::size_t d = 0; d < whole_[result].rank(); ++d)
      sizes.push_back(std::ssize(
          indices_of(mapping_, mapping_.result(result, d), factor, piece, whole_[result].sizes[d])));
    return sizes;
  }

  static Value list_of(const Extents& numbers) {
    std::vector<Value> items;
    for (const std::int64_t number : numbers) items.emplace_back(number);
    return Value::list(std::move(items));
  }

  // The whole's, with tensors cut along the factor, and sizes of results those of the piece's.
  std::vector<Value> arguments_of(Factor factor, Piece piece) {
    std::vector<Value> args = read_arguments();
    std::size_t tensor = 0;
    const auto cut = [&](const Value& value) {
      const std::size_t at = tensor++;
      return cut_tensor(memory_, value.tensor(), mapping_, factor, piece,
                        [&](std::size_t d) { return mapping_.operand(at, d); });
    };
    for (std::size_t p = 0; p < args.size(); ++p) {
      const std::string_view name = op_.params[p].name;
      if (args[p].is_tensor()) {
        args[p] = cut(args[p]);
      } else if (args[p].is<List>()) {
        std::vector<Value> items = args[p].items();
        for (Value& item : items)
          if (item.is_tensor()) item = cut(item);
        args[p] = Value::list(std::move(items));
        if ((name == "size" || name == "shape" || name == "input_sizes") && !whole_.empty())
          args[p] = list_of(piece_sizes(0, factor, piece));
      }
      set_lengths(args[p], name, factor, piece);
      if (name == "repeats" && args[p].is<List>()) set_repeats(args[p], factor, piece);
    }
    return args;
  }

  // How often a dimension is repeated is a factor of the result alone, the outermost of its
  // dimension.
  void set_repeats(Value& arg, Factor factor, Piece piece) {
    std::vector<Value> items = arg.items();
    for (std::size_t d = 0; d < items.size() && d < mapping_.result_rank(0); ++d)
      if (const auto factors = mapping_.result(0, d);
          items[d].integer() > 1 && !factors.empty() && factors[0] == factor)
        items[d] = piece.end - piece.begin;
    arg = Value::list(std::move(items));
  }

  // Sizes of results along the dimension that `dim` names.
  void set_lengths(Value& arg, std::string_view name, Factor factor, Piece piece) {
    const auto dim_param = op_.find_param("dim");
    if (name != "split_size" && name != "split_sizes" && name != "length") return;
    if (!dim_param || whole_.empty() || whole_[0].rank() == 0) return;
    const std::int64_t dim = call_.arguments[*dim_param].number;
    const auto along = [&](std::size_t r) { return piece_sizes(r, factor, piece)[whole_[r].wrap(dim)]; };
    if (along(0) == whole_[0].size(dim)) return;
    if (name == "split_size" && arg.is<std::int64_t>()) arg = along(0);
    if (name == "length") arg = along(0);
    if ((name == "split_size" || name == "split_sizes") && arg.is<List>()) {
      Extents sizes;
      for (std::size_t r = 0; r < whole_.size(); ++r) sizes.push_back(along(r));
      arg = list_of(sizes);
    }
  }

  std::string compare_rows(std::size_t r, Factor factor, std::int64_t middle,
                           const std::vector<std::vector<Tensor>>& pieces) {
    for (std::size_t k = 0; k < 2; ++k) {
      const Piece piece = k == 0 ? Piece{0, middle} : Piece{middle, mapping_.extent(factor)};
      const Tensor want = cut_tensor(memory_, whole_[r], mapping_, factor, piece,
                                     [&](std::size_t d) { return mapping_.result(r, d); });
      const Tensor& got = pieces[k][r];
      if (got.dtype != want.dtype || got.sizes != want.sizes) return "other sizes";
      std::vector<std::byte> bytes(static_cast<std::size_t>(got.numel()) * got.element_bytes());
      gather_elements(got, bytes.data());
      if (!bytes.empty() && std::memcmp(bytes.data(), want.bytes(), bytes.size()) != 0) return "other bits";
    }
    return "";
  }

  // Within what the rounding of each piece allows.
  std::string compare_sum(std::size_t r, const Tensor& a, const Tensor& b) {
    if (a.sizes != whole_[r].sizes || b.sizes != whole_[r].sizes) return "other sizes";
    if (a.dtype == DType::kComplex64) return "";
    const auto x = cpu::dense<double>(a), y = cpu::dense<double>(b), z = cpu::dense<double>(whole_[r]);
    const double unit = !is_floating(a.dtype) ? 0 : info(a.dtype).bytes == 2 ? 1.0 / 32 : 1e-4;
    for (std::size_t i = 0; i < static_cast<std::size_t>(whole_[r].numel()); ++i) {
      if (!std::isfinite(x[i]) || !std::isfinite(y[i]) || !std::isfinite(z[i])) continue;
      const double allowed = unit * (std::fabs(x[i]) + std::fabs(y[i]) + std::fabs(z[i]) + 1);
      if (std::fabs(x[i] + y[i] - z[i]) > allowed)
        return fmt::format("element {}: {} + {}, not {}", i, x[i], y[i], z[i]);
    }
    return "";
  }

  const KernelTable& table_;
  const Json& json_;
  const OpInfo& op_;
  HostMemory memory_{HostMemory::Fill::kPoison};
  MappedCall call_;
  std::vector<Tensor> whole_;
  CallMapping mapping_;
};

// What a damaged graph may record: tensors of other ranks, sizes of -1, tensors and results that
// are not there.
void damage(MappedCall& call, std::size_t kind, std::size_t tensor) {
  std::vector<MappedCall::Sizes>& list = tensor < call.tensors.size() ? call.tensors : call.results;
  MappedCall::Sizes& sizes = list[tensor < call.tensors.size() ? tensor : tensor - call.tensors.size()];
  if (kind == 0 && !sizes.empty()) sizes.pop_back();
  if (kind == 1) sizes.insert(sizes.begin(), 3);
  if (kind == 2) sizes.assign(sizes.size(), -1);
  if (kind == 3) sizes.clear();
  if (kind == 4) call.results.clear();
}

TEST_CASE("a mapping of a call whose recorded types do not fit it is made, or is not known") {
  const KernelTable table = make_cpu_kernels();
  std::size_t mapped = 0, unknown = 0;
  for (const Json& json : read_cases()) {
    const std::string op = json.at("op").get<std::string>();
    if (find_op(op) == nullptr || table.find(*find_op(op)) == nullptr || json.value("is_refused", false))
      continue;
    const MappedCall call = Trial(table, json).call();
    for (std::size_t tensor = 0; tensor < call.tensors.size() + call.results.size(); ++tensor)
      for (std::size_t kind = 0; kind < 5; ++kind) {
        MappedCall damaged = call;
        damage(damaged, kind, tensor);
        INFO(op << ", tensor " << tensor << ", kind " << kind);
        const CallMapping mapping = map_dimensions(damaged);
        ++(mapping.is_known() ? mapped : unknown);
        if (mapping.is_known()) print_mapping(damaged, mapping);
      }
  }
  CHECK(mapped > 1000);
  CHECK(unknown > 1000);
}

TEST_CASE("mappings of dimensions hold when calls are run in pieces") {
  const Json cases = read_cases();
  const KernelTable table = make_cpu_kernels();
  // Of an op, a use and the dimensions that have the factor: whether one was found.
  std::map<std::pair<std::string, std::string>, bool> counterexamples;
  std::set<std::string> mapped;
  for (std::size_t number = 0; const Json& json : cases) {
    const std::string op = json.at("op").get<std::string>();
    ++number;
    if (find_op(op) == nullptr || table.find(*find_op(op)) == nullptr || json.value("is_refused", false))
      continue;
    Trial trial(table, json);
    const CallMapping& mapping = trial.mapping();
    if (!mapping.is_known()) continue;
    mapped.insert(op);
    for (Factor factor = 0; factor < mapping.factor_count(); ++factor) {
      // A piece of extent 1 may lose its dimension: squeeze.
      const bool may_lose = find_op(op)->family == OpFamily::kSqueeze;
      if (mapping.extent(factor) < (may_lose ? 4 : 2) || !trial.is_used(factor)) continue;
      const std::string difference = trial.compare(factor);
      const FactorUse use = mapping.use(factor);
      INFO("case " << number - 1 << " " << op << " " << print_mapping(trial.call(), mapping) << ", factor "
                   << factor << ": " << difference);
      if (use == FactorUse::kPassed || use == FactorUse::kSummed)
        CHECK(difference.empty());
      else if (trial.has_elements())
        counterexamples[{op, std::string(name_of(use)) + " " + trial.place_of(factor)}] |=
            !difference.empty();
    }
  }
  CHECK(mapped.size() > 200);
  std::set<std::string> without;
  for (const auto& [claim, is_found] : counterexamples)
    if (!is_found) without.insert(claim.first + " " + claim.second);
  // Claims that are stronger than what the cases show.
  const std::set<std::string> reasons = {
      // The cases along these dimensions add into zeros.
      "aten._unsafe_index_put.default indexed by data indices[-1] values[-1]",
      "aten.index_add.default indexed by data index[-1] source[-2]",
      // How many counts there are, the largest number of all says.
      "aten.bincount.default reduced self[-1]",
      "aten.bincount.default reduced self[-1] weights[-1]",
      // By frequency: no case has a number in both pieces.
      "aten.embedding_dense_backward.default reduced grad_output[-2] indices[-1]",
      // Borders from the data: those of the pieces are the same.
      "aten.histc.default reduced self[-1]",
      // -1 and 2 of 6 columns: both are the last of a half.
      // The case along this dimension writes no row.
      "aten.slice_scatter.default needed whole self[-2]",
  };
  CHECK(without == reasons);
}

}  // namespace
}  // namespace epweave::replay
