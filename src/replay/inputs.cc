#include "replay/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/op.h"
#include "replay/block_mask.h"
#include "replay/compare.h"
#include "replay/evaluate.h"
#include "replay/mesh_ops.h"
#include "replay/random_numbers.h"
#include "replay/shards.h"

namespace epweave::replay {
namespace {

constexpr std::int64_t kDefaultDocument = 256;

class InputMaker {
 public:
  InputMaker(const Graph& graph, const World& world, const KernelTable& kernels, InputData data)
      : graph_(graph),
        context_(*graph.context),
        world_(world),
        kernels_(kernels),
        data_(data),
        recipe_(data.recipe == nullptr ? torchtitan_recipe() : *data.recipe),
        names_(list_input_names(graph)),
        symbols_(graph) {
    for (NodeId id : graph.step().order)
      if (graph.step().nodes[id].kind == NodeKind::kPlaceholder) placeholders_.push_back(id);
    bind_hints();
    const Arg* options = find_entry(context_, graph.info, "options");
    const Arg* document = options == nullptr ? nullptr : find_entry(context_, *options, "ctx");
    if (document != nullptr && document->is_int() && document->as_int() > 0) document_ = document->as_int();
    if (recipe_.document) document_ = *recipe_.document;
  }

  std::optional<double> expected_loss() const {
    const auto vocabulary = find_vocabulary();
    if (!vocabulary) return std::nullopt;
    return std::log(static_cast<double>(*vocabulary)) / static_cast<double>(batch_count());
  }

  std::vector<RankInputs> make() {
    std::vector<RankInputs> inputs(world_.size);
    for (std::size_t i = 0; i < placeholders_.size(); ++i) {
      std::vector<Value> values = make_input(i);
      for (Rank rank = 0; rank < world_.size; ++rank) inputs[rank].push_back(std::move(values[rank]));
    }
    return inputs;
  }

 private:
  // The symbols that inputs bind get the numbers they had when the graph was traced.
  void bind_hints() {
    for (NodeId id : placeholders_) {
      const Node& node = graph_.step().nodes[id];
      if (node.extra == nullptr) continue;
      for (const Binding& binding : node.extra->bindings)
        for (const Symbol& symbol : graph_.symbols)
          if (symbol.name == binding.symbol && symbol.hint) symbols_.bind(symbol.name, *symbol.hint);
    }
    for (const Symbol& symbol : graph_.symbols)
      if (symbol.hint && !symbol.unbacked.value_or(false)) symbols_.bind(symbol.name, *symbol.hint);
  }

  const Node& node_of(std::size_t i) const { return graph_.step().nodes[placeholders_[i]]; }
  const InputRole* role_of(std::size_t i) const {
    return i < graph_.inputs.size() ? &graph_.inputs[i] : nullptr;
  }
  std::string_view role_text(std::size_t i, StringId InputRole::*field) const {
    const InputRole* role = role_of(i);
    return role == nullptr ? std::string_view() : graph_.text(role->*field);
  }
  const Arg* find_more(std::size_t i, std::string_view key) const {
    const InputRole* role = role_of(i);
    if (role == nullptr) return nullptr;
    const auto entries = context_.args[role->more];
    for (std::size_t k = 0; k + 1 < entries.size(); k += 2)
      if (context_.text(entries[k].as_name()) == key) return &entries[k + 1];
    return nullptr;
  }

  [[noreturn]] void refuse(std::size_t i, std::string_view why) const {
    std::string role(role_text(i, &InputRole::role));
    if (const std::string_view name = recipe_name(i); name != graph_.text(node_of(i).name))
      role += fmt::format("{}{}", role.empty() ? "" : " ", name);
    throw InputError(fmt::format("input %{}{} cannot be made: {}", graph_.text(node_of(i).name),
                                 role.empty() ? "" : " (role " + role + ")", why));
  }

  ResultType type_of(std::size_t i) const {
    const TensorType* type = tensor_of(context_, node_of(i).type);
    const auto evaluated = type == nullptr ? std::nullopt : evaluate(symbols_, *type);
    if (!evaluated) refuse(i, "its extents have no numbers");
    return *evaluated;
  }

