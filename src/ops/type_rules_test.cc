#include "ops/type_rules.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "ops/family.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Types of calls, one after the other, on a graph that grows.
class Calls {
 public:
  Calls() { graph_.bodies.emplace_back(); }

  // The extents as text; strides of a contiguous tensor unless given.
  NodeId tensor(std::string_view dtype, std::vector<std::string> sizes, std::vector<std::string> strides,
                std::string_view device = "cuda:0") {
    TensorType type;
    type.dtype = *find_dtype(dtype);
    type.device = graph_.intern(device);
    for (const auto& size : sizes) type.sizes.push_back(exprs().parse(size));
    for (const auto& stride : strides) type.strides.push_back(exprs().parse(stride));
    return add(NodeKind::kPlaceholder, "", {}, graph_.context->types.tensor(std::move(type)));
  }
  NodeId scalar(std::string_view text, std::string_view python = "SymInt") {
    Type type{.kind = TypeKind::kScalar, .expr = exprs().parse(text), .py_type = graph_.intern(python)};
    return add(NodeKind::kPlaceholder, "", {}, graph_.context->types.intern(std::move(type)));
  }
  NodeId call(std::string_view target, std::vector<Arg> args) {
    const NodeId id = add(NodeKind::kCall, target, graph_.context->args.add(args), {});
    Facts facts(graph_);
    Node& node = graph_.step().nodes[id];
    REQUIRE(has_type_rule(node));
    node.type = infer_type(facts, graph_, graph_.step(), node);
    return id;
  }
  // The type of the call's result, or why it has none.
  std::string type(std::string_view target, std::vector<Arg> args) {
    try {
      return print_type(*graph_.context, graph_.step().nodes[call(target, std::move(args))].type);
    } catch (const TypeMismatch& mismatch) {
      return mismatch.what();
    }
  }
  // "same", "same elements", "other".
  std::string compare(NodeId a, NodeId b) {
    Facts facts(graph_);
    const TypeId x = graph_.step().nodes[a].type, y = graph_.step().nodes[b].type;
    if (same_type(facts, *graph_.context, x, y)) return "same";
    return reaches_same_elements(facts, *graph_.context, x, y) ? "same elements" : "other";
  }
  void assume(std::string_view symbol, std::vector<std::string> facts) {
    Symbol s;
    s.name = graph_.intern(symbol);
    s.asserts.emplace();
    for (const auto& fact : facts) s.asserts->push_back(exprs().parse(fact));
    graph_.symbols.push_back(s);
  }
  Arg list(std::vector<Arg> items) { return graph_.context->args.add_tree(ArgKind::kList, items); }
  Arg ints(std::vector<std::int64_t> values) {
    std::vector<Arg> items;
    for (std::int64_t value : values) items.push_back(Arg::integer(value));
    return list(items);
  }
  Arg dtype(std::string_view name) { return Arg::named(ArgKind::kDType, graph_.intern(name)); }
  Arg text(std::string_view value) { return Arg::text(graph_.intern(value)); }

 private:
  NodeId add(NodeKind kind, std::string_view target, ArgRange args, TypeId type) {
    Node node;
    node.kind = kind;
    node.name = graph_.intern(fmt::format("n{}", graph_.step().nodes.size()));
    node.target = graph_.intern(target);
    node.args = args;
    node.type = type;
    resolve_op(*graph_.context, node);
    const NodeId id = graph_.step().nodes.push_back(std::move(node));
    graph_.step().order.push_back(id);
    return id;
  }
  ExprPool& exprs() { return graph_.context->exprs; }

  Graph graph_;
};

Arg n(NodeId id) {
  return Arg::node(id);
}
Arg i(std::int64_t value) {
  return Arg::integer(value);
}

TEST_CASE("matrix products say what does not fit") {
  Calls c;
  c.assume("u0", {"1 <= u0"});
  const Arg a = n(c.tensor("bf16", {"u0", "256"}, {"256", "1"})),
            b = n(c.tensor("bf16", {"256", "64"}, {"64", "1"})),
            wrong = n(c.tensor("bf16", {"512", "64"}, {"64", "1"})),
            f32 = n(c.tensor("f32", {"256", "64"}, {"64", "1"}));
  CHECK(c.type("aten.mm.default", {a, b}) == "bf16[u0, 64]{64, 1}@cuda:0");
  CHECK(c.type("aten.mm.default", {a, wrong}) == "mm: inner sizes 256 and 512 differ");
  CHECK(c.type("aten.mm.default", {a, f32}) == "mm: dtypes bf16 and f32 differ");
  CHECK(c.type("aten.mm.default", {a}) == "mm: 'mat2' is missing");
  CHECK(c.type("aten.mm.default", {a, i(3)}) == "mm: 'mat2' is not a tensor");
}

TEST_CASE("a loss over classes weighs all of them") {
  Calls c;
  const auto loss = [&](std::vector<std::string> sizes, std::vector<std::string> strides) {
    const Arg x = n(c.tensor("f32", {"6", "9"}, {"9", "1"})), target = n(c.tensor("i64", {"6"}, {"1"}));
    return c.type("aten.nll_loss_forward.default",
                  {x, target, n(c.tensor("f32", sizes, strides)), i(1), i(-100)});
  };
  CHECK(loss({"9"}, {"1"}) == "(f32[]{}@cuda:0, f32[]{}@cuda:0)");
  CHECK(loss({"2"}, {"1"}) == "nll_loss_forward: classes 9 and 2 differ");
  CHECK(loss({"9", "1"}, {"1", "1"}) == "nll_loss_forward: a weight of 2 dimensions, 1 is wanted");
}

TEST_CASE("grouped products pad their rows to 16 bytes") {
  Calls c;
  const Arg a = n(c.tensor("bf16", {"u0", "16"}, {"16", "1"})),
            b = n(c.tensor("bf16", {"4", "16", "20"}, {"320", "20", "1"})),
            offs = n(c.tensor("i32", {"4"}, {"1"})), five = n(c.tensor("i32", {"5"}, {"1"}));
  CHECK(c.type("aten._grouped_mm.default", {a, b, offs}) == "bf16[u0, 20]{24, 1}@cuda:0");
  CHECK(c.type("aten._grouped_mm.default", {a, b, five}) == "_grouped_mm: numbers of groups 5 and 4 differ");
  const Arg at = n(c.tensor("bf16", {"16", "u0"}, {"1", "16"})),
            g = n(c.tensor("bf16", {"u0", "20"}, {"20", "1"}));
  CHECK(c.type("aten._grouped_mm.default", {at, g, offs}) == "bf16[4, 16, 20]{384, 24, 1}@cuda:0");
}

