#include "doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "analysis/all_to_alls.h"
#include "analysis/collectives.h"
#include "analysis/eager_chunks.h"
#include "analysis/ep_regions.h"
#include "analysis/layers.h"
#include "analysis/module_path.h"
#include "analysis/token_inputs.h"
#include "analysis/user_inputs.h"
#include "analysis/users.h"
#include "analysis/world.h"
#include "base/counted.h"
#include "base/error.h"
#include "division_trial.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "pipeline/pipeline.h"
#include "placement/token_extent.h"
#include "replay/inputs/recipe_advice.h"

namespace epweave::cli {
namespace {

constexpr std::size_t kShownCases = 3;
constexpr std::string_view kAnnotate = "epweave.annotate(graph_module)  # before epweave.export";
constexpr std::string_view kTrace = "step = epweave.trace(step_function, model, inputs)";

struct TopicUse {
  std::string_view name;  // of a pass, or of what else reads a graph
  std::vector<std::string_view> topics;
};

const std::vector<TopicUse>& topic_uses() {
  static const std::vector<TopicUse> uses = {
      {"memory-policy", {"modules", "directions"}},
      {"cpu-offload", {"modules", "directions"}},
      {"recompute", {"directions"}},
      {"symbolize", {"roles"}},
      {"chunk", {"modules", "directions", "tokens", "exchanges", "division", "operators"}},
      {"choose-chunks", {"modules", "directions", "tokens", "exchanges", "division", "operators"}},
      {"mark-eager-chunks", {"modules", "directions"}},
      {"isolate-ep-pg", {"exchanges", "groups"}},
      {"reassign-pgs", {"groups"}},
      {"bucket", {"modules", "directions", "groups"}},
      {"overlap-ep", {"modules", "directions", "exchanges"}},
      {"schedule", {"directions", "groups", "operators"}},
      {"specialize", {"groups"}},
      {"partition", {"directions", "roles"}},
      {"replay", {"roles", "groups", "operators", "inputs"}},
  };
  return uses;
}

// One walk over the step: what the findings count.
struct Survey {
  std::size_t forward = 0, backward = 0;              // calls
  std::size_t named_forward = 0, named_backward = 0;  // of which say their module
  std::vector<NodeId> exchanges;                      // all-to-alls that deal rows out
  std::size_t shifts = 0;                             // other all-to-alls
  std::map<std::string_view, std::size_t> unknown;    // targets without a row in the op table
  std::set<std::string_view> divided;                 // modules in parts
  bool has_divided_exchange = false;                  // of tokens, with its label
  bool has_unmarked_parts = false;                    // divided in eager mode
};

Survey survey(const Graph& graph) {
  Survey found;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kCall) continue;
    ++(node.is_backward() ? found.backward : found.forward);
    if (node.module) ++(node.is_backward() ? found.named_backward : found.named_forward);
    if (node.chunk.region) {
      found.divided.insert(graph.text(node.chunk.region));
      if (node.ep.token_exchange) found.has_divided_exchange = true;
    } else if (find_eager_notes(*graph.context, node)) {
      found.has_unmarked_parts = true;
    }
    if (node.op == nullptr) {
      ++found.unknown[graph.text(node.target)];
      continue;
    }
    if (is_row_exchange(*graph.context, node))
      found.exchanges.push_back(id);
    else if (node.op->family == OpFamily::kAllToAll)
      ++found.shifts;
  }
  return found;
}

bool moves_tokens(const Graph& graph, const Node& node) {
  const TensorType* type = tensor_of(*graph.context, node.type);
  return !node.ep.token_count_exchange && (type == nullptr || is_floating(type->dtype));
}

// --------------------------------------------------------------------------- modules that exchange

// "layers.0.moe" of layers.0.moe.dispatcher and layers.0.moe.experts.
std::string common_path(const std::string& a, const std::string& b) {
  std::size_t end = 0;
  for (std::size_t i = 0; i <= a.size() && i <= b.size(); ++i) {
    const bool a_ends = i == a.size() || a[i] == '.', b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) break;
  }
  return a.substr(0, end);
}

// Up to and with the first number: the exchanges of one layer are of one module.
std::string layer_of(std::string_view path) {
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos)
      return std::string(path.substr(0, end));
    begin = end + 1;
  }
  return std::string(path);
}

