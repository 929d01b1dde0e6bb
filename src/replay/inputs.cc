#include "replay/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "ir/op.h"
#include "replay/block_mask.h"
#include "replay/evaluate.h"
#include "replay/mesh_ops.h"

namespace epweave::replay {

namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The numbers of one key.
class Stream {
 public:
  Stream(std::uint64_t seed, std::string_view key) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    start_ = hash ^ mix(seed);
  }
  std::uint64_t bits(std::uint64_t index) const { return mix(start_ + (index + 1) * 0x9e3779b97f4a7c15); }
  double integer(std::uint64_t index) const { return static_cast<double>(bits(index) % 5) - 2; }
  double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 40) * 0x1p-23 - 1; }

 private:
  std::uint64_t start_;
};

}  // namespace

std::uint64_t random_bits(std::uint64_t seed, std::string_view key, std::uint64_t index) {
  return Stream(seed, key).bits(index);
}

double random_uniform(std::uint64_t seed, std::string_view key, std::uint64_t index) {
  return Stream(seed, key).uniform(index);
}

namespace {

constexpr std::int64_t kDefaultDocument = 256;

// How a local tensor lies in the global one: its first index in each dimension, per rank.
struct Shard {
  Extents global;
  std::vector<Extents> first;  // by rank
};

class InputMaker {
 public:
  InputMaker(const Graph& graph, const World& world, const KernelTable& kernels, InputData data)
      : graph_(graph),
        context_(*graph.context),
        world_(world),
        kernels_(kernels),
        seed_(data.seed),
        kind_(data.kind),
        symbols_(graph) {
    for (NodeId id : graph.step().order)
      if (graph.step().nodes[id].kind == NodeKind::kPlaceholder) placeholders_.push_back(id);
    bind_hints();
    const Arg* options = find_entry(context_, graph.info, "options");
    const Arg* document = options == nullptr ? nullptr : find_entry(context_, *options, "ctx");
    if (document != nullptr && document->is_int() && document->as_int() > 0) document_ = document->as_int();
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
    throw InputError(fmt::format("input %{} (role {}{}{}) cannot be made: {}", graph_.text(node_of(i).name),
                                 role_text(i, &InputRole::role),
                                 role_text(i, &InputRole::fqn).empty() ? "" : " ",
                                 role_text(i, &InputRole::fqn).empty() ? role_text(i, &InputRole::which)
                                                                       : role_text(i, &InputRole::fqn),
                                 why));
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
    const std::string_view role = role_text(i, &InputRole::role);
    if (role == "parameter") return make_parameter(i);
    if (role == "buffer") return make_buffer(i);
    return make_user(i);
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

  Shard find_shard(std::size_t i, const Extents& local) const {
    Shard shard;
    const Arg* recorded = find_more(i, "global_shape");
    shard.global = recorded == nullptr ? local : read_extents(*recorded);
    if (shard.global.size() != local.size()) refuse(i, "its global shape has another rank");
    shard.first.assign(world_.size, Extents(local.size(), 0));
    const std::vector<MeshAxis> axes = read_mesh(i);
    std::size_t next = 0;
    for (std::size_t d = 0; d < local.size(); ++d) {
      if (shard.global[d] == local[d]) continue;
      if (local[d] == 0 || shard.global[d] % local[d] != 0) refuse(i, "it is cut unevenly");
      const std::int64_t pieces = shard.global[d] / local[d];
      const std::size_t begin = next;
      std::int64_t found = 1;
      while (found < pieces && next < axes.size()) found *= axes[next++].extent;
      if (found != pieces) refuse(i, "no axes of its mesh explain how it is cut");
      for (Rank rank = 0; rank < world_.size; ++rank) {
        std::int64_t piece = 0;
        for (std::size_t a = next; a-- > begin;)
          piece = piece * axes[a].extent + static_cast<std::int64_t>(rank) / axes[a].stride % axes[a].extent;
        shard.first[rank][d] = piece * local[d];
      }
    }
    return shard;
  }

  std::vector<Value> make_parameter(std::size_t i) {
    const ResultType type = type_of(i);
    const std::string name(role_text(i, &InputRole::fqn));
    const bool is_gain = type.sizes.size() == 1 && name.find("norm") != std::string::npos;
    double scale = 1;
    if (is_gain) {
      scale = 0.125;
    } else if (name.find("embed") == std::string::npos && !type.sizes.empty()) {
      const Shard shard = find_shard(i, type.sizes);
      // A uniform number in [-1, 1) has a standard deviation of 1/sqrt(3).
      const double wanted =
          std::sqrt(3.0 / (16.0 * static_cast<double>(std::max<std::int64_t>(shard.global.back(), 1))));
      scale = std::exp2(std::round(std::log2(wanted)));
    }
    const Shard shard = find_shard(i, type.sizes);
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      const Stream stream(seed_, name);
      for_each_row(dense, shard.first[rank], shard.global, [&](std::int64_t local, std::int64_t global) {
        const std::int64_t length = dense.sizes.empty() ? 1 : dense.sizes.back();
        for (std::int64_t k = 0; k < length; ++k) {
          const auto at = static_cast<std::uint64_t>(global + k);
          const double u = kind_ == DataKind::kReal ? stream.uniform(at) * scale
                           : is_gain                ? 0
                                                    : stream.integer(at);
          store_number(dense, local + k, is_gain ? 1 + u : u);
        }
      });
    });
  }