  std::vector<Value> make_input(std::size_t i) {
    const Node& node = node_of(i);
    const Type* type = node.type ? &context_.types[node.type] : nullptr;
    if (type == nullptr) refuse(i, "no type is recorded");
    if (type->kind == TypeKind::kValue) return same(Text{type->value.kind(), "known when traced"});
    if (type->kind == TypeKind::kScalar) {
      const auto number = type->expr ? symbols_.evaluate(type->expr) : std::nullopt;
      if (!number) refuse(i, "the symbolic scalar has no number");
      return same(*number);
    }
    if (type->kind != TypeKind::kTensor) refuse(i, "it is a tuple");
    if (auto values = read_from_files(i)) return *std::move(values);
    const RecipeRow* row = recipe_.find(
        {role_text(i, &InputRole::role), recipe_name(i), type_of(i).sizes.size(), type_of(i).dtype});
    if (row == nullptr) refuse(i, "no row of the recipe fits it");
    return make_by(*row, i);
  }

  std::string_view recipe_name(std::size_t i) const {
    const InputRole* role = role_of(i);
    const std::string_view recorded =
        role == nullptr ? std::string_view() : graph_.text(role->fqn ? role->fqn : role->which);
    return recorded.empty() ? graph_.text(node_of(i).name) : recorded;
  }

  std::vector<Value> make_by(const RecipeRow& row, std::size_t i) {
    switch (row.make) {
      case Generator::kUniform:
        return make_uniform(row, i);
      case Generator::kGain:
        return make_numbers(i, [&](const RandomNumbers& random, std::uint64_t k) {
          return data_.kind == DataKind::kReal ? 1 + random.uniform(k) * 0.125 : 1;
        });
      case Generator::kConstant:
        return make_numbers(i, [&](const RandomNumbers&, std::uint64_t) { return row.value; });
      case Generator::kIntegers:
        return make_numbers(i, [&](const RandomNumbers& random, std::uint64_t k) {
          return static_cast<double>(
              row.from +
              static_cast<std::int64_t>(random.bits(k) % static_cast<std::uint64_t>(row.below - row.from)));
        });
      case Generator::kRope:
        return make_rope(row, i);
      case Generator::kTokens:
        return make_tokens(row, i);
      case Generator::kTokenCount: {
        const std::int64_t count = count_tokens(i) * batch_count();
        return make_integers(i, [&](std::int64_t) { return count; });
      }
      case Generator::kPositions:
        return make_integers(i, [&](std::int64_t k) { return k % document_; });
      case Generator::kDocuments:
        return make_integers(i, [&](std::int64_t k) { return k / document_; });
      case Generator::kDocumentStarts: {
        const std::int64_t tokens = count_tokens(i);
        return make_integers(i, [&](std::int64_t k) { return std::min(k * document_, tokens); });
      }
      case Generator::kBlockTable:
        return make_block_table(i);
    }
    return {};
  }

  // The same number or text on every rank.
  std::vector<Value> same(const Value& value) const { return std::vector<Value>(world_.size, value); }

  // A tensor for each rank, filled by fill(rank, dense row-major tensor).
  template <class Fill>
  std::vector<Value> make_tensors(std::size_t i, const Fill& fill) {
    const ResultType type = type_of(i);
    std::vector<Value> values;
    for (Rank rank = 0; rank < world_.size; ++rank) {
      Tensor dense = make_tensor(memory_, type.dtype, type.sizes);
      fill(rank, dense);
      if (type.strides == dense.strides && type.offset == 0) {
        values.emplace_back(std::move(dense));
        continue;
      }
      Extents covering = type.sizes;  // an offset is storage in front
      Tensor strided = make_tensor(memory_, type.dtype, std::move(covering), type.strides);
      scatter_elements(dense.bytes(), strided);
      values.emplace_back(std::move(strided));
    }
    return values;
  }

  // --- parameters ---

  std::vector<std::int64_t> read_extents(Arg list) const {
    std::vector<std::int64_t> extents;
    if (list.is_list())
      for (Arg item : context_.args.children(list))
        if (item.is_int()) extents.push_back(item.as_int());
    return extents;
  }

  // The axes of the mesh in the input entry after this one.
  std::vector<MeshAxis> read_mesh(std::size_t i) const {
    const std::size_t next = i + 1;
    if (next >= placeholders_.size() || role_text(next, &InputRole::fqn) != role_text(i, &InputRole::fqn))
      return {};
    const TypeId type = node_of(next).type;
    if (!type || context_.types[type].kind != TypeKind::kValue) return {};
    const Arg mesh = context_.types[type].value;
    if (!mesh.is(ArgKind::kMesh)) return {};
    return read_mesh_axes(context_, mesh);
  }