// Patterns of the modules that exchange tokens, each the smallest that holds all exchanges of a
// layer.
std::vector<std::string> find_exchanging_modules(const Graph& graph, const Survey& seen) {
  std::map<std::string, std::string> of_layer;
  for (NodeId id : seen.exchanges) {
    const Node& node = graph.step().nodes[id];
    if (!node.module || !moves_tokens(graph, node)) continue;
    const std::string path(graph.text(node.module));
    const auto [at, is_new] = of_layer.emplace(layer_of(path), path);
    if (!is_new) at->second = common_path(at->second, path);
  }
  std::set<std::string> roots;
  for (const auto& [layer, path] : of_layer) roots.insert(generic_module(path));
  return {roots.begin(), roots.end()};
}

// --------------------------------------------------------------------------- findings

std::string describe_site(const Site& site) {
  return fmt::format("%{} ({}){}", site.node, site.op, site.source.empty() ? "" : " at " + site.source);
}

std::string describe_node(const Graph& graph, const Node& node) {
  return describe_site(site_of(graph, node));
}

Finding check_modules(const Survey& seen, const std::vector<std::string>& exchanging) {
  const std::size_t calls = seen.forward + seen.backward, named = seen.named_forward + seen.named_backward;
  Finding finding{"modules", Health::kHas, fmt::format("{} of {} calls say their module", named, calls),
                  {},        {},           {}};
  if (!exchanging.empty())
    finding.found += fmt::format("; tokens are exchanged in {}", fmt::join(exchanging, ", "));
  const bool lacks_backward = seen.backward != 0 && seen.named_backward == 0;
  if (calls == 0 || (named != 0 && !lacks_backward)) return finding;
  finding.health = Health::kLacks;
  if (named != 0) finding.found += ", and no backward call does";
  finding.costs = "no pattern of modules selects anything: chunk divides nothing, bucket knows no layers";
  finding.add = {std::string(kAnnotate) + ", from nn_module_stack and seq_nr",
                 std::string(kTrace) + "  # names modules itself"};
  return finding;
}

bool has_output(const Graph& graph, std::string_view role) {
  return std::ranges::any_of(graph.outputs,
                             [&](const OutputRole& output) { return graph.text(output.role) == role; });
}

Finding check_directions(const Graph& graph, const Survey& seen) {
  Finding finding{"directions",
                  Health::kHas,
                  fmt::format("{} of forward, {} of backward", counted(seen.forward, "call"), seen.backward),
                  {},
                  {},
                  {}};
  if (seen.backward != 0) return finding;
  finding.health = Health::kLacks;
  finding.costs =
      "the graph passes for a forward pass: nothing is recomputed or offloaded, backward's exchanges are "
      "scheduled as forward's, and partition declines it";
  if (has_output(graph, "grad")) finding.add.push_back(std::string(kAnnotate) + ", from partitioner_tag");
  finding.add.push_back(std::string(kTrace) + "  # forward, loss and backward");
  return finding;
}

Finding check_roles(const Graph& graph) {
  std::map<std::string_view, std::size_t> inputs, outputs;
  for (const InputRole& input : graph.inputs) ++inputs[graph.text(input.role)];
  for (const OutputRole& output : graph.outputs) ++outputs[graph.text(output.role)];
  const auto list = [](const std::map<std::string_view, std::size_t>& counts) {
    std::vector<std::string> words;
    for (const auto& [role, count] : counts)
      words.push_back(fmt::format("{} {}", count, role.empty() ? "without role" : role));
    return words.empty() ? std::string("none") : fmt::format("{}", fmt::join(words, ", "));
  };
  Finding finding{"roles", Health::kHas, fmt::format("inputs: {}; outputs: {}", list(inputs), list(outputs)),
                  {},      {},           {}};
  const bool lacks_inputs = !inputs.contains("parameter"),
             lacks_outputs = !outputs.contains("loss") && !outputs.contains("grad");
  if (!lacks_inputs && !lacks_outputs) return finding;
  finding.health = Health::kLacks;
  finding.costs =
      "parameters pass for a batch: the replay gives each rank others, symbolize looks for tokens among "
      "them, "
      "and partition cannot tell gradients from results";
  if (lacks_inputs)
    finding.add.push_back(
        R"(epweave.export(.., inputs=[{"role": "parameter", "fqn": "embed.weight"}, .., {"role": "user", "which": "tokens"}]))");
  if (lacks_outputs)
    finding.add.push_back(
        R"(epweave.export(.., outputs=[{"role": "loss"}, {"role": "grad", "fqn": "embed.weight"}, ..]))");
  finding.add.push_back(std::string(kTrace) + "  # finds the roles itself");
  return finding;
}

