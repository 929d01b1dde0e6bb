#include "replay/inputs/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/parallel.h"
#include "ops/op.h"
#include "replay/inputs/block_mask.h"
#include "replay/inputs/indexed_extents.h"
#include "replay/inputs/input_facts.h"
#include "replay/inputs/recipe_advice.h"
#include "replay/kernels/kernel.h"
#include "replay/kernels/math/portable_math.h"
#include "replay/values/compare.h"
#include "replay/values/evaluate.h"
#include "replay/values/random_numbers.h"

namespace epweave::replay {
namespace {

constexpr std::int64_t kDefaultDocument = 256;
constexpr std::int64_t kWorthThreads = std::int64_t{1}
                                       << 15;  // elements that take longer to make than threads do

struct ElementRange {
  std::int64_t first, count;
};
// Writes number(k) into element first + k of a row-major tensor, for k < count.
template <class Number>
void store_numbers(const Tensor& dense, const ElementRange& range, const Number& number) {
  if (dense.dtype == DType::kFloat32) {
    float* to = dense.data<float>() + range.first;
    for (std::int64_t k = 0; k < range.count; ++k) to[k] = static_cast<float>(number(k));
  } else if (dense.dtype == DType::kBfloat16) {
    std::uint16_t* to = dense.data<std::uint16_t>() + range.first;
    for (std::int64_t k = 0; k < range.count; ++k)
      to[k] = math::bf16_from_float(static_cast<float>(number(k)));
  } else {
    for (std::int64_t k = 0; k < range.count; ++k) store_number(dense, range.first + k, number(k));
  }
}

class InputMaker {
 public:
  InputMaker(const Graph& graph, const World& world, const KernelTable& kernels, InputData data)
      : graph_(graph),
        context_(*graph.context),
        world_(world),
        kernels_(kernels),
        facts_(graph, world, data.path),
        data_(std::move(data)),
        recipe_(data_.recipe == nullptr ? torchtitan_recipe() : *data_.recipe),
        names_(list_input_names(graph)) {
    for (std::string_view option : {"sequence", "ctx"}) read_document(option);
    if (recipe_.document) document_ = *recipe_.document;
  }

  // Refuses what no recipe makes.
  void require() const {
    for (std::size_t i = 0; i < facts_.size(); ++i) {
      const InputProblem problem = is_in_files(i) ? facts_.type_problem(i) : facts_.problem(i);
      if (!problem.empty()) facts_.refuse(i, problem);
    }
  }

  std::vector<RankInputs> make() {
    require();
    std::vector<RankInputs> inputs(world_.size);
    for (std::size_t i = 0; i < facts_.placeholders().size(); ++i) {
      std::vector<Value> values = make_input(i);
      for (Rank rank = 0; rank < world_.size; ++rank) inputs[rank].push_back(std::move(values[rank]));
    }
    return inputs;
  }

 private:
  void read_document(std::string_view option) {
    const Arg* options = find_entry(context_, graph_.info, "options");
    const Arg* rows = options == nullptr ? nullptr : find_entry(context_, *options, option);
    if (rows != nullptr && rows->is_int() && rows->as_int() > 0) document_ = rows->as_int();
  }

