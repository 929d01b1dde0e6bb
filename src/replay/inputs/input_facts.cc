#include "replay/inputs/input_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave::replay {
namespace {

InputProblem no_numbers() {
  return {"its extents have no numbers",
          "give their symbols a `hint`, or make them numbers (epweave rewrite G -p concretize)"};
}
constexpr const char* kExportAgain = "export it again (epweave.export), which records types as they are";

}  // namespace

InputFacts::InputFacts(const Graph& graph, const World& world, std::string path)
    : graph_(graph), context_(*graph.context), world_(world), path_(std::move(path)), symbols_(graph) {
  for (NodeId id : graph.step().order)
    if (graph.step().nodes[id].kind == NodeKind::kPlaceholder) placeholders_.push_back(id);
  bind_hints();
  find_meshes();
}

// A mesh is an entry of its parameter behind those of the parameter's tensors.
void InputFacts::find_meshes() {
  meshes_.resize(placeholders_.size(), Arg::none());
  for (std::size_t i = placeholders_.size(); i-- > 1;) {
    if (role_text(i, &InputRole::fqn) != role_text(i - 1, &InputRole::fqn) ||
        role_text(i, &InputRole::which) != role_text(i - 1, &InputRole::which))
      continue;
    const TypeId type = node_of(i).type;
    const bool is_mesh = type && context_.types[type].kind == TypeKind::kValue &&
                         context_.types[type].value.is(ArgKind::kMesh);
    meshes_[i - 1] = is_mesh ? context_.types[type].value : meshes_[i];
  }
}

void InputFacts::bind_hints() {
  const auto is_input = [&, mentioned = find_input_symbols()](const Symbol& symbol) {
    return mentioned.contains(symbol.name) || !symbol.unbacked.value_or(false);
  };
  for (const Symbol& symbol : graph_.symbols)
    if (symbol.hint && is_input(symbol)) symbols_.bind(symbol.name, *symbol.hint);
}

// Those that an input binds, or has an extent of: 2*u0.
IdSet<StringId> InputFacts::find_input_symbols() const {
  IdSet<StringId> found;
  for (NodeId id : placeholders_) {
    const Node& node = graph_.step().nodes[id];
    if (node.extra != nullptr)
      for (const Binding& binding : node.extra->bindings) found.insert(binding.symbol);
    if (const TensorType* type = tensor_of(context_, node.type))
      for (ExprId size : type->sizes)
        for (StringId symbol : graph_.context->exprs.symbols(size)) found.insert(symbol);
  }
  return found;
}

const InputRole* InputFacts::role_of(std::size_t i) const {
  return i < graph_.inputs.size() ? &graph_.inputs[i] : nullptr;
}

std::string_view InputFacts::role_text(std::size_t i, StringId InputRole::*field) const {
  const InputRole* role = role_of(i);
  return role == nullptr ? std::string_view() : graph_.text(role->*field);
}

const Arg* InputFacts::find_more(std::size_t i, std::string_view key) const {
  const InputRole* role = role_of(i);
  return role == nullptr ? nullptr : find_entry(context_, role->more, key);
}

void InputFacts::refuse(std::size_t i, std::string_view why) const {
  std::string role(role_text(i, &InputRole::role));
  if (const std::string_view name = recipe_name(i); name != graph_.text(node_of(i).name))
    role += fmt::format("{}{}", role.empty() ? "" : " ", name);
  throw InputError(fmt::format("{}{}input %{}{} cannot be made: {}", path_, path_.empty() ? "" : ": ",
                               graph_.text(node_of(i).name), role.empty() ? "" : " (role " + role + ")",
                               why));
}

void InputFacts::refuse(std::size_t i, const InputProblem& problem) const {
  refuse(i, problem.what + (problem.remedy.empty() ? "" : "; ") + problem.remedy);
}

InputProblem InputFacts::type_problem(std::size_t i) const {
  const TypeId id = node_of(i).type;
  if (!id) return {"no type is recorded", kExportAgain};
  const Type& type = context_.types[id];
  if (type.kind == TypeKind::kValue) return {};
  if (type.kind == TypeKind::kScalar)
    return type.expr && symbols_.evaluate(type.expr)
               ? InputProblem()
               : InputProblem{"the size was computed from data before the graph begins, and none is recorded",
                              "give its symbol a `hint`"};
  const TensorType* tensor = tensor_of(context_, id);
  if (tensor == nullptr) return {"it is a tuple", "make its elements inputs of their own"};
  const auto evaluated = evaluate(symbols_, *tensor);
  if (!evaluated) return no_numbers();
  const bool has_negative = std::ranges::any_of(evaluated->sizes, [](std::int64_t e) { return e < 0; });
  if (!has_negative) return {};
  return {fmt::format("it has the extents [{}]", fmt::join(evaluated->sizes, ", ")), kExportAgain};
}

InputProblem InputFacts::problem(std::size_t i) const {
  InputProblem found = type_problem(i);
  if (!found.empty() || !is_global(i) || tensor_of(context_, node_of(i).type) == nullptr) return found;
  Shard shard = find_shard(i, type_of(i).sizes);
  return {std::move(shard.problem), std::move(shard.remedy)};
}

ResultType InputFacts::type_of(std::size_t i) const {
  const TensorType* type = tensor_of(context_, node_of(i).type);
  const auto evaluated = type == nullptr ? std::nullopt : evaluate(symbols_, *type);
  if (!evaluated) refuse(i, no_numbers());
  return *evaluated;
}