// User inputs that may count tokens, and along which dimension: of one row there are no parts, and
// one that is taken apart counts micro-batches.
struct TokenInputs {
  std::vector<std::string> names;
  std::size_t dim = 0;
  std::int64_t micro_batches = 1;           // along it, one behind the other
  bool are_micro_batches_in_front = false;  // as dimension dim - 1
};

// How the step takes an input along a dimension.
struct DimensionUse {
  bool is_taken_apart = false;  // place by place
  std::int64_t pieces = 1;      // as so many equal ones
};

DimensionUse look_at_use(const Graph& graph, std::span<const NodeId> users, const TensorType& type,
                         std::size_t dim) {
  const Context& context = *graph.context;
  const auto extent = context.exprs.constant(type.sizes[dim]);
  std::set<std::int64_t> pieces;
  bool is_taken_apart = !users.empty(), is_cut = extent.has_value() && !users.empty();
  for (NodeId user : users) {
    const Node& node = graph.step().nodes[user];
    const OpFamily family = node.op == nullptr ? OpFamily::kOpaque : node.op->family;
    const bool has_dim = node.op != nullptr && node.op->find_param("dim").has_value();
    const Arg given = has_dim ? named_arg(context, node, "dim") : Arg();
    const std::int64_t at = given.is_int() ? given.as_int() : 0;
    const bool is_along = has_dim && at + (at < 0 ? static_cast<std::int64_t>(type.rank()) : 0) ==
                                         static_cast<std::int64_t>(dim);
    is_taken_apart &= is_along && (family == OpFamily::kUnbind || family == OpFamily::kSelect);
    is_cut &= is_along && (family == OpFamily::kSplit || family == OpFamily::kSlice) && node.type;
    if (!is_cut) continue;
    const std::vector<TypeId> one = {node.type}, &several = context.types[node.type].elements;
    for (TypeId element : family == OpFamily::kSlice ? one : several) {
      const TensorType* piece = tensor_of(context, element);
      const bool has_dimension = piece != nullptr && piece->rank() > dim;
      const auto rows = has_dimension ? context.exprs.constant(piece->sizes[dim]) : std::nullopt;
      pieces.insert(rows && *rows > 0 && *extent % *rows == 0 ? *extent / *rows : 1);
    }
  }
  return {is_taken_apart, is_cut && pieces.size() == 1 ? *pieces.begin() : 1};
}

// The first of several places that is not taken apart; else the first.
TokenInputs find_token_dimension(const Graph& graph, const UserInput& input) {
  const NodeLists users = list_users(*graph.context, graph.step());
  TokenInputs found;
  for (; found.dim < input.type->rank(); ++found.dim) {
    const DimensionUse use = look_at_use(graph, users[input.node], *input.type, found.dim);
    found.micro_batches = use.pieces;
    if (!use.is_taken_apart && graph.context->exprs.constant(input.type->sizes[found.dim]) != 1) return found;
    found.are_micro_batches_in_front = use.is_taken_apart;
  }
  return {};
}

// What has a name that tokens have, before all else; tables of integers, else numbers of another
// kind, as of images; and what has as many along that dimension, as their labels do. Such numbers
// may be a parameter's where no role is known.
TokenInputs find_token_inputs(const Graph& graph) {
  std::vector<UserInput> candidates = list_user_inputs(graph);
  std::erase_if(candidates, [](const UserInput& x) { return x.type->rank() == 0; });
  const auto likelihood = [](const UserInput& x) {
    const bool is_named = std::ranges::find(kTokenInputs, x.which) != kTokenInputs.end();
    const int by_type = is_floating(x.type->dtype) ? (x.has_role ? 2 : 0) : x.type->rank() > 1 ? 3 : 1;
    return std::pair(is_named, by_type);
  };
  const auto counting = std::ranges::max_element(candidates, {}, likelihood);
  if (counting == candidates.end()) return {};
  TokenInputs inputs = find_token_dimension(graph, *counting);
  const std::size_t dim = inputs.dim;
  const auto is_alike = [&](const UserInput& x) {
    return counting->has_role ? x.has_role : is_floating(x.type->dtype) == is_floating(counting->type->dtype);
  };
  for (const UserInput& x : candidates)
    if (is_alike(x) && x.type->rank() > dim && x.type->sizes[dim] == counting->type->sizes[dim])
      inputs.names.emplace_back(x.which);
  return inputs;
}