TEST_CASE("the memory-efficient kernel gives a bias a gradient where one is wanted, in rows of 16 elements") {
  Calls c;
  const Arg rows = n(c.tensor("bf16", {"1", "2", "20", "8"}, {"320", "160", "8", "1"})),
            bias = n(c.tensor("bf16", {"1", "2", "20", "20"}, {"960", "480", "24", "1"})),
            sums = n(c.tensor("f32", {"1", "2", "32"}, {"64", "32", "1"})), seed = n(c.tensor("i64", {}, {}));
  const auto gradient = [&](Arg of, bool is_wanted) {
    const Arg yes = Arg::boolean(true), mask = c.list({yes, yes, yes, Arg::boolean(is_wanted)});
    const std::string type = c.type("aten._scaled_dot_product_efficient_attention_backward.default",
                                    {rows, rows, rows, rows, of, rows, sums, seed, seed, Arg::real(0), mask});
    return type.substr(type.rfind("cuda:0, ") + 8);
  };
  CHECK(gradient(bias, true) == "bf16[1, 2, 20, 20]{1280, 640, 32, 1}@cuda:0)");
  CHECK(gradient(bias, false) == "None)");
  CHECK(gradient(Arg::none(), true) == "None)");
}

TEST_CASE("losses are laid out as their terms, or one number") {
  Calls c;
  const Arg a = n(c.tensor("f32", {"4", "3"}, {"1", "4"})), b = n(c.tensor("f32", {"4", "3"}, {"3", "1"})),
            one = n(c.tensor("f32", {}, {})), none = Arg::none();
  for (const char* loss : {"mse_loss", "smooth_l1_loss", "huber_loss"}) {
    const std::string target = std::string("aten.") + loss + ".default";
    CHECK(c.type(target, {a, b, i(0)}) == "f32[4, 3]{1, 4}@cuda:0");
    CHECK(c.type(target, {a, b}) == "f32[]{}@cuda:0");
  }
  CHECK(c.type("aten.mse_loss_backward.default", {one, a, b, i(1)}) == "f32[4, 3]{1, 4}@cuda:0");
  CHECK(c.type("aten.mse_loss_backward.default", {b, a, b, i(0)}) == "f32[4, 3]{1, 4}@cuda:0");
  CHECK(c.type("aten.binary_cross_entropy.default", {a, b, none, i(0)}) == "f32[4, 3]{3, 1}@cuda:0");
  CHECK(c.type("aten.binary_cross_entropy.default", {a, b, none, i(2)}) == "f32[]{}@cuda:0");
  CHECK(c.type("aten.binary_cross_entropy_with_logits.default", {a, b, none, none, i(0)}) ==
        "f32[4, 3]{3, 1}@cuda:0");
  CHECK(c.type("aten.binary_cross_entropy_backward.default", {one, a, b, none, i(1)}) ==
        "f32[4, 3]{1, 4}@cuda:0");
}

TEST_CASE("gated activations and their gradients are laid out as torch's formulas give them") {
  Calls c;
  const Arg a = n(c.tensor("f32", {"4", "3"}, {"1", "4"})), b = n(c.tensor("f32", {"4", "3"}, {"3", "1"})),
            wide = n(c.tensor("f32", {"6", "4"}, {"1", "6"})),
            half = n(c.tensor("f32", {"3", "4"}, {"4", "1"})),
            rows = n(c.tensor("f32", {"2*u0", "5"}, {"5", "1"}));
  for (const char* target : {"aten.hardswish_backward.default", "aten.hardsigmoid_backward.default"}) {
    CHECK(c.type(target, {b, a}) == "f32[4, 3]{1, 4}@cuda:0");
    CHECK(c.type(target, {a, b}) == "f32[4, 3]{3, 1}@cuda:0");
  }
  const auto threshold = [&](Arg grad, Arg self) {
    return c.type("aten.threshold_backward.default", {grad, self, i(0)});
  };
  CHECK(threshold(b, a) == "f32[4, 3]{1, 4}@cuda:0");
  CHECK(threshold(a, b) == "f32[4, 3]{3, 1}@cuda:0");
  const auto leaky_relu = [&](Arg grad, Arg self) {
    return c.type("aten.leaky_relu_backward.default", {grad, self, Arg::real(0.1), Arg::boolean(false)});
  };
  CHECK(leaky_relu(b, a) == "f32[4, 3]{1, 4}@cuda:0");
  CHECK(leaky_relu(a, b) == "f32[4, 3]{3, 1}@cuda:0");
  CHECK(c.type("aten.softplus_backward.default", {b, a, i(1), i(20)}) == "f32[4, 3]{1, 4}@cuda:0");
  CHECK(c.type("aten.hardtanh_backward.default", {b, a, i(0), i(1)}) == "f32[4, 3]{1, 4}@cuda:0");
  CHECK(c.type("aten.elu_backward.default", {b, i(1), i(1), i(1), Arg::boolean(false), a}) ==
        "f32[4, 3]{1, 4}@cuda:0");
  CHECK(c.type("aten.mish_backward.default", {b, a}) == "f32[4, 3]{3, 1}@cuda:0");
  CHECK(c.type("aten.glu.default", {wide, i(0)}) == "f32[3, 4]{1, 3}@cuda:0");
  CHECK(c.type("aten.glu_backward.default", {half, wide, i(0)}) == "f32[6, 4]{4, 1}@cuda:0");
  CHECK(c.type("aten.glu.default", {rows, i(0)}) == "f32[u0, 5]{5, 1}@cuda:0");
  CHECK(c.type("aten.glu.default", {rows}) == "glu: 5 elements have no halves");
}