  std::vector<Value> make_input(std::size_t i) {
    if (const InputProblem problem = facts_.type_problem(i); !problem.empty()) facts_.refuse(i, problem);
    const Type& type = context_.types[facts_.node_of(i).type];
    if (type.kind == TypeKind::kValue) return same(Text{type.value.kind(), "known when traced"});
    if (type.kind == TypeKind::kScalar) return same(*facts_.symbols().evaluate(type.expr));
    if (auto values = read_from_files(i)) return *std::move(values);
    const RecipeRow* row = recipe_.find({facts_.role_text(i, &InputRole::role), facts_.recipe_name(i),
                                         facts_.type_of(i).sizes.size(), facts_.type_of(i).dtype});
    if (row != nullptr) return make_by(*row, i);
    const auto extent = indexed_extent_of(i);
    if (!extent) refuse_with_row(i, "no row of the recipe fits it");
    return make_by({.make = Generator::kIntegers, .below = *extent}, i);
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
        const std::int64_t count = facts_.count_tokens(i) * facts_.batch_count();
        return make_integers(i, [&](std::int64_t) { return count; });
      }
      case Generator::kPositions:
        return make_integers(i, [&](std::int64_t k) { return k % document_; });
      case Generator::kDocuments:
        return make_integers(i, [&](std::int64_t k) { return k / document_; });
      case Generator::kDocumentStarts: {
        const std::int64_t tokens = facts_.count_tokens(i);
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
    const ResultType type = facts_.type_of(i);
    std::vector<Value> values(world_.size);
    for (Rank rank = 0; rank < world_.size; ++rank)
      if (!data_.only || *data_.only == rank) values[rank] = make_tensor_of(type, rank, fill);
    return values;
  }
  // The same where fill may be called for all ranks at once.
  template <class Fill>
  std::vector<Value> make_tensors_in_parallel(std::size_t i, const Fill& fill) {
    const ResultType type = facts_.type_of(i);
    std::vector<Value> values(world_.size);
    const auto make_one = [&](std::size_t index) {
      const auto rank = static_cast<Rank>(index);
      if (!data_.only || *data_.only == rank) values[rank] = make_tensor_of(type, rank, fill);
    };
    if (count_elements(type.sizes) >= kWorthThreads) {
      for_each_in_parallel(world_.size, make_one);
    } else {
      for (Rank rank = 0; rank < world_.size; ++rank) make_one(rank);
    }
    return values;
  }

  template <class Fill>
  Value make_tensor_of(const ResultType& type, Rank rank, const Fill& fill) {
    Tensor dense = make_tensor(memory_, type.dtype, type.sizes);
    fill(rank, dense);
    if (type.strides == dense.strides && type.offset == 0) return dense;
    Extents covering = type.sizes;  // an offset is storage in front
    Tensor strided = make_tensor(memory_, type.dtype, std::move(covering), type.strides);
    scatter_elements(dense.bytes(), strided);
    return strided;
  }