// As symbolize takes them.
std::vector<std::string> list_for_symbolize(const TokenInputs& inputs) {
  std::vector<std::string> marks;
  const std::string pieces = inputs.micro_batches > 1 ? fmt::format("/{}", inputs.micro_batches) : "";
  for (const std::string& name : inputs.names)
    marks.push_back(fmt::format("{}:{}{}", name, inputs.dim, pieces));
  return marks;
}

// The lines that give them a symbol.
std::vector<std::string> print_symbols_to_add(const TokenInputs& inputs) {
  std::vector<std::string> for_pass, for_trace;
  const std::size_t dim = inputs.dim;
  for (const std::string& mark : list_for_symbolize(inputs)) for_pass.push_back(print_value(mark));
  for (const std::string& name : inputs.names) for_trace.push_back(fmt::format("\"{}\": {}", name, dim));
  if (inputs.names.empty()) for_pass = {"tokens:0"}, for_trace = {"\"tokens\": 0"};
  const std::string why = inputs.are_micro_batches_in_front
                              ? fmt::format("dimension {} counts micro-batches, {} tokens", dim - 1, dim)
                          : dim == 0
                              ? "dimension 0 counts tokens"
                              : fmt::format("of one row there are no parts, dimension {} counts tokens", dim);
  const std::string where =
      fmt::format("ahead of chunk{}; {}{}", dim == 0 ? " in the pipeline" : "{dim=seq}", why,
                  inputs.micro_batches > 1 ? fmt::format(" of {} micro-batches", inputs.micro_batches) : "");
  std::vector<std::string> lines = {
      fmt::format("symbolize{{inputs=[{}]}}  # {}", fmt::join(for_pass, ","), where),
      fmt::format("symbolize=[{}]{}  # of a preset", fmt::join(for_pass, ","), dim == 0 ? "" : ",dim=seq")};
  // A symbol for all micro-batches would leave each of them a fraction of it.
  if (inputs.micro_batches == 1)
    lines.push_back(fmt::format("epweave.trace(.., tokens={{{}}})  # a symbol from the start",
                                fmt::join(for_trace, ", ")));
  return lines;
}

bool is_divided(const Survey& seen) {
  return !seen.divided.empty() || seen.has_unmarked_parts;
}

// What chunk is asked: to divide what exchanges tokens, else all blocks.
DivisionQuestion ask_for_division(const Graph& graph, const Survey& seen,
                                  const std::vector<std::string>& exchanging) {
  Facts facts(graph);
  DivisionQuestion question{.patterns = exchanging};
  if (exchanging.empty()) {
    const BlockNames blocks = find_block_names(graph);
    question.dense = seen.exchanges.empty();
    question.patterns = {question.dense ? blocks.pattern : blocks.pattern + blocks.exchanging};
  }
  if (!TokenExtents(graph, facts).symbols().empty()) return question;
  if (TokenExtents(graph, facts, GridDim::kSequence).symbols().empty()) {
    const TokenInputs inputs = find_token_inputs(graph);
    question.symbols = {list_for_symbolize(inputs)};
    if (inputs.dim == 0) return question;
  }
  question.dim = GridDim::kSequence;
  return question;
}