TEST_CASE("what log_sigmoid saves for its derivative is empty but on the CPU") {
  Calls c;
  const Arg gpu = n(c.tensor("f32", {"4", "3"}, {"1", "4"})),
            cpu = n(c.tensor("f32", {"4", "3"}, {"1", "4"}, "cpu"));
  CHECK(c.type("aten.log_sigmoid_forward.default", {gpu}) == "(f32[4, 3]{1, 4}@cuda:0, f32[0]{1}@cuda:0)");
  CHECK(c.type("aten.log_sigmoid_forward.default", {cpu}) == "(f32[4, 3]{1, 4}@cpu, f32[4, 3]{1, 4}@cpu)");
}

TEST_CASE("a pad that only cuts keeps the order of strides, one that adds does not") {
  Calls c;
  const Arg x = n(c.tensor("f32", {"4", "2", "8", "8"}, {"128", "8", "16", "1"}));
  const auto padded = [&](std::int64_t before, std::int64_t after) {
    return c.type("aten.constant_pad_nd.default", {x, c.list({i(before), i(after)})});
  };
  CHECK(padded(0, 0) == "f32[4, 2, 8, 8]{128, 8, 16, 1}@cuda:0");
  CHECK(padded(0, -2) == "f32[4, 2, 8, 6]{96, 6, 12, 1}@cuda:0");
  CHECK(padded(-1, -1) == "f32[4, 2, 8, 6]{96, 6, 12, 1}@cuda:0");
  CHECK(padded(-3, 1) == "f32[4, 2, 8, 6]{96, 48, 6, 1}@cuda:0");
}

TEST_CASE("a pad keeps channels innermost") {
  Calls c;
  const Arg x = n(c.tensor("f32", {"4", "16", "128", "64"}, {"163840", "1", "1024", "16"}));
  const auto padded = [&](std::vector<std::int64_t> pads) {
    return c.type("aten.constant_pad_nd.default", {x, c.ints(std::move(pads)), i(0)});
  };
  CHECK(padded({0, 0, 0, 0, 0, 112, 0, 0}) == "f32[4, 128, 128, 64]{1048576, 1, 8192, 128}@cuda:0");
  CHECK(padded({0, 0, 0, 0, 0, 112}) == "f32[4, 128, 128, 64]{1048576, 1, 8192, 128}@cuda:0");
}

TEST_CASE("statistics of layer norm have the input's dtype on the CPU") {
  Calls c;
  const auto normalised = [&](const char* device) {
    const Arg x = n(c.tensor("bf16", {"4", "3"}, {"3", "1"}, device)), none;
    return c.type("aten.native_layer_norm.default", {x, c.list({i(3)}), none, none, Arg::real(1e-5)});
  };
  CHECK(normalised("cpu") == "(bf16[4, 3]{3, 1}@cpu, bf16[4, 1]{1, 1}@cpu, bf16[4, 1]{1, 1}@cpu)");
  CHECK(normalised("cuda:0") == "(bf16[4, 3]{3, 1}@cuda:0, f32[4, 1]{1, 1}@cuda:0, f32[4, 1]{1, 1}@cuda:0)");
}

TEST_CASE("softmax that masks whole rows, and random numbers of a tensor's sizes, are laid out as in torch") {
  Calls c;
  const Arg turned = n(c.tensor("bf16", {"4", "3"}, {"1", "4"}));
  CHECK(c.type("aten._safe_softmax.default", {turned, i(-1)}) == "bf16[4, 3]{3, 1}@cuda:0");
  for (const char* target :
       {"aten.exponential.default", "aten.uniform.default", "aten.normal_functional.default"})
    CHECK(c.type(target, {turned}) == "bf16[4, 3]{1, 4}@cuda:0");
  CHECK(c.type("aten.exponential_.default", {turned}) == "bf16[4, 3]{1, 4}@cuda:0");
  CHECK(c.type("aten.bernoulli.default", {turned}) == "bf16[4, 3]{3, 1}@cuda:0");
  CHECK(c.type("aten.bernoulli.p", {turned, Arg::real(0.5)}) == "bf16[4, 3]{3, 1}@cuda:0");
  CHECK(c.type("aten.normal.Tensor_float", {turned}) == "bf16[4, 3]{3, 1}@cuda:0");
  CHECK(c.type("aten.multinomial.default", {turned, i(2)}) == "i64[4, 2]{2, 1}@cuda:0");
  CHECK(c.type("aten.empty_permuted.default", {c.list({i(2), i(3), i(4)}), c.list({i(2), i(0), i(1)})}) ==
        "f32[2, 3, 4]{3, 1, 6}@cpu");
  CHECK(c.type("aten.empty_permuted.default", {c.list({i(2), i(3)}), c.list({i(0), i(0)})}) ==
        "empty_permuted: the layout is no order of 2 dimensions");
}

TEST_CASE("the gradient of softmax is laid out by rows, that of its logarithm as the gradient it takes") {
  Calls c;
  const Arg turned = n(c.tensor("bf16", {"4", "3"}, {"1", "4"})),
            rows = n(c.tensor("bf16", {"4", "3"}, {"3", "1"})), f32 = c.dtype("f32");
  const auto gradient = [&](const char* target, Arg grad, Arg output) {
    return c.type(target, {grad, output, i(1), f32});
  };
  for (const Arg output : {turned, rows}) {
    for (const Arg grad : {turned, rows})
      CHECK(gradient("aten._softmax_backward_data.default", grad, output) == "f32[4, 3]{3, 1}@cuda:0");
    CHECK(gradient("aten._log_softmax_backward_data.default", turned, output) == "f32[4, 3]{1, 4}@cuda:0");
    CHECK(gradient("aten._log_softmax_backward_data.default", rows, output) == "f32[4, 3]{3, 1}@cuda:0");
  }
}

TEST_CASE("a pad that adds nothing is a copy of a view, others are laid out by rows") {
  Calls c;
  const Arg turned = n(c.tensor("f32", {"4", "3", "8"}, {"1", "4", "12"})),
            swapped = n(c.tensor("f32", {"4", "3", "8"}, {"8", "32", "1"}));
  const auto padded = [&](Arg self, std::vector<std::int64_t> pads) {
    return c.type("aten.constant_pad_nd.default", {self, c.ints(std::move(pads)), i(0)});
  };
  CHECK(padded(turned, {0, 0}) == "f32[4, 3, 8]{1, 4, 12}@cuda:0");
  CHECK(padded(turned, {0, -2}) == "f32[4, 3, 6]{1, 4, 12}@cuda:0");
  CHECK(padded(turned, {-1, 0, -1, 0}) == "f32[4, 2, 7]{1, 4, 8}@cuda:0");
  CHECK(padded(swapped, {-1, 0, -1, 0}) == "f32[4, 2, 7]{7, 28, 1}@cuda:0");
  CHECK(padded(turned, {1, -1}) == "f32[4, 3, 8]{24, 8, 1}@cuda:0");
  CHECK(padded(swapped, {0, -2, 1, 0}) == "f32[4, 4, 6]{24, 6, 1}@cuda:0");
}