  // number(random, k) is element k of the global tensor, or of the batch coordinate's.
  template <class Number>
  std::vector<Value> make_numbers(std::size_t i, const Number& number) {
    const std::string name(facts_.recipe_name(i));
    if (!facts_.is_global(i))
      return make_tensors_in_parallel(i, [&](Rank rank, const Tensor& dense) {
        const RandomNumbers random(data_.seed,
                                   facts_.batch_key(i, graph_.text(facts_.node_of(i).name), rank));
        store_numbers(dense, {0, dense.numel()},
                      [&](std::int64_t k) { return number(random, static_cast<std::uint64_t>(k)); });
      });
    const Shard shard = facts_.shard_of(i, facts_.type_of(i).sizes);
    const RandomNumbers random(data_.seed, name);
    return make_tensors_in_parallel(i, [&](Rank rank, const Tensor& dense) {
      for_each_run(shard.runs_of(rank), shard.global,
                   [&](std::int64_t local, std::int64_t global, std::int64_t length) {
                     store_numbers(dense, {local, length}, [&](std::int64_t k) {
                       return number(random, static_cast<std::uint64_t>(global + k));
                     });
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
    if (const Extents sizes = facts_.type_of(i).sizes; !row.scale && !sizes.empty()) {
      const Shard shard = facts_.shard_of(i, sizes);
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

  bool is_in_files(std::size_t i) const {
    if (data_.files == nullptr) return false;
    for (Rank rank = 0; rank < world_.size; ++rank)
      if (data_.files->find(names_[i], rank).entry != nullptr) return true;
    return false;
  }

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
    if (missing)
      facts_.refuse(i, fmt::format("the files have it for other ranks, but not for rank {}", *missing));
    const ResultType type = facts_.type_of(i);
    for (const InputFiles::Found& of_rank : found) check_stored(i, type, of_rank);
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      read_stored(i, found[rank], {rank, dense});
    });
  }

  void check_stored(std::size_t i, const ResultType& type, const InputFiles::Found& found) const {
    const std::string& name = found.entry->first;
    const auto& stored = found.entry->second;
    const auto fail = [&](std::string_view what) {
      throw InputError(fmt::format("{}: tensor `{}` is {} {}, input %{} is {} {}{}", found.file->path(), name,
                                   info(stored.dtype).short_name, print(stored.sizes), names_[i].node,
                                   info(type.dtype).short_name, print(type.sizes), what));
    };
    if (stored.dtype != type.dtype) fail("");
    if (stored.sizes == type.sizes) return;
    if (found.is_of_rank || !facts_.has_global_shape(i)) fail("");
    const Shard shard = facts_.shard_of(i, type.sizes);
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
      const Shard shard = facts_.shard_of(i, dense.sizes);
      for_each_run(shard.runs_of(to.rank), shard.global, read);
    }
    if (dense.dtype != DType::kBool) return;
    for (std::int64_t k = 0; k < dense.numel(); ++k)
      if (dense.bytes()[k] > std::byte{1})
        throw InputError(fmt::format("{}: tensor `{}` has a bool that is neither 0 nor 1", found.file->path(),
                                     found.entry->first));
  }

  // --- rotary embedding ---

  std::vector<Value> make_rope(const RecipeRow& row, std::size_t i) {
    if (facts_.type_of(i).sizes.size() != 2)
      facts_.refuse(i, "a rotary embedding's table has two dimensions");
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

  [[noreturn]] void refuse_with_row(std::size_t i, std::string_view why) const {
    std::vector<RecipeAdvice> advice = advise_rows(graph_, facts_, recipe_);
    std::erase_if(advice, [&](const RecipeAdvice& row) { return is_in_files(row.place); });
    const std::string what = recipe_.path.empty()
                                 ? "write a recipe and give it with --recipe FILE: " + recipe_of(advice)
                                 : fmt::format("add to the inputs of {}: {}", recipe_.path, rows_of(advice));
    const std::string guesses = name_guesses(graph_, advice);
    facts_.refuse(i, fmt::format("{}\n  {}{}{}", why, what, guesses.empty() ? "" : "\n  ", guesses));
  }

  // How many places there are where the input's elements choose one; in the original, whose inputs
  // a rewritten graph takes.
  std::optional<std::int64_t> indexed_extent_of(std::size_t i) {
    if (!indexed_) indexed_.emplace(data_.original == nullptr ? graph_ : *data_.original);
    return indexed_->of(graph_.text(facts_.node_of(i).name));
  }

  std::vector<Value> make_tokens(const RecipeRow& row, std::size_t i) {
    auto found = facts_.find_vocabulary();
    if (const auto extent = indexed_extent_of(i))
      found = found && *found > 0 ? std::min(*found, *extent) : *extent;
    if (!found && !facts_.reads_elements(i)) return make_integers(i, [](std::int64_t) { return 0; });
    if (!found || *found <= 0) refuse_with_row(i, "no parameter's name tells the vocabulary");
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      const RandomNumbers random(data_.seed, facts_.batch_key(i, "tokens", rank));
      for (std::int64_t k = 0; k < dense.numel(); ++k)
        store_integer(dense, k,
                      static_cast<std::int64_t>(random.bits(static_cast<std::uint64_t>(row.first + k)) %
                                                static_cast<std::uint64_t>(*found)));
    });
  }

  // --- block tables ---

  std::optional<std::vector<Value>> make_as_in_original(std::size_t i) {
    if (data_.original == nullptr) return std::nullopt;
    if (!original_) {
      InputData data = data_;
      data.original = nullptr;
      data.path = data.original_path;
      original_ = std::make_unique<InputMaker>(*data_.original, world_, kernels_, data);
    }
    const std::string_view name = graph_.text(facts_.node_of(i).name);
    const InputFacts& facts = original_->facts_;
    for (std::size_t k = 0; k < facts.size(); ++k)
      if (data_.original->text(facts.node_of(k).name) == name) return original_->make_input(k);
    return std::nullopt;
  }

  std::vector<Value> make_block_table(std::size_t i) {
    const std::string_view name = facts_.recipe_name(i);
    auto table = find_block_table(name.substr(name.rfind('.') + 1));
    if (!table) facts_.refuse(i, "its name is not that of a block table");
    const BlockMaskUse use = find_block_mask_use(graph_, facts_.placeholders()[i]);
    if (!use.call) {
      if (auto made = make_as_in_original(i)) return std::move(*made);
      if (!facts_.reads_elements(i)) return make_integers(i, [](std::int64_t) { return 0; });
      facts_.refuse(i, "no FlexAttention call takes it");
    }
    table->is_only = !use.has_full_tables;
    const Extents sizes = facts_.type_of(i).sizes;
    if (sizes.size() < 2) facts_.refuse(i, "a block table has a batch and a head dimension");
    const BlockShape shape{sizes[0],
                           sizes[1],
                           facts_.number_of(i, use.rows),
                           facts_.number_of(i, use.columns),
                           facts_.number_of(i, use.block_rows),
                           facts_.number_of(i, use.block_columns)};
    const std::vector<Value> captured = make_captured(i, use);
    return make_tensors(i, [&](Rank rank, const Tensor& dense) {
      write_block_table(*table, shape, find_pairs(i, {use, shape, captured[rank]}), dense);
    });
  }

  // What the mask function captures, a list for each rank.
  std::vector<Value> make_captured(std::size_t asked_by, const BlockMaskUse& use) {
    std::vector<List> lists(world_.size);
    for (Arg arg : context_.args.children(use.captured)) {
      std::vector<Value> values;
      const auto at =
          arg.is_node() ? std::find(facts_.placeholders().begin(), facts_.placeholders().end(), arg.as_node())
                        : facts_.placeholders().end();
      if (at != facts_.placeholders().end())
        values = make_input(static_cast<std::size_t>(at - facts_.placeholders().begin()));
      else
        values = same(facts_.number_of(asked_by, arg));
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
    const Value& captured;  // a list
  };
  // The mask on all pairs. The tables of one mask, of all ranks, follow one another: the last one
  // is kept.
  const std::vector<bool>& find_pairs(std::size_t asked_by, const MaskCall& call) {
    const List& captured = call.captured.as<List>();
    if (last_mask_ == call.use.mask && last_shape_ == call.shape && have_same_bits(last_captured_, captured))
      return last_pairs_;
    const Body* nested = graph_.find_body(call.use.mask);
    if (nested == nullptr) facts_.refuse(asked_by, "its mask function is not in the file");
    const Function mask = make_function(graph_, *nested, kernels_, memory_);
    try {
      last_pairs_ = evaluate_pairs(mask, call.shape, captured.items, memory_);
    } catch (const KernelError& error) {  // a recipe may make what the function captures as it says
      facts_.refuse(asked_by, fmt::format("its mask function fails on what it captures: {}", error.what()));
    }
    last_mask_ = call.use.mask;
    last_shape_ = call.shape;
    last_captured_ = captured;
    return last_pairs_;
  }

  const Graph& graph_;
  const Context& context_;
  const World& world_;
  const KernelTable& kernels_;
  InputFacts facts_;
  InputData data_;
  const Recipe& recipe_;
  std::vector<InputName> names_;
  std::optional<IndexedExtents> indexed_;  // once it is asked
  HostMemory memory_;
  StringId last_mask_;
  BlockShape last_shape_;
  List last_captured_;
  std::vector<bool> last_pairs_;
  std::int64_t document_ = kDefaultDocument;
  std::unique_ptr<InputMaker> original_;  // of data_.original, once it is asked
};

}  // namespace

void require_inputs(const Graph& graph, const World& world, const InputData& data) {
  const KernelTable no_kernels;
  InputMaker(graph, world, no_kernels, data).require();
}

std::vector<RankInputs> make_inputs(const Graph& graph, const World& world, const KernelTable& kernels,
                                    InputData data) {
  return InputMaker(graph, world, kernels, std::move(data)).make();
}

std::optional<double> find_expected_loss(const Graph& graph, const World& world) {
  return InputFacts(graph, world).expected_loss();
}

}  // namespace epweave::replay