Finding check_tokens(const Graph& graph, const Survey& seen, const DivisionQuestion& question) {
  Finding finding{"tokens", Health::kHas, {}, {}, {}, {}};
  if (!question.symbols) {
    const bool is_along = question.dim == GridDim::kSequence;
    Facts facts(graph);
    const TokenExtents extents(graph, facts, question.dim);
    std::vector<std::string_view> names;
    for (StringId symbol : extents.symbols()) names.push_back(graph.text(symbol));
    finding.found = fmt::format("counted by {}{}", fmt::join(names, ", "),
                                is_along ? " along the sequence: chunk{dim=seq}" : "");
    return finding;
  }
  if (is_divided(seen)) {
    finding.health = Health::kNone;
    finding.found = "extents are numbers, and modules are divided already";
    return finding;
  }
  const TokenInputs inputs = find_token_inputs(graph);
  const std::vector<std::string>& names = inputs.names;
  finding.found = names.empty() ? "no user input has a dimension" : "extents are numbers; user inputs: ";
  for (std::size_t i = 0; i < std::min(kShownCases, names.size()); ++i)
    finding.found += fmt::format("{}{}", i == 0 ? "" : ", ", names[i]);
  if (names.size() > kShownCases) finding.found += fmt::format(" and {} more", names.size() - kShownCases);
  if (seen.exchanges.empty()) {
    finding.health = Health::kNone;
    if (names.empty()) return finding;
    finding.found += "; only chunk{dense=true} needs a symbol";
  } else {
    finding.health = Health::kLacks;
    finding.costs = "chunk finds no dimension to divide, and choose-chunks divides nothing";
  }
  finding.add = print_symbols_to_add(inputs);
  return finding;
}

void add_case(Finding& finding, std::size_t count, std::string text) {
  if (count < kShownCases) finding.cases.push_back(std::move(text));
}

Finding check_exchanges(const Graph& graph, const Survey& seen) {
  Finding finding{"exchanges", Health::kHas, {}, {}, {}, {}};
  if (seen.exchanges.empty()) {
    finding.health = Health::kNone;
    finding.found = (seen.shifts == 0 ? std::string("no all-to-all")
                                      : counted(seen.shifts, "all-to-all") +
                                            ", each to one rank and without a label, as attention in "
                                            "a ring has them") +
                    ": a dense model, or expert parallelism was off; there is no token exchange to hide";
    return finding;
  }
  std::size_t tokens = 0, counts = 0, bare = 0;
  for (NodeId id : seen.exchanges) {
    const Node& node = graph.step().nodes[id];
    if (is_labelled_exchange(node)) {
      if (node.ep.token_exchange)
        ++tokens;
      else if (node.ep.token_count_exchange)
        ++counts;
      continue;
    }
    add_case(finding, bare++, describe_node(graph, node));
  }
  finding.found =
      fmt::format("{}: {} of tokens, {} of counts{}", counted(seen.exchanges.size(), "all-to-all"), tokens,
                  counts, bare == 0 ? "" : fmt::format(", {} without a label", bare));
  if (bare == 0) return finding;
  finding.health = Health::kLacks;
  finding.costs =
      "chunk declines modules that move rows by them, isolate-ep-pg leaves them on their group, and "
      "overlap-ep does not schedule around them";
  finding.add = {
      std::string(kAnnotate) + "; pairs dispatch and combine by their split sizes",
      R"(with torch.fx.traceback.annotate({"EP_token_exchange": "dispatch"}):  # or "combine", in the model)"};
  return finding;
}

// The topic whose finding says already what chunk declines; empty for any other refusal.
std::string_view topic_of_refusal(const PassError& refusal) {
  if (refusal.id() == "chunk.foreign-exchange") return "exchanges";
  if (refusal.id() == "chunk.no-modules") return "modules";
  return {};
}

Finding check_division(const Survey& seen, const DivisionQuestion& question, const DivisionTrial& trial) {
  Finding finding{"division", Health::kNone, "no module is divided", {}, {}, {}};
  if (is_divided(seen)) {
    finding.health = Health::kHas;
    finding.found = seen.divided.empty() ? "modules were divided in eager mode"
                                         : counted(seen.divided.size(), "module") + " divided into parts";
    return finding;
  }
  const std::string call = print_division(question, trial);
  if (trial.is_accepted()) {
    finding.found += fmt::format("; {}{} divides {}{}", question.symbols ? "with a token symbol, " : "", call,
                                 counted(trial.modules, "module"),
                                 question.dense ? ", though they exchange no tokens" : "");
    return finding;
  }
  if (question.dense) return finding;
  const PassError& refusal = *trial.refusal;
  if (const std::string_view topic = topic_of_refusal(refusal); !topic.empty()) {
    finding.found += fmt::format("; chunk declines for the reason that {} gives", topic);
    return finding;
  }
  finding.health = Health::kLacks;
  finding.found +=
      fmt::format("; {}{} is declined: {} [{}]", question.symbols ? "even with a token symbol, " : "", call,
                  refusal.problem(), refusal.id());
  finding.costs = "no token exchange gets compute of another part to run under it";
  if (!refusal.site().node.empty()) finding.cases = {describe_site(refusal.site())};
  finding.add = {refusal.remedy()};
  return finding;
}