TEST_CASE("what a mask scatters is laid out by rows, and its gradient has the sizes of the source") {
  Calls c;
  const Arg self = n(c.tensor("f32", {"4", "3"}, {"1", "4"})),
            mask = n(c.tensor("b8", {"4", "1"}, {"1", "1"})),
            source = n(c.tensor("f32", {"2", "5"}, {"5", "1"}));
  CHECK(c.type("aten.masked_scatter.default", {self, mask, source}) == "f32[4, 3]{3, 1}@cuda:0");
  CHECK(c.type("aten.masked_scatter_backward.default", {self, mask, c.list({i(2), i(5)})}) ==
        "f32[2, 5]{5, 1}@cuda:0");
  CHECK(c.type("aten.masked_scatter_backward.default", {self, self, c.list({i(2), i(5)})}) ==
        "masked_scatter_backward: the mask is f32, not bool");
}

TEST_CASE("what is scattered by a reduction names one that there is") {
  Calls c;
  const Arg self = n(c.tensor("f32", {"4"}, {"1"})), index = n(c.tensor("i64", {"4"}, {"1"}));
  const auto scattered = [&](std::string_view reduction) {
    return c.type("aten.scatter_reduce.two", {self, i(0), index, self, c.text(reduction)});
  };
  CHECK(scattered("amin") == "f32[4]{1}@cuda:0");
  CHECK(scattered("no") == "scatter_reduce: no reduction is called 'no'");
}

TEST_CASE("polar makes complex numbers of two real ones") {
  Calls c;
  const Arg size = n(c.tensor("f32", {"4", "1"}, {"1", "1"})),
            angle = n(c.tensor("f32", {"4", "3"}, {"3", "1"}));
  CHECK(c.type("aten.polar.default", {size, angle}) == "c64[4, 3]{3, 1}@cuda:0");
}

TEST_CASE("convolutions count windows, and lay channels innermost where an operand does") {
  Calls c;
  const Arg none = Arg::none(), no = Arg::boolean(false), yes = Arg::boolean(true);
  const Arg x = n(c.tensor("f32", {"u0", "6", "9"}, {"54", "9", "1"})),
            w = n(c.tensor("f32", {"4", "3", "5"}, {"15", "5", "1"})),
            bias = n(c.tensor("f32", {"4"}, {"1"}));
  const auto made = [&](Arg input, Arg weight, Arg stride, Arg padding) {
    return c.type("aten.convolution.default",
                  {input, weight, bias, stride, padding, c.list({i(1)}), no, c.list({i(0)}), i(2)});
  };
  CHECK(made(x, w, c.list({i(2)}), c.list({i(1)})) == "f32[u0, 4, 4]{16, 4, 1}@cuda:0");
  CHECK(c.type("aten.convolution.default", {x, w, none, c.list({i(1)}), c.list({i(0)}), c.list({i(1)}), no,
                                            c.list({i(0)}), i(1)}) == "convolution: channels 6 and 3 differ");
  const Arg image = n(c.tensor("f32", {"2", "6", "8", "8"}, {"384", "1", "48", "6"})),
            patch = n(c.tensor("f32", {"4", "3", "4", "4"}, {"48", "16", "4", "1"}));
  CHECK(made(image, patch, c.list({i(4), i(4)}), c.list({i(0), i(0)})) ==
        "f32[2, 4, 2, 2]{16, 1, 8, 4}@cuda:0");
  const Arg up = n(c.tensor("f32", {"6", "2", "5"}, {"10", "5", "1"}));
  CHECK(c.type("aten.convolution.default", {x, up, none, c.list({i(2)}), c.list({i(1)}), c.list({i(1)}), yes,
                                            c.list({i(1)}), i(1)}) == "f32[u0, 2, 20]{40, 20, 1}@cuda:0");
  const Arg grad = n(c.tensor("f32", {"u0", "4", "4"}, {"16", "4", "1"}));
  const auto gradients = [&](Arg mask) {
    return c.type("aten.convolution_backward.default",
                  {grad, x, w, c.list({i(4)}), c.list({i(2)}), c.list({i(1)}), c.list({i(1)}), no,
                   c.list({i(0)}), i(2), mask});
  };
  CHECK(gradients(c.list({yes, yes, yes})) ==
        "(f32[u0, 6, 9]{54, 9, 1}@cuda:0, f32[4, 3, 5]{15, 5, 1}@cuda:0, f32[4]{1}@cuda:0)");
  CHECK(gradients(c.list({no, yes, no})) == "(None, f32[4, 3, 5]{15, 5, 1}@cuda:0, None)");
}

TEST_CASE("keys and values have the query's batch, or one row for all of it") {
  Calls c;
  const Arg q = n(c.tensor("f32", {"2", "4", "7", "8"}, {"224", "56", "8", "1"})),
            one = n(c.tensor("f32", {"1", "4", "7", "8"}, {"224", "56", "8", "1"})),
            four = n(c.tensor("f32", {"4", "4", "7", "8"}, {"224", "56", "8", "1"}));
  constexpr const char* kAttention = "aten._scaled_dot_product_flash_attention_for_cpu.default";
  CHECK(c.type(kAttention, {q, one, one}) ==
        "(f32[2, 4, 7, 8]{224, 56, 8, 1}@cuda:0, f32[2, 4, 7]{28, 1, 4}@cuda:0)");
  CHECK(c.type(kAttention, {q, q, four}) ==
        "_scaled_dot_product_flash_attention_for_cpu: batch sizes of query, key and value 2 and 4 differ");
}