  Shard shard_of(std::size_t i, const Extents& local) const {
    const Arg* recorded = find_more(i, "global_shape");
    Shard shard =
        find_shard(recorded == nullptr ? local : read_extents(*recorded), local, read_mesh(i), world_.size);
    if (!shard.problem.empty()) refuse(i, shard.problem);
    return shard;
  }

  bool is_global(std::size_t i) const {
    const std::string_view role = role_text(i, &InputRole::role);
    return role == "parameter" || role == "buffer";
  }

  // number(random, k) is element k of the global tensor, or of the batch coordinate's.
  template <class Number>
  std::vector<Value> make_numbers(std::size_t i, const Number& number) {
    const std::string name(recipe_name(i));
    if (!is_global(i))
      return make_tensors(i, [&](Rank rank, const Tensor& dense) {
        const RandomNumbers random(data_.seed, batch_key(graph_.text(node_of(i).name), rank));
        for (std::int64_t k = 0; k < dense.numel(); ++k)
          store_number(dense, k, number(random, static_cast<std::uint64_t>(k)));
      });
    const Shard shard = shard_of(i, type_of(i).sizes);
    const RandomNumbers random(data_.seed, name);
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      for_each_run(dense, shard.first[rank], shard.global,
                   [&](std::int64_t local, std::int64_t global, std::int64_t length) {
                     for (std::int64_t k = 0; k < length; ++k)
                       store_number(dense, local + k, number(random, static_cast<std::uint64_t>(global + k)));
                   });
    });
  }

  template <class Number>
  std::vector<Value> make_integers(std::size_t i, const Number& number) {
    return make_tensors(i, [&](Rank, const Tensor& dense) {
      for (std::int64_t k = 0; k < dense.numel(); ++k) store_integer(dense, k, number(k));
    });
  }

  std::vector<Value> make_uniform(const RecipeRow& row, std::size_t i) {
    double scale = row.scale.value_or(1);
    if (const Extents sizes = type_of(i).sizes; !row.scale && !sizes.empty()) {
      const Shard shard = shard_of(i, sizes);
      // A uniform number in [-1, 1) has a standard deviation of 1/sqrt(3).
      const double wanted =
          std::sqrt(3.0 / (16.0 * static_cast<double>(std::max<std::int64_t>(shard.global.back(), 1))));
      scale = std::exp2(std::round(std::log2(wanted)));
    }
    return make_numbers(i, [&](const RandomNumbers& random, std::uint64_t k) {
      return data_.kind == DataKind::kReal ? random.uniform(k) * scale : random.small_integer(k);
    });
  }

  // --- files ---