std::vector<IdlePass> find_idle(const Survey& seen, const DivisionQuestion& question,
                                const DivisionTrial& trial) {
  std::vector<IdlePass> idle;
  if (is_divided(seen))
    idle.push_back(
        {"chunk",
         "modules are divided already: roots= takes others; to divide the same otherwise, chunk the "
         "graph that was given to chunk"});
  else if (question.dense)
    idle.push_back(
        {"chunk", "no tokens are exchanged" +
                      (trial.is_accepted() ? "; dense=true divides modules all the same" : std::string())});
  if (seen.has_divided_exchange) return idle;
  const char* why = "no divided module exchanges tokens";
  if (seen.has_unmarked_parts)
    why = "what was divided in eager mode is not marked (mark-eager-chunks comes first)";
  else if (seen.exchanges.empty())
    why = "no tokens are exchanged";
  else if (seen.divided.empty())
    why = "no module is divided (chunk comes first)";
  idle.push_back({"overlap-ep", why});
  return idle;
}

Finding check_groups(const Graph& graph) {
  Finding finding{"groups", Health::kHas, {}, {}, {}, {}};
  const std::vector<Launch> launches = find_all_launches(*graph.context, graph.step());
  if (launches.empty()) {
    finding.health = Health::kNone;
    finding.found = "no collective";
    return finding;
  }
  const World world = derive_world(graph);
  std::set<std::string> names;
  std::size_t looked_up = 0, bad = 0;
  for (const Launch& launch : launches) {
    if (launch.group.is_node()) {
      ++looked_up;
      continue;
    }
    const std::string name(name_of_group(*graph.context, graph.step(), launch.group));
    if (!names.insert(name).second) continue;
    const auto found = world.groups.find(name);
    if (found == world.groups.end())
      add_case(finding, bad++,
               fmt::format("group \"{}\" of {} is not in the table", name,
                           describe_node(graph, graph.step().nodes[launch.node])));
    else if (!found->second.problem.empty())
      add_case(finding, bad++, fmt::format("group \"{}\": {}", name, found->second.problem));
  }
  finding.found = names.empty() ? "looked up in meshes" : counted(names.size(), "group") + " in use";
  if (looked_up != 0 && !names.empty()) finding.found += ", others looked up in meshes";
  finding.found += ", of " + counted(world.size, "rank");
  if (bad == 0) return finding;
  finding.health = Health::kLacks;
  finding.found += fmt::format("; {} not known on all of them", bad);
  finding.costs =
      "collectives of other ranks cannot be told: no replay, and no check of ranks against each other";
  finding.add = {
      R"(epweave.trace(.., groups={"ep": mesh})  # a DeviceMesh, or a process group of all its axis)",
      R"(epweave.export(.., process_groups=[{"name": "1", "ranks": [0, 1], "axes": ["ep"]}], info={"rank": 0, "world_size": 2}))"};
  return finding;
}

Finding check_operators(const Survey& seen) {
  Finding finding{"operators", Health::kHas, "all are in the op table", {}, {}, {}};
  if (seen.unknown.empty()) return finding;
  std::size_t calls = 0, shown = 0;
  std::vector<std::string> decomposed;
  for (const auto& [target, count] : seen.unknown) {
    calls += count;
    add_case(finding, shown++, fmt::format("{} ({})", target, counted(count, "call")));
    if (target.starts_with("aten.")) decomposed.push_back(fmt::format("torch.ops.{}", target));
  }
  finding.health = Health::kLacks;
  finding.found = fmt::format("{} of {} that the op table lacks", counted(calls, "call"),
                              counted(seen.unknown.size(), "target"));
  finding.costs =
      "their types are not checked, chunk declines modules that have them, and the replay cannot execute "
      "them";
  if (!decomposed.empty())
    finding.add = {
        fmt::format("epweave.trace(.., decompositions=torch._decomp.get_decompositions([{}]))  # of "
                    "those that torch takes apart; the others stay calls",
                    fmt::join(decomposed, ", ")),
        "epweave.export(program.run_decompositions(), ..)  # of a program of torch.export"};
  finding.add.push_back("a row in src/ops/op_table.cc (docs/adding.md)");
  return finding;
}