TEST_CASE("the CPU's flash attention lays statistics out by length") {
  Calls c;
  const Arg q = n(c.tensor("f32", {"2", "4", "7", "8"}, {"224", "8", "32", "1"})),
            k = n(c.tensor("f32", {"2", "4", "9", "8"}, {"288", "72", "8", "1"})),
            sums = n(c.tensor("f32", {"2", "4", "7"}, {"28", "1", "4"}));
  CHECK(c.type("aten._scaled_dot_product_flash_attention_for_cpu.default", {q, k, k}) ==
        "(f32[2, 4, 7, 8]{224, 8, 32, 1}@cuda:0, f32[2, 4, 7]{28, 1, 4}@cuda:0)");
  CHECK(c.type("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
               {q, q, k, k, q, sums, Arg::real(0), Arg::boolean(false)}) ==
        "(f32[2, 4, 7, 8]{224, 8, 32, 1}@cuda:0, f32[2, 4, 9, 8]{288, 8, 32, 1}@cuda:0, "
        "f32[2, 4, 9, 8]{288, 8, 32, 1}@cuda:0)");
}

TEST_CASE("elementwise ops follow the memory order of their operands") {
  Calls c;
  const Arg row = n(c.tensor("f32", {"4", "6"}, {"6", "1"})),
            column = n(c.tensor("f32", {"4", "6"}, {"1", "4"})), line = n(c.tensor("f32", {"6"}, {"1"})),
            cpu = n(c.tensor("f64", {}, {}, "cpu")), ints = n(c.tensor("i64", {"4", "6"}, {"6", "1"}));
  CHECK(c.type("aten.add.Tensor", {row, row}) == "f32[4, 6]{6, 1}@cuda:0");
  CHECK(c.type("aten.add.Tensor", {column, column}) == "f32[4, 6]{1, 4}@cuda:0");
  CHECK(c.type("aten.add.Tensor", {column, line}) == "f32[4, 6]{1, 4}@cuda:0");
  CHECK(c.type("aten.add.Tensor", {row, cpu}) == "f32[4, 6]{6, 1}@cuda:0");
  CHECK(c.type("aten.add.Tensor", {ints, Arg::real(0.5)}) == "f32[4, 6]{6, 1}@cuda:0");
  CHECK(c.type("aten.div.Tensor", {ints, i(2)}) == "f32[4, 6]{6, 1}@cuda:0");
  CHECK(c.type("aten.ge.Tensor", {ints, row}) == "b8[4, 6]{6, 1}@cuda:0");
  CHECK(c.type("aten.add.Tensor", {row, n(c.tensor("f32", {"5"}, {"1"}))}) ==
        "add: sizes 6 and 5 of dimension 1 do not broadcast");
  CHECK(c.type("aten.add_.Tensor", {line, row}) == "add_: the result has 2 dimensions, the tensor written 1");
}

TEST_CASE("what is computed in place must fit the dtype of the tensor written") {
  Calls c;
  const Arg floats = n(c.tensor("f32", {"4"}, {"1"})), halves = n(c.tensor("bf16", {"4"}, {"1"})),
            ints = n(c.tensor("i64", {"4"}, {"1"})), bools = n(c.tensor("b8", {"4"}, {"1"})),
            pairs = n(c.tensor("c64", {"4"}, {"1"}));
  CHECK(c.type("aten.add_.Tensor", {halves, floats}) == "bf16[4]{1}@cuda:0");
  CHECK(c.type("aten.mul_.Tensor", {ints, bools}) == "i64[4]{1}@cuda:0");
  CHECK(c.type("aten.mul_.Tensor", {pairs, floats}) == "c64[4]{1}@cuda:0");
  CHECK(c.type("aten.logical_and_.default", {bools, ints}) == "b8[4]{1}@cuda:0");
  CHECK(c.type("aten.div_.Scalar", {floats, i(2)}) == "f32[4]{1}@cuda:0");
  CHECK(c.type("aten.div_.Scalar", {ints, i(2)}) ==
        "div_: the result is f32, which cannot be written into i64");
  CHECK(c.type("aten.exp_.default", {ints}) == "exp_: the result is f32, which cannot be written into i64");
  CHECK(c.type("aten.add_.Tensor", {ints, Arg::real(0.5)}) ==
        "add_: the result is f32, which cannot be written into i64");
  CHECK(c.type("aten.add_.Tensor", {bools, ints}) ==
        "add_: the result is i64, which cannot be written into b8");
  CHECK(c.type("aten.mul_.Tensor", {floats, pairs}) ==
        "mul_: the result is c64, which cannot be written into f32");
}