  // What the files have for this input; none if nothing.
  std::optional<std::vector<Value>> read_from_files(std::size_t i) {
    if (data_.files == nullptr) return std::nullopt;
    std::vector<InputFiles::Found> found;
    std::optional<Rank> missing;
    for (Rank rank = 0; rank < world_.size; ++rank) {
      found.push_back(data_.files->find(names_[i], rank));
      if (found.back().entry == nullptr && !missing) missing = rank;
    }
    if (std::all_of(found.begin(), found.end(), [](const auto& of_rank) { return of_rank.entry == nullptr; }))
      return std::nullopt;
    if (missing) refuse(i, fmt::format("the files have it for other ranks, but not for rank {}", *missing));
    const ResultType type = type_of(i);
    for (const InputFiles::Found& of_rank : found) check_stored(i, type, of_rank);
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      read_stored(i, found[rank], {rank, dense});
    });
  }

  void check_stored(std::size_t i, const ResultType& type, const InputFiles::Found& found) const {
    const auto& [name, stored] = *found.entry;
    const auto fail = [&](std::string_view what) {
      throw InputError(fmt::format("{}: tensor `{}` is {} {}, input %{} is {} {}{}", found.file->path(), name,
                                   info(stored.dtype).short_name, print(stored.sizes), names_[i].node,
                                   info(type.dtype).short_name, print(type.sizes), what));
    };
    if (stored.dtype != type.dtype) fail("");
    if (stored.sizes == type.sizes) return;
    if (found.is_of_rank || find_more(i, "global_shape") == nullptr) fail("");
    const Shard shard = shard_of(i, type.sizes);
    if (stored.sizes != shard.global) fail(fmt::format(", a shard of {}", print(shard.global)));
  }
  static std::string print(const Extents& sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

  struct Destination {
    Rank rank;
    const Tensor& dense;
  };
  void read_stored(std::size_t i, const InputFiles::Found& found, const Destination& to) const {
    const StoredTensor& stored = found.entry->second;
    const Tensor& dense = to.dense;
    const auto width = static_cast<std::int64_t>(dense.element_bytes());
    const auto read = [&](std::int64_t local, std::int64_t global, std::int64_t count) {
      found.file->read(stored, static_cast<std::uint64_t>(global * width),
                       {dense.bytes() + local * width, static_cast<std::size_t>(count * width)});
    };
    if (stored.sizes == dense.sizes) {
      read(0, 0, dense.numel());
    } else {
      const Shard shard = shard_of(i, dense.sizes);
      for_each_run(dense, shard.first[to.rank], shard.global, read);
    }
    if (dense.dtype != DType::kBool) return;
    for (std::int64_t k = 0; k < dense.numel(); ++k)
      if (dense.bytes()[k] > std::byte{1})
        throw InputError(fmt::format("{}: tensor `{}` has a bool that is neither 0 nor 1", found.file->path(),
                                     found.entry->first));
  }

  // --- rotary embedding ---

  std::vector<Value> make_rope(const RecipeRow& row, std::size_t i) {
    if (type_of(i).sizes.size() != 2) refuse(i, "a rotary embedding's table has two dimensions");
    return make_tensors(i, [&](Rank, const Tensor& dense) { fill_rope(dense, row.base); });
  }

  static void fill_rope(const Tensor& dense, double base) {
    const std::int64_t columns = dense.sizes[1];
    const bool is_pair = is_complex(dense.dtype);
    const std::int64_t count = is_pair ? columns : std::max<std::int64_t>(columns / 2, 1);
    for (std::int64_t t = 0; t < dense.sizes[0]; ++t) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const double exponent = static_cast<double>(j % count) / static_cast<double>(count);
        const double angle = static_cast<double>(t) * std::pow(base, -exponent);
        const std::int64_t at = t * columns + j;
        if (is_pair) {
          float* pair = reinterpret_cast<float*>(dense.bytes()) + 2 * at;
          pair[0] = static_cast<float>(std::cos(angle));
          pair[1] = static_cast<float>(std::sin(angle));
        } else {
          store_number(dense, at, j < count ? std::cos(angle) : std::sin(angle));
        }
      }
    }
  }

  // --- user inputs ---

  std::string batch_key(std::string_view name, Rank rank) const {
    return fmt::format("{}/{}", name, find_coordinate(world_, "batch", rank).value_or(rank));
  }
  std::int64_t batch_count() const {
    for (const Mesh& mesh : world_.meshes)
      for (std::size_t d = 0; d < mesh.axes.size(); ++d)
        if (mesh.axes[d] == "batch") return mesh.shape[d];
    return world_.size;
  }

  std::optional<std::int64_t> find_vocabulary() const {
    for (std::size_t i = 0; i < placeholders_.size(); ++i) {
      if (role_text(i, &InputRole::role) != "parameter") continue;
      if (role_text(i, &InputRole::fqn).find("embed") == std::string_view::npos) continue;
      const Arg* global = find_more(i, "global_shape");
      const Extents shape = global == nullptr ? type_of(i).sizes : read_extents(*global);
      if (!shape.empty()) return shape[0];
    }
    return std::nullopt;
  }

  std::vector<Value> make_tokens(const RecipeRow& row, std::size_t i) {
    const auto found = find_vocabulary();
    if (!found || *found <= 0) refuse(i, "no parameter's name tells the vocabulary");
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      const RandomNumbers random(data_.seed, batch_key("tokens", rank));
      for (std::int64_t k = 0; k < dense.numel(); ++k)
        store_integer(dense, k,
                      static_cast<std::int64_t>(random.bits(static_cast<std::uint64_t>(row.first + k)) %
                                                static_cast<std::uint64_t>(*found)));
    });
  }

  std::int64_t count_tokens(std::size_t asked_by) const {
    for (std::size_t i = 0; i < placeholders_.size(); ++i)
      if (role_text(i, &InputRole::which) == "tokens") return count_elements(type_of(i).sizes);
    refuse(asked_by, "the graph has no input `tokens`");
  }

  // --- block tables ---

  std::vector<Value> make_block_table(std::size_t i) {
    const std::string_view name = recipe_name(i);
    const auto table = find_block_table(name.substr(name.rfind('.') + 1));
    if (!table) refuse(i, "its name is not that of a block table");
    const BlockMaskUse use = find_block_mask_use(graph_, placeholders_[i]);
    if (!use.call) refuse(i, "no FlexAttention call takes it");
    const BlockShape shape{type_of(i).sizes.at(0),       type_of(i).sizes.at(1),
                           number_of(i, use.rows),       number_of(i, use.columns),
                           number_of(i, use.block_rows), number_of(i, use.block_columns)};
    const std::vector<Value> captured = make_captured(i, use);
    std::vector<bool> pairs;
    const List* evaluated = nullptr;  // the captured values that `pairs` were made of
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      const List& values = captured[rank].as<List>();
      if (evaluated == nullptr || !have_same_bits(*evaluated, values))
        pairs = evaluate_mask(i, {use, shape, values.items});
      evaluated = &values;
      write_block_table(*table, shape, pairs, dense);
    });
  }

  // What the mask function captures, a list for each rank.
  std::vector<Value> make_captured(std::size_t asked_by, const BlockMaskUse& use) {
    std::vector<List> lists(world_.size);
    for (Arg arg : context_.args.children(use.captured)) {
      std::vector<Value> values;
      const auto at = arg.is_node() ? std::find(placeholders_.begin(), placeholders_.end(), arg.as_node())
                                    : placeholders_.end();
      if (at != placeholders_.end())
        values = make_input(static_cast<std::size_t>(at - placeholders_.begin()));
      else
        values = same(number_of(asked_by, arg));
      for (Rank rank = 0; rank < world_.size; ++rank) lists[rank].items.push_back(values[rank]);
    }
    return std::vector<Value>(lists.begin(), lists.end());
  }

  static bool have_same_bits(const List& a, const List& b) {
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                      [](const Value& x, const Value& y) {
                        if (x.is_tensor() && y.is_tensor())
                          return compare_tensors(x.tensor(), y.tensor()).is_equal();
                        return x.is_number() && y.is_number() && x.real() == y.real();
                      });
  }

  struct MaskCall {
    const BlockMaskUse& use;
    const BlockShape& shape;
    const std::vector<Value>& captured;
  };
  std::vector<bool> evaluate_mask(std::size_t asked_by, const MaskCall& call) {
    const Body* nested = graph_.find_body(call.use.mask);
    if (nested == nullptr) refuse(asked_by, "its mask function is not in the file");
    return evaluate_pairs(make_function(graph_, *nested, kernels_, memory_), call.shape, call.captured,
                          memory_);
  }

  std::int64_t number_of(std::size_t asked_by, Arg arg) const {
    if (arg.is_int()) return arg.as_int();
    std::optional<std::int64_t> number;
    if (arg.is(ArgKind::kSymbolic)) number = symbols_.evaluate(arg.as_expr());
    if (arg.is_node()) {
      const TypeId type = graph_.step().nodes[arg.as_node()].type;
      if (type && context_.types[type].kind == TypeKind::kScalar)
        number = symbols_.evaluate(context_.types[type].expr);
      if (type && context_.types[type].kind == TypeKind::kValue && context_.types[type].value.is_int())
        number = context_.types[type].value.as_int();
    }
    if (!number) refuse(asked_by, "its mask function depends on a computed value");
    return *number;
  }

  const Graph& graph_;
  const Context& context_;
  const World& world_;
  const KernelTable& kernels_;
  InputData data_;
  const Recipe& recipe_;
  std::vector<InputName> names_;
  Symbols symbols_;
  HostMemory memory_;
  std::vector<NodeId> placeholders_;
  std::int64_t document_ = kDefaultDocument;
};

}  // namespace

std::vector<RankInputs> make_inputs(const Graph& graph, const World& world, const KernelTable& kernels,
                                    InputData data) {
  return InputMaker(graph, world, kernels, data).make();
}

std::optional<double> find_expected_loss(const Graph& graph, const World& world) {
  return InputMaker(graph, world, KernelTable(), 0).expected_loss();
}

}  // namespace epweave::replay