std::string_view InputFacts::recipe_name(std::size_t i) const {
  const InputRole* role = role_of(i);
  const std::string_view recorded =
      role == nullptr ? std::string_view() : graph_.text(role->fqn ? role->fqn : role->which);
  return recorded.empty() ? graph_.text(node_of(i).name) : recorded;
}

std::vector<std::int64_t> InputFacts::read_extents(Arg list) const {
  std::vector<std::int64_t> extents;
  if (list.is_list())
    for (Arg item : context_.args.children(list))
      if (item.is_int()) extents.push_back(item.as_int());
  return extents;
}

Cuts InputFacts::cuts_of(std::size_t i, const Extents& global, const Extents& local) const {
  const Arg mesh = meshes_[i];
  std::vector<MeshAxis> axes;
  if (mesh.is(ArgKind::kMesh)) axes = read_mesh_axes(context_, mesh);
  if (const Arg* placements = find_more(i, "placements"))
    return read_cuts(context_, {*placements, find_more(i, "shard_order"), std::move(axes)}, local.size());
  // Older files: along an axis of replicas (HSDP's `replicate`, torchtitan's `dp_replicate`) all
  // ranks have the same piece.
  const Arg names = mesh.is(ArgKind::kMesh) ? context_.args.children(mesh)[0] : Arg::none();
  const auto items = names.is_list() ? context_.args.children(names) : std::span<const Arg>();
  for (std::size_t d = std::min(axes.size(), items.size()); d-- > 0;)
    if (items[d].is(ArgKind::kText) && context_.text(items[d].as_name()).ends_with("replicate"))
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(d));
  return find_cuts(global, local, axes);
}

Shard InputFacts::find_shard(std::size_t i, const Extents& local) const {
  const Arg* recorded = find_more(i, "global_shape");
  const Extents global = recorded == nullptr ? local : read_extents(*recorded);
  return cut_shard(global, local, cuts_of(i, global, local));
}

Shard InputFacts::shard_of(std::size_t i, const Extents& local) const {
  Shard shard = find_shard(i, local);
  if (!shard.problem.empty()) refuse(i, InputProblem{shard.problem, shard.remedy});
  return shard;
}

bool InputFacts::is_global(std::size_t i) const {
  const std::string_view role = role_text(i, &InputRole::role);
  return role == "parameter" || role == "buffer";
}

std::string InputFacts::batch_key(std::size_t i, std::string_view name, Rank rank) const {
  if (find_more(i, "placements") != nullptr) {
    if (const Shard shard = find_shard(i, type_of(i).sizes); shard.problem.empty()) {
      std::vector<std::int64_t> first;
      for (const std::vector<IndexRun>& runs : shard.runs_of(rank))
        first.push_back(runs.empty() ? 0 : runs.front().first);
      return fmt::format("{}/{}", name, fmt::join(first, ","));
    }
  }
  return fmt::format("{}/{}", name, find_coordinate(world_, "batch", rank).value_or(rank));
}

std::int64_t InputFacts::batch_count() const {
  for (const Mesh& mesh : world_.meshes)
    for (std::size_t d = 0; d < mesh.axes.size(); ++d)
      if (mesh.axes[d] == "batch") return mesh.shape[d];
  return world_.size;
}

std::optional<std::int64_t> InputFacts::find_vocabulary() const {
  for (std::size_t i = 0; i < placeholders_.size(); ++i) {
    if (role_text(i, &InputRole::role) != "parameter") continue;
    if (role_text(i, &InputRole::fqn).find("embed") == std::string_view::npos) continue;
    const Arg* global = find_more(i, "global_shape");
    const Extents shape = global == nullptr ? type_of(i).sizes : read_extents(*global);
    if (!shape.empty()) return shape[0];
  }
  return std::nullopt;
}

std::int64_t InputFacts::count_tokens(std::size_t asked_by) const {
  std::optional<std::size_t> of_each;
  for (std::size_t i = 0; i < placeholders_.size(); ++i) {
    const std::string_view which = role_text(i, &InputRole::which);
    // A pipeline stage is given activations in their place.
    if ((which == "tokens" || which == "input_ids") && !is_floating(type_of(i).dtype))
      return count_elements(type_of(i).sizes);
    if (!of_each && (which == "labels" || which.find("positions") != std::string_view::npos)) of_each = i;
  }
  if (of_each) return count_elements(type_of(*of_each).sizes);
  refuse(asked_by,
         "the graph has no input `tokens` or `input_ids`, nor another that has a number for each token");
}

bool InputFacts::reads_elements(std::size_t i) const {
  const Body& step = graph_.step();
  return std::ranges::any_of(step.order, [&](NodeId id) {
    const Node& node = step.nodes[id];
    bool takes = false;
    for_each_input(context_, node, [&](NodeId input) { takes = takes || input == placeholders_[i]; });
    return takes && !has_family(node, OpFamily::kSize);
  });
}

std::int64_t InputFacts::number_of(std::size_t asked_by, Arg arg) const {
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

std::optional<double> InputFacts::expected_loss() const {
  const auto vocabulary = find_vocabulary();
  if (!vocabulary) return std::nullopt;
  return std::log(static_cast<double>(*vocabulary)) / static_cast<double>(batch_count());
}

}  // namespace epweave::replay