TEST_CASE("elementwise calls that torch refuses for their dtypes") {
  Calls c;
  const Arg floats = n(c.tensor("f32", {"4"}, {"1"})), halves = n(c.tensor("bf16", {"4"}, {"1"})),
            ints = n(c.tensor("i64", {"4"}, {"1"})), bools = n(c.tensor("b8", {"4"}, {"1"})),
            pairs = n(c.tensor("c64", {"4"}, {"1"})), number = n(c.tensor("f32", {}, {}));
  const Arg half = Arg::real(0.5);
  const std::string i64 = "i64[4]{1}@cuda:0", bf16 = "bf16[4]{1}@cuda:0", f32 = "f32[4]{1}@cuda:0";
  CHECK(c.type("aten.clamp_.default", {ints, i(0), i(3)}) == i64);
  CHECK(c.type("aten.clamp_.default", {ints, i(0), half}) ==
        "clamp_: the result is f32, which cannot be written into i64");
  CHECK(c.type("aten.clamp_min_.default", {ints, half}) ==
        "clamp_min_: the result is f32, which cannot be written into i64");
  CHECK(c.type("aten.clamp_max_.default", {floats, i(1)}) == f32);
  CHECK(c.type("aten.add.Scalar", {ints, i(2), i(3)}) == i64);
  CHECK(c.type("aten.add.Scalar", {ints, i(2), half}) == "add: 'alpha' is f32, the result i64");
  CHECK(c.type("aten.add.Scalar", {halves, i(2), half}) == bf16);
  CHECK(c.type("aten.sub_.Scalar", {ints, i(2), half}) == "sub_: 'alpha' is f32, the result i64");
  CHECK(c.type("aten.rsub.Scalar", {ints, i(2), Arg::boolean(true)}) ==
        "rsub: 'alpha' is b8, the result i64");
  CHECK(c.type("aten.sub.Tensor", {bools, ints}) == "sub: it is not defined for torch.bool");
  CHECK(c.type("aten.neg.default", {bools}) == "neg: it is not defined for torch.bool");
  CHECK(c.type("aten.square.default", {bools}) == i64);
  CHECK(c.type("aten.lerp_.Scalar", {floats, halves, half}) == "lerp_: dtypes f32 and bf16 differ");
  CHECK(c.type("aten.lerp.Scalar", {halves, halves, half}) == bf16);
  CHECK(c.type("aten.lerp.Tensor", {floats, floats, halves}) == "lerp: dtypes f32 and bf16 differ");
  CHECK(c.type("aten.lerp_.Tensor", {halves, halves, number}) == bf16);
  CHECK(c.type("aten.addcdiv_.default", {floats, ints, ints}) == "addcdiv_: integers are divided");
  CHECK(c.type("aten.addcdiv_.default", {floats, ints, floats}) == f32);
  CHECK(c.type("aten.maximum.default", {floats, pairs}) == "maximum: it is not defined for torch.complex64");
  CHECK(c.type("aten.__lshift__.Scalar", {ints, half}) == "__lshift__: it is not defined for torch.float32");
  CHECK(c.type("aten.fill_.Tensor", {floats, floats}) == "fill_: the value has 1 dimensions, not 0");
  CHECK(c.type("aten.fill_.Tensor", {ints, number}) == i64);
  CHECK(c.type("aten.masked_fill_.Scalar", {floats, ints, half}) ==
        "masked_fill_: the mask is i64, not bool");
  CHECK(c.type("aten.scatter_add.default", {floats, i(0), ints, halves}) ==
        "scatter_add: the source is bf16, the tensor f32");
  CHECK(c.type("aten.index_add_.default", {floats, i(0), ints, halves}) ==
        "index_add_: the source is bf16, the tensor f32");
  CHECK(c.type("aten.cumsum_.default", {ints, i(0)}) == i64);
}

TEST_CASE("calls that index, and copies, that torch refuses for their sizes") {
  Calls c;
  c.assume("u0", {"0 <= u0"});
  const Arg row = n(c.tensor("f32", {"4"}, {"1"})), rows = n(c.tensor("f32", {"4", "3"}, {"3", "1"})),
            two = n(c.tensor("f32", {"2", "3"}, {"3", "1"})), number = n(c.tensor("f32", {}, {})),
            some = n(c.tensor("f32", {"u0", "3"}, {"3", "1"})), index = n(c.tensor("i64", {"4"}, {"1"})),
            pair = n(c.tensor("i64", {"2"}, {"1"})), narrow = n(c.tensor("i32", {"2"}, {"1"})),
            mask = n(c.tensor("b8", {"3"}, {"1"}));
  const std::string of_row = "f32[4]{1}@cuda:0", of_rows = "f32[4, 3]{3, 1}@cuda:0";
  CHECK(c.type("aten.copy.default", {row, number}) == of_row);
  CHECK(c.type("aten.copy.default", {number, row}) ==
        "copy: the source has 1 dimensions, the tensor written 0");
  for (const std::string name : {"index_add", "index_copy"}) {
    for (const std::string suffix : {"", "_"}) {
      CAPTURE(name, suffix);
      const std::string target = "aten." + name + suffix + ".default";
      const auto type = [&](const Arg& self, int dim, const Arg& numbers, const Arg& source) {
        const std::string said = c.type(target, {self, i(dim), numbers, source});
        return said.starts_with(name) ? said.substr(said.find(": ") + 2) : said;
      };
      CHECK(type(rows, 0, pair, two) == of_rows);
      CHECK(type(rows, 0, pair, some) == of_rows);
      CHECK(type(rows, 0, index, two) == "numbers in the index and rows of the source 4 and 2 differ");
      CHECK(type(rows, 1, pair, two) == "sizes of the tensor and the source 4 and 2 differ");
      CHECK(type(rows, 0, index, row) == "the source has 1 dimensions, the tensor 2");
      CHECK(type(row, 0, index, number) == "numbers in the index and rows of the source 4 and 1 differ");
      CHECK(type(rows, 0, narrow, two) == (name == "index_add" ? of_rows : "the index is i32, not i64"));
    }
  }
  CHECK(c.type("aten.index_fill.int_Scalar", {rows, i(1), pair, i(0)}) == of_rows);
  CHECK(c.type("aten.index_fill.int_Scalar", {rows, i(1), narrow, i(0)}) ==
        "index_fill: the index is i32, not i64");
  CHECK(c.type("aten.index_select.default", {number, i(0), pair}) ==
        "index_select: numbers in the index and elements of a scalar 2 and 1 differ");
  CHECK(c.type("aten.scatter_add.default", {row, i(0), index, rows}) ==
        "scatter_add: the index has 1 dimensions, the source 2");
  CHECK(c.type("aten.index_put.default", {row, c.list({mask}), number}) ==
        "index_put: sizes of a mask and of what it selects 3 and 4 differ");
  CHECK(c.type("aten.index.Tensor", {row, c.list({mask})}) ==
        "index: sizes of a mask and of what it selects 3 and 4 differ");
  CHECK(c.type("aten.embedding_dense_backward.default", {rows, row, i(5), i(-1), Arg::boolean(false)}) ==
        "embedding_dense_backward: the indices are f32");
  CHECK(c.type("aten.clamp.default", {row, Arg::none(), Arg::none()}) == "clamp: no limit is given");
}