Finding check_inputs(const Graph& graph) {
  Finding finding{"inputs", Health::kHas, "the replay can make all of them", {}, {}, {}};
  const std::vector<replay::UnmadeInput> unmade = replay::list_unmade(graph);
  const std::vector<replay::RecipeAdvice> advice = replay::advise_rows(graph);
  if (unmade.empty() && advice.empty()) return finding;
  std::size_t shown = 0;
  for (const replay::UnmadeInput& input : unmade)
    add_case(finding, shown++,
             fmt::format("%{} ({}): {}", graph.text(graph.step().nodes[input.input].name), input.name,
                         input.problem.what));
  for (const replay::RecipeAdvice& row : advice)
    add_case(finding, shown++,
             fmt::format("%{}: {}", graph.text(graph.step().nodes[row.input].name), row.problem));
  finding.health = Health::kLacks;
  finding.found = fmt::format("{} that the replay cannot make{}", unmade.size() + advice.size(),
                              unmade.empty() ? " by itself" : "");
  finding.costs = unmade.empty() ? "epweave-replay refuses the graph without a recipe"
                                 : "epweave-replay refuses the graph; passes and proofs do not need it";
  for (const replay::UnmadeInput& input : unmade) {
    const std::string& remedy = input.problem.remedy;
    if (!remedy.empty() && std::ranges::find(finding.add, remedy) == finding.add.end())
      finding.add.push_back(remedy);
  }
  if (!advice.empty())
    finding.add.push_back(fmt::format("a file for --recipe: {}", replay::recipe_of(advice)));
  if (const std::string guesses = replay::name_guesses(graph, advice); !guesses.empty())
    finding.cases.push_back(guesses);
  return finding;
}

}  // namespace

const Finding& Diagnosis::of(std::string_view topic) const {
  const auto found = std::ranges::find(findings, topic, &Finding::topic);
  EPWEAVE_CHECK(found != findings.end());
  return *found;
}

Diagnosis diagnose(const Graph& graph) {
  const Survey seen = survey(graph);
  const std::vector<std::string> exchanging = find_exchanging_modules(graph, seen);
  const DivisionQuestion question = ask_for_division(graph, seen, exchanging);
  const DivisionTrial trial = is_divided(seen) ? DivisionTrial{} : try_division(graph, question);
  Diagnosis diagnosis;
  if (!question.dense) diagnosis.roots = is_divided(seen) ? exchanging : trial.roots;
  diagnosis.is_divisible = trial.is_accepted();
  diagnosis.idle = find_idle(seen, question, trial);
  diagnosis.findings = {check_modules(seen, exchanging),
                        check_directions(graph, seen),
                        check_roles(graph),
                        check_tokens(graph, seen, question),
                        check_exchanges(graph, seen),
                        check_division(seen, question, trial),
                        check_groups(graph),
                        check_operators(seen),
                        check_inputs(graph)};
  return diagnosis;
}

std::vector<std::string_view> list_lacks(const Diagnosis& diagnosis, std::string_view name) {
  const auto use = std::ranges::find(topic_uses(), name, &TopicUse::name);
  if (use == topic_uses().end()) return {};
  const bool is_division = name == "chunk" || name == "choose-chunks";
  std::vector<std::string_view> lacks;
  for (std::string_view topic : use->topics) {
    // Where chunk divides, what lacks a label or a row of the op table is outside of that.
    const bool is_in_modules = topic == "exchanges" || topic == "operators";
    if (is_division && is_in_modules && diagnosis.is_divisible) continue;
    if (diagnosis.of(topic).health == Health::kLacks) lacks.push_back(topic);
  }
  return lacks;
}

}  // namespace epweave::cli