  // Calls visit(place in the shard, place in the global tensor) for each run of the last dimension.
  template <class Visit>
  static void for_each_row(const Tensor& shard, const Extents& first, const Extents& global,
                           const Visit& visit) {
    if (shard.numel() == 0) return;
    const Extents strides = contiguous_strides(global);
    const std::int64_t length = shard.sizes.empty() ? 1 : shard.sizes.back();
    Extents index(shard.rank(), 0);
    for (std::int64_t local = 0; local < shard.numel(); local += length) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < shard.rank(); ++d) at += (index[d] + first[d]) * strides[d];
      visit(local, at);
      for (std::size_t d = shard.rank(); d-- > 1;) {
        if (++index[d - 1] < shard.sizes[d - 1]) break;
        index[d - 1] = 0;
      }
    }
  }

  // --- buffers ---

  std::vector<Value> make_buffer(std::size_t i) {
    const std::string_view name = role_text(i, &InputRole::fqn);
    const bool is_rope = name.ends_with("rope.cache") || name.ends_with("freqs_cis");
    return make_tensors(i, [&](Rank, const Tensor& dense) {
      if (is_rope && dense.rank() == 2) return fill_rope(dense);
      if (dense.numel() != 0) std::fill_n(dense.bytes(), dense.storage->bytes(), std::byte{0});
    });
  }

  static void fill_rope(const Tensor& dense) {
    const std::int64_t columns = dense.sizes[1];
    const bool is_pair = is_complex(dense.dtype);
    const std::int64_t count = is_pair ? columns : std::max<std::int64_t>(columns / 2, 1);
    for (std::int64_t t = 0; t < dense.sizes[0]; ++t) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const double exponent = static_cast<double>(j % count) / static_cast<double>(count);
        const double angle = static_cast<double>(t) * std::pow(10000.0, -exponent);
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

  std::vector<Value> make_tokens(std::size_t i, std::uint64_t first) {
    const auto found = find_vocabulary();
    if (!found) refuse(i, "no parameter's name tells the vocabulary");
    const auto vocabulary = static_cast<std::uint64_t>(*found);
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      const Stream stream(seed_, batch_key("tokens", rank));
      for (std::int64_t k = 0; k < dense.numel(); ++k)
        store_integer(
            dense, k,
            static_cast<std::int64_t>(stream.bits(first + static_cast<std::uint64_t>(k)) % vocabulary));
    });
  }

  std::int64_t count_tokens(std::size_t asked_by) const {
    for (std::size_t i = 0; i < placeholders_.size(); ++i)
      if (role_text(i, &InputRole::which) == "tokens") return count_elements(type_of(i).sizes);
    refuse(asked_by, "the graph has no input `tokens`");
  }

  std::vector<Value> make_user(std::size_t i) {
    const std::string_view which = role_text(i, &InputRole::which);
    if (which == "tokens") return make_tokens(i, 0);
    if (which == "labels") return make_tokens(i, 1);
    if (which == "global_valid_tokens") {
      const std::int64_t count = count_tokens(i) * batch_count();
      return make_tensors(i, [&](Rank, const Tensor& dense) {
        for (std::int64_t k = 0; k < dense.numel(); ++k) store_integer(dense, k, count);
      });
    }
    if (which.find("positions") != std::string_view::npos)
      return make_tensors(i, [&](Rank, const Tensor& dense) {
        for (std::int64_t k = 0; k < dense.numel(); ++k) store_integer(dense, k, k % document_);
      });
    if (which.find("attention_masks") != std::string_view::npos) return make_mask_part(i, which);
    if (!is_floating(type_of(i).dtype)) refuse(i, "no recipe knows it");
    const std::string name(graph_.text(node_of(i).name));
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      const Stream stream(seed_, batch_key(name, rank));
      for (std::int64_t k = 0; k < dense.numel(); ++k)
        store_number(dense, k, number(stream, static_cast<std::uint64_t>(k)));
    });
  }

  double number(const Stream& stream, std::uint64_t index) const {
    return kind_ == DataKind::kReal ? stream.uniform(index) : stream.integer(index);
  }

  std::vector<Value> make_mask_part(std::size_t i, std::string_view which) {
    const std::string_view field = which.substr(which.rfind('.') + 1);
    if (field == "_closure_0")
      return make_tensors(i, [&](Rank, const Tensor& dense) {
        for (std::int64_t k = 0; k < dense.numel(); ++k) store_integer(dense, k, k / document_);
      });
    if (field == "_closure_1") {
      const std::int64_t tokens = count_tokens(i);
      return make_tensors(i, [&](Rank, const Tensor& dense) {
        for (std::int64_t k = 0; k < dense.numel(); ++k)
          store_integer(dense, k, std::min(k * document_, tokens));
      });
    }
    const auto table = find_block_table(field);
    if (!table) refuse(i, "no recipe knows this part of a block mask");
    const BlockMaskUse use = find_block_mask_use(graph_, placeholders_[i]);
    if (!use.call) refuse(i, "no FlexAttention call takes it");
    const std::vector<bool> blocks = evaluate_mask(i, use);
    return make_tensors(
        i, [&](Rank, const Tensor& dense) { write_block_table(*table, blocks_, blocks, dense); });
  }

  // Evaluates the mask on all pairs; leaves the shape in blocks_.
  std::vector<bool> evaluate_mask(std::size_t asked_by, const BlockMaskUse& use) {
    std::vector<Value> captured;
    for (Arg arg : context_.args.children(use.captured)) {
      if (!arg.is_node()) {
        if (!arg.is_int()) refuse(asked_by, "its mask function captures something unknown");
        captured.emplace_back(arg.as_int());
        continue;
      }
      const auto at = std::find(placeholders_.begin(), placeholders_.end(), arg.as_node());
      if (at != placeholders_.end()) {
        captured.push_back(make_input(static_cast<std::size_t>(at - placeholders_.begin()))[0]);
        continue;
      }
      captured.emplace_back(number_of(asked_by, arg));
    }
    blocks_ = {type_of(asked_by).sizes[0],          type_of(asked_by).sizes[1],
               number_of(asked_by, use.rows),       number_of(asked_by, use.columns),
               number_of(asked_by, use.block_rows), number_of(asked_by, use.block_columns)};
    const Body* nested = graph_.find_body(use.mask);
    if (nested == nullptr) refuse(asked_by, "its mask function is not in the file");
    return evaluate_pairs(make_function(graph_, *nested, kernels_, memory_), blocks_, captured, memory_);
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
  std::uint64_t seed_;
  DataKind kind_;
  Symbols symbols_;
  HostMemory memory_;
  std::vector<NodeId> placeholders_;
  std::int64_t document_ = kDefaultDocument;
  BlockShape blocks_;
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