TEST_CASE("views move sizes, strides and offsets") {
  Calls c;
  c.assume("u0", {"8 <= u0", "Eq(Mod(u0, 8), 0)"});
  const Arg x = n(c.tensor("bf16", {"u0", "16", "192"}, {"3072", "192", "1"}));
  CHECK(c.type("aten.view.default", {x, c.list({i(-1), i(192)})}) == "bf16[16*u0, 192]{192, 1}@cuda:0");
  CHECK(c.type("aten.transpose.int", {x, i(0), i(1)}) == "bf16[16, u0, 192]{192, 3072, 1}@cuda:0");
  CHECK(c.type("aten.unsqueeze.default", {x, i(0)}) == "bf16[1, u0, 16, 192]{3072*u0, 3072, 192, 1}@cuda:0");
  CHECK(c.type("aten.slice.Tensor", {x, i(2), i(128), i(9999)}) ==
        "bf16[u0, 16, 64]{3072, 192, 1}+128@cuda:0");
  CHECK(c.type("aten.select.int", {x, i(1), i(-1)}) == "bf16[u0, 192]{3072, 1}+2880@cuda:0");
  CHECK(c.type("aten.select.int", {x, i(1), i(16)}) == "select: index 16 is outside 16");
  CHECK(c.type("aten.split_with_sizes.default", {x, c.ints({100, 91}), i(-1)}) ==
        "split_with_sizes: the sizes sum to 191, the dimension has 192");
  const Arg half = n(c.scalar("(u0//2)"));
  CHECK(c.type("aten.split_with_sizes.default", {x, c.list({half, half})}) ==
        "[bf16[(u0//2), 16, 192]{3072, 192, 1}@cuda:0, bf16[(u0//2), 16, 192]{3072, 192, "
        "1}+3072*((u0//2))@cuda:0]");
  const Arg turned = n(c.call("aten.transpose.int", {x, i(0), i(1)}));
  CHECK(c.type("aten.reshape.default", {turned, c.list({i(16), i(-1)})}) ==
        "bf16[16, 192*u0]{192*u0, 1}@cuda:0");
  CHECK_THAT(c.type("aten.view.default", {turned, c.list({i(-1)})}), Catch::Contains("without a copy"));
  CHECK(c.type("aten.permute.default", {x, c.ints({0, 0, 1})}) ==
        "permute: the dimensions are not a permutation of 3");
}

TEST_CASE("a slice to the largest integer takes all that is left, however many there are") {
  Calls c;
  c.assume("u0", {"1 <= u0"});
  c.assume("u1", {"0 <= u1"});
  c.assume("u2", {"0 <= u2"});
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  for (const std::string rows : {"16*u0", "u0", "u1 + u2"}) {
    const Arg x = n(c.tensor("f32", {rows, "8"}, {"8", "1"}));
    CHECK(c.type("aten.slice.Tensor", {x, i(0), i(0), i(kEnd)}) ==
          fmt::format("f32[{}, 8]{{8, 1}}@cuda:0", rows));
  }
  const Arg x = n(c.tensor("f32", {"16*u0", "8"}, {"8", "1"}));
  CHECK(c.type("aten.slice.Tensor", {x, i(0), i(1), i(kEnd)}) == "f32[16*u0 - 1, 8]{8, 1}+8@cuda:0");
}

TEST_CASE("strides of dimensions of extent 1 reach no element") {
  Calls c;
  const NodeId a = c.tensor("f32", {"8*u0", "4", "1", "2"}, {"8", "1", "8", "4"}),
               b = c.tensor("f32", {"8*u0", "4", "1", "2"}, {"8", "1", "1", "4"}),
               other = c.tensor("f32", {"8*u0", "4", "1", "2"}, {"8", "2", "8", "1"}),
               near = c.tensor("f32", {"u1", "2"}, {"2", "1"}),
               far = c.tensor("f32", {"u1", "2"}, {"4", "1"});
  CHECK(c.compare(a, a) == "same");
  CHECK(c.compare(a, b) == "same elements");
  CHECK(c.compare(a, other) == "other");
  CHECK(c.compare(near, far) == "other");
}

TEST_CASE("an extent that may be 0 counts as 1 in strides") {
  Calls c;
  const Arg x = n(c.tensor("f32", {"4", "u0"}, {"u0", "1"}));
  CHECK(c.type("aten.new_empty.default", {x, c.list({i(4), n(c.scalar("u0"))})}) ==
        "f32[4, u0]{Max(1, u0), 1}@cuda:0");
}

TEST_CASE("what full makes has the dtype of the number that fills it, written or computed") {
  Calls c;
  const Arg sizes = c.list({i(4)});
  const auto type = [&](Arg number) { return c.type("aten.full.default", {sizes, number}); };
  CHECK(type(i(2)) == "i64[4]{1}@cpu");
  CHECK(type(Arg::boolean(true)) == "b8[4]{1}@cpu");
  CHECK(type(Arg::real(0.5)) == "f32[4]{1}@cpu");
  CHECK(type(n(c.scalar("u0"))) == "i64[4]{1}@cpu");
  CHECK(type(n(c.scalar("u0", "SymBool"))) == "b8[4]{1}@cpu");
  CHECK(type(n(c.scalar("u0", "SymFloat"))) == "f32[4]{1}@cpu");
}

TEST_CASE("what index_put writes broadcasts to the indexed shape, as torch has it") {
  Calls c;
  c.assume("u0", {"1 <= u0"});
  const auto f32 = [&](std::vector<std::string> sizes) {
    std::vector<std::string> strides(sizes.size(), "1");
    return n(c.tensor("f32", std::move(sizes), std::move(strides)));
  };
  const Arg x = n(c.tensor("f32", {"4", "3"}, {"3", "1"})), rows = c.list({n(c.tensor("i64", {"2"}, {"1"}))}),
            row = c.list({n(c.tensor("i64", {"1"}, {"1"}))}),
            some = c.list({n(c.tensor("i64", {"u0"}, {"1"}))}),
            mask = c.list({n(c.tensor("b8", {"4"}, {"1"}))}),
            full_mask = c.list({n(c.tensor("b8", {"4", "3"}, {"3", "1"}))}),
            columns = c.list({Arg::none(), n(c.tensor("i64", {"5"}, {"1"}))}),
            mask_and_columns =
                c.list({n(c.tensor("b8", {"4"}, {"1"})), n(c.tensor("i64", {"2", "1"}, {"1", "1"}))});
  for (const char* target : {"aten.index_put.default", "aten.index_put_.default"}) {
    const std::string name = std::string(target).substr(5, std::string(target).find('.', 5) - 5) + ": ";
    const auto type = [&](Arg indices, std::vector<std::string> sizes) {
      return c.type(target, {x, indices, f32(std::move(sizes))});
    };
    const std::string fits = "f32[4, 3]{3, 1}@cuda:0";
    const auto differ = [&](std::string_view size, int dim, std::string_view wanted) {
      return name + fmt::format("the values have {} in dimension {}, what is indexed {}", size, dim, wanted);
    };
    for (const std::vector<std::string>& sizes :
         {std::vector<std::string>{"2", "3"}, {"1", "3"}, {"2", "1"}, {"3"}, {"1"}, {}, {"u0", "3"}})
      CHECK(type(rows, sizes) == fits);
    CHECK(type(rows, {"5", "3"}) == differ("5", 0, "2"));
    CHECK(type(rows, {"2"}) == differ("2", 0, "3"));
    CHECK(type(rows, {"1", "2", "3"}) == name + "the values have 3 dimensions, what is indexed 2");
    CHECK(type(row, {"2", "3"}) == differ("2", 0, "1"));
    CHECK(type(some, {"u0", "3"}) == fits);
    CHECK(type(some, {"u0 + 1", "3"}) == differ("u0 + 1", 0, "u0"));
    CHECK(type(columns, {"4", "5"}) == fits);
    CHECK(type(columns, {"5", "4"}) == differ("5", 0, "4"));
    CHECK(type(mask, {"7", "3"}) == fits);
    CHECK(type(mask, {"7", "4"}) == differ("4", 1, "3"));
    CHECK(type(full_mask, {"7"}) == fits);
    CHECK(type(full_mask, {"7", "3"}) == name + "the values have 2 dimensions, what is indexed 1");
    CHECK(type(mask_and_columns, {"2", "7"}) == fits);
    CHECK(type(mask_and_columns, {"1", "2", "7"}) ==
          name + "the values have 3 dimensions, what is indexed 2");
  }
}

TEST_CASE("collectives scale rows by the group") {
  Calls c;
  const Arg x = n(c.tensor("f32", {"12", "8"}, {"8", "1"}));
  CHECK(c.type("_c10d_functional.all_gather_into_tensor.default", {x, i(4), c.text("0")}) ==
        "f32[48, 8]{8, 1}@cuda:0");
  CHECK(c.type("_c10d_functional.reduce_scatter_tensor.default", {x, c.text("sum"), i(4), c.text("0")}) ==
        "f32[3, 8]{8, 1}@cuda:0");
  CHECK(c.type("_c10d_functional.reduce_scatter_tensor.default", {x, c.text("sum"), i(5), c.text("0")}) ==
        "reduce_scatter_tensor: 12 rows are not divisible among 5 ranks");
  const Arg u = n(c.scalar("u0")), v = n(c.scalar("u1"));
  CHECK(c.type("_c10d_functional.all_to_all_single.default",
               {x, c.list({u, v}), c.ints({5, 7}), c.text("0")}) == "f32[u0 + u1, 8]{8, 1}@cuda:0");
  CHECK(c.type("_c10d_functional.all_to_all_single.default",
               {x, c.list({u, v}), c.ints({5, 6}), c.text("0")}) ==
        "all_to_all_single: the input splits sum to 11, the input has 12 rows");
}

TEST_CASE("operators on symbolic scalars") {
  Calls c;
  const Arg u = n(c.scalar("u0"));
  CHECK(c.type("operator.add", {u, i(2)}) == "SymInt(u0 + 2)");
  CHECK(c.type("operator.floordiv", {u, i(2)}) == "SymInt((u0//2))");
  CHECK(c.type("operator.mul", {i(0), u}) == "SymInt(0)");
  CHECK(c.type("torch.sym_max", {u, i(1)}) == "SymInt(Max(1, u0))");
  CHECK(c.type("operator.ge", {u, i(1)}) == "SymBool(u0 >= 1)");
  CHECK(c.type("operator.mod", {u, i(0)}) == "mod: division by 0");
  CHECK(c.type("operator.pow", {u, i(2)}) == "SymInt(u0*u0)");
  CHECK(c.type("operator.pow", {u, i(0)}) == "SymInt(1)");
  CHECK(c.type("operator.pow", {i(2), u}) == "SymInt(PowByNatural(2, u0))");
}

TEST_CASE("no arguments, however wrong, bring a rule down") {
  Calls c;
  const std::vector<Arg> pool = {
      n(c.tensor("f32", {"4", "u0"}, {"u0", "1"})),
      n(c.tensor("i64", {"3"}, {"1"})),
      n(c.tensor("b8", {}, {})),
      n(c.tensor("bf16", {"2", "3", "4", "8"}, {"96", "32", "8", "1"})),
      n(c.tensor("c64", {"0", "2"}, {"2", "1"})),
      n(c.scalar("u0")),
      n(c.scalar("u0*u1 - 7")),
      i(0),
      i(-1),
      i(1),
      i(5),
      i(INT64_MAX),
      i(INT64_MIN),
      Arg::none(),
      Arg::boolean(true),
      Arg::real(2.5),
      c.text("sum"),
      c.dtype("torch.float32"),
      c.dtype("torch.nonsense"),
      c.ints({}),
      c.ints({2, 2}),
      c.ints({-1, 0}),
      c.ints({0, 1, 2, 3}),
      c.list({n(c.tensor("f32", {"4"}, {"1"})), Arg::none()}),
      c.list({n(c.tensor("f32", {"4", "5"}, {"5", "1"})), n(c.tensor("f32", {"4", "5"}, {"5", "1"}))})};
  std::mt19937 random(5);
  for (const OpInfo& op : ops()) {
    if (op.type_rule == nullptr) continue;
    for (int round = 0; round < 60; ++round) {
      std::vector<Arg> args;
      const std::size_t count = random() % (op.params.size() + 2);
      for (std::size_t k = 0; k < count; ++k)
        args.push_back(k == 0 && round % 2 == 0 ? pool[random() % 5] : pool[random() % pool.size()]);
      INFO(op.target);
      try {
        c.call(op.target, args);
      } catch (const TypeMismatch&) {
      }
    }
  }
}

TEST_CASE("the family of each op has its row") {
  for (const OpInfo& op : ops()) {
    INFO(op.target);
    CHECK(traits_of(op.family).family == op.family);
  }
}

TEST_CASE("every op has a rule") {
  for (const OpInfo& op : ops()) {
    INFO(op.target);
    CHECK(op.type_rule != nullptr);
  }
}

}  // namespace
}  // namespace epweave
