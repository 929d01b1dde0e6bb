#include "testing/random_graph.h"

#include <fmt/format.h>

#include <array>

#include "testing/attention_calls.h"
#include "testing/dice.h"
#include "testing/grid_calls.h"
#include "testing/odd_calls.h"
#include "testing/row_code.h"
#include "testing/step_builder.h"

namespace epweave {
namespace {

constexpr std::int64_t kVocabulary = 16;
constexpr std::int64_t kExperts = 2;  // one per rank

// What a routing module keeps for its backward pass.
struct Routing {
  NodeId order;           // i64[n*k]: where each sorted slot was
  NodeId arrived_counts;  // i64[ranks]: how many rows each rank sent
  NodeId slot_token;      // i64[n*k]: the token of each sorted slot
  std::array<NodeId, kExperts> sent, received;
  RowPool slots, arrived;
};

class StepGenerator {
 public:
  StepGenerator(std::uint64_t seed, std::optional<std::size_t> layers)
      : dice_(seed),
        own_(~seed),
        undoes_(seed ^ (~std::uint64_t{0} << 32)),
        build_(kRanks),
        code_(build_, dice_),
        layout_(layers ? TokenLayout::kFlat : pick_layout(dice_)),
        grid_(build_, dice_, layout_),
        attention_(build_, dice_, layout_) {
    layers_ = 1 + dice_.below(2);
    if (layers) {
      layers_ = *layers;
      code_.keep_rows_whole();
    }
    attends_ = !layers && dice_.one_in(3);
    counts_in_floats_ = !layers && dice_.one_in(15);
    for (std::size_t layer = 0; layer < layers_; ++layer) is_moe_.push_back(!dice_.one_in(4));
    choices_ = 1 + static_cast<std::int64_t>(dice_.below(2));
    shares_tokens_ = !layers && !is_grid() && own_.one_in(8);
    asserts_ = !layers && own_.one_in(8);
    if (!layers && !is_grid() && dice_.one_in(3)) odd_call_ = dice_.below(kOddCalls);
    if (shares_tokens_) odd_call_.reset();
    cuts_result_ = !layers && own_.one_in(3);
    const bool may_be_odd = !layers && !is_grid() && !shares_tokens_ && !odd_call_;
    if (may_be_odd && undoes_.one_in(12)) odd_call_ = kOddCalls + undoes_.below(kOddInverses);
  }

  RandomStep run() {
    declare_symbols();
    make_inputs();
    forward();
    backward();
    RandomStep step{build_.finish(results_)};
    for (bool moe : is_moe_) step.has_exchange |= moe;
    step.has_attention = attends_;
    for (const auto& attention : attentions_) {
      step.crosses_documents |= attention && attention->crosses_documents;
      step.has_dropout |= attention && attention->drops;
    }
    step.divides_sequence = layout_ == TokenLayout::kSequence;
    return step;
  }

 private:
  static constexpr std::uint32_t kRanks = 2;

  static TokenLayout pick_layout(Dice& dice) {
    if (!dice.one_in(3)) return TokenLayout::kFlat;
    return dice.one_in(3) ? TokenLayout::kBatch : TokenLayout::kSequence;
  }
  bool is_grid() const { return layout_ != TokenLayout::kFlat; }
  std::int64_t token_dim() const { return layout_ == TokenLayout::kSequence ? 1 : 0; }

  std::string symbol(std::size_t layer, std::size_t i) const { return fmt::format("u{}", 1 + 4 * layer + i); }

  void declare_symbols() {
    build_.symbol({.name = "u0", .hint = 48, .divisor = 48});
    for (std::size_t layer = 0; layer < layers_; ++layer) {
      const std::string a = symbol(layer, 0), b = symbol(layer, 1);
      names_.push_back(a);
      build_.symbol({.name = a});
      const std::int64_t slots_of_u0 = choices_ * (is_grid() ? kGridExtent : 1);
      const std::string slots = slots_of_u0 == 1 ? "u0" : fmt::format("{}*u0", slots_of_u0);
      build_.symbol({.name = b, .asserts = {fmt::format("Eq({} + {}, {})", a, b, slots)}});
      build_.symbol({.name = symbol(layer, 2)});
      build_.symbol({.name = symbol(layer, 3)});
    }
  }

  void make_inputs() {
    embedding_ = build_.input("embedding", build_.tensor(kF32, sizes({kVocabulary, kResidualWidth})),
                              {.role = "parameter", .fqn = "tok_embeddings.weight"});
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string name = fmt::format("layers.0.w{}.weight", i);
      code_.add_weight(build_.input(fmt::format("weight_{}", i), build_.tensor(kF32, sizes({12, 12})),
                                    {.role = "parameter", .fqn = name}));
    }
    for (std::size_t layer = 0; layer < layers_; ++layer)
      counters_.push_back(
          build_.input(fmt::format("counter_{}", layer), build_.tensor(kF32, sizes({kExperts})),
                       {.role = "buffer", .fqn = fmt::format("layers.{}.moe.counter", layer)}));
    const std::string plain = fmt::format("{}", kGridExtent);
    std::vector<std::string> shape = {shares_tokens_ ? all_rows() : "u0"};
    if (layout_ == TokenLayout::kBatch) shape = {"u0", plain};
    if (layout_ == TokenLayout::kSequence) shape = {plain, "u0"};
    tokens_ = build_.input("tokens", build_.tensor(kI64, shape),
                           {.role = "user", .which = "tokens", .bound_dim = token_dim()},
                           shares_tokens_ ? "" : "u0");
  }

  static std::vector<std::string> sizes(const std::vector<std::int64_t>& numbers) {
    std::vector<std::string> texts;
    for (std::int64_t n : numbers) texts.push_back(fmt::format("{}", n));
    return texts;
  }

  std::string module(std::size_t layer) const {
    return fmt::format("layers.{}.{}", layer, is_moe_[layer] ? "moe" : "feed_forward");
  }
  Arg arg(NodeId id) const { return build_.arg(id); }
  Arg number(std::int64_t n) const { return build_.arg(n); }
  NodeId call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw = {}) {
    return build_.call(target, args, kw);
  }

  void forward() {
    build_.in_module("tok_embeddings");
    stream_ = call("aten.embedding.default", {arg(embedding_), arg(tokens_)});
    if (shares_tokens_) stream_ = scattered(stream_);
    embedded_ = stream_;
    build_.in_module("attention_masks");
    if (attends_) attention_.make_masks(tokens_);
    for (std::size_t layer = 0; layer < layers_; ++layer) {
      build_.in_module(fmt::format("layers.{}.norm", layer));
      RowPool outside{"u0", {rows_of(stream_)}};
      const NodeId normed = code_.widened(code_.grow(outside, 1 + dice_.below(3)));
      const NodeId x = stream_of(normed);
      // Rows that were merged outside, and not just there, have an order that cannot be told.
      const bool is_merged_outside = is_grid() && dice_.one_in(12);
      build_.in_module(module(layer));
      const NodeId inside = is_merged_outside ? normed
                            : is_grid()       ? rows_of(grid_.grow(x, dice_.below(4)))
                                              : x;
      RowPool rows{"u0", {inside}};
      if (is_merged_outside && own_.one_in(2)) rows.values.front() = scaled_by_ones(layer, inside);
      if (asserts_) assert_tokens();
      code_.grow(rows, 2 + dice_.below(5));
      if (shares_tokens_) rows.values.push_back(shared_layer(rows));
      attend(rows);
      routings_.emplace_back();
      const NodeId y = is_moe_[layer] ? route(layer, rows) : code_.grow(rows, 1 + dice_.below(3));
      const NodeId out = stream_of(call("aten.neg.default", {arg(code_.widened(y))}));
      if (!is_grid()) build_.node(out).ep.ep = build_.word("compute");
      if (cuts_result_ && layer + 1 == layers_) cut_result(out);
      saved_.push_back(rows);
      if (odd_call_ && layer == 0) add_odd_call(layer, x);
      build_.in_module(fmt::format("layers.{}", layer));
      stream_ = call("aten.add.Tensor", {arg(x), arg(out)});
    }
    build_.in_module("loss");
    loss_ = call("aten.sum.default", {arg(call("aten.tanh.default", {arg(stream_)}))});
    results_.push_back({loss_, "loss", ""});
  }

  // As a loss does that is computed in chunks of the tokens: some end where parts do.
  void cut_result(NodeId rows) {
    build_.in_module("loss");
    const NodeId size = call("aten.sym_size.int", {arg(embedded_), number(token_dim())});
    const NodeId share = call("operator.floordiv", {arg(size), number(6)});
    const std::vector<Arg> shares(6, arg(share));
    const NodeId pieces =
        call("aten.split_with_sizes.default", {arg(rows), build_.list(shares), number(token_dim())});
    for (std::int64_t i = 0; i < std::ssize(shares); ++i) {
      const NodeId piece = call("operator.getitem", {arg(pieces), number(i)});
      results_.push_back(
          {call("aten.sum.default", {arg(call("aten.tanh.default", {arg(piece)}))}), "loss", ""});
    }
  }

  // By rows from outside that nothing was merged into.
  NodeId scaled_by_ones(std::size_t layer, NodeId rows) {
    build_.in_module(fmt::format("layers.{}.norm", layer));
    const NodeId size = call("aten.sym_size.int", {arg(rows), number(0)});
    const NodeId ones = call("aten.ones.default", {build_.list({arg(size), number(1)})},
                             {{"device", build_.device("cuda:0")}});
    build_.in_module(module(layer));
    return call("aten.mul.Tensor", {arg(rows), arg(ones)});
  }

  void assert_tokens() {
    const NodeId within = call("aten.lt.Scalar", {arg(tokens_), number(kVocabulary)});
    call("aten._assert_async.msg",
         {arg(call("aten.all.default", {arg(within)})), build_.text("tokens are in the vocabulary")});
  }

  // ------------------------------------------------------------------------- ranks that share the
  // tokens

  // Each rank has u0 of them.
  static std::string all_rows() { return fmt::format("{}*u0", kRanks); }

  NodeId scattered(NodeId all) {
    const NodeId dense = call("aten.clone.default", {arg(all)},
                              {{"memory_format", build_.memory_format("torch.contiguous_format")}});
    return call("_c10d_functional.wait_tensor.default",
                {arg(call("_c10d_functional.reduce_scatter_tensor.default",
                          {arg(dense), build_.text("sum"), number(kRanks), build_.text("0")}))});
  }
  NodeId gathered(NodeId mine) {
    return call("_c10d_functional.wait_tensor.default",
                {arg(call("_c10d_functional.all_gather_into_tensor.default",
                          {arg(mine), number(kRanks), build_.text("0")}))});
  }

  // All ranks' rows, and back to this one's.
  NodeId shared_layer(const RowPool& rows) {
    const NodeId mine = code_.widened(dice_.pick(rows.values));
    RowPool all{all_rows(), {gathered(mine)}};
    const NodeId computed = code_.widened(code_.grow(all, 1 + dice_.below(3)));
    gathered_.push_back(all);
    const NodeId share = call("aten.sym_size.int", {arg(mine), number(0)});
    switch (dice_.below(4)) {
      case 0: {
        const NodeId shares = call("aten.split.Tensor", {arg(computed), arg(share)});
        return code_.item(shares, static_cast<std::int64_t>(dice_.below(kRanks)));
      }
      case 1:
        return scattered(call("aten.cat.default", {build_.list({arg(mine), arg(mine)}), number(0)}));
      case 2:
        return call("_c10d_functional.wait_tensor.default",
                    {arg(call("_c10d_functional.all_reduce.default",
                              {arg(scattered(computed)), build_.text("sum"), build_.text("0")}))});
      default:
        return scattered(computed);
    }
  }

  // The residual stream is a grid where the tokens are; modules compute on its rows.
  NodeId rows_of(NodeId stream) { return is_grid() ? grid_.merged(stream) : stream; }
  NodeId stream_of(NodeId rows) { return is_grid() ? grid_.unmerged(rows) : rows; }

  void attend(RowPool& rows) {
    attentions_.emplace_back();
    if (!attends_) return;
    const auto operand = [&] { return code_.widened(dice_.pick(rows.values)); };
    const NodeId query = operand(), key = operand(), value = operand();
    attentions_.back() = attention_.forward(query, key, value);
    rows.values.push_back(attentions_.back()->rows);
  }

  void add_odd_call(std::size_t layer, NodeId stream) {
    const Routing& routing = routings_[layer];
    const bool has_slots = is_moe_[layer] && choices_ == 1;
    const std::string root = module(layer), outside = fmt::format("layers.{}.norm", layer);
    OddContext context{.tokens = tokens_,
                       .stream = stream,
                       .rows = call("aten.neg.default", {arg(stream)}),
                       .weight = code_.weight(),
                       .counter = counters_[layer],
                       .module = root,
                       .outside = outside};
    if (has_slots) {
      context.slots = code_.widened(routing.slots.values.front());
      context.order = routing.order;
    }
    if (const auto made = make_odd_call(build_, context, *odd_call_))
      results_.push_back({*made, "other", ""});
  }

  // Tokens to experts and back, as torchtitan writes it.
  NodeId route(std::size_t layer, RowPool& rows) {
    Routing& routing = routings_[layer];
    const std::string root = module(layer);
    build_.in_module(root + ".router");
    const NodeId x = code_.widened(dice_.pick(rows.values));
    const NodeId logits = call("aten.mm.default", {arg(x), arg(code_.weight_for(kResidualWidth, kExperts))});
    const NodeId scores = call("aten._softmax.default", {arg(logits), number(-1), build_.flag(false)});
    const NodeId top = call("aten.topk.default", {arg(scores), number(choices_), number(-1),
                                                  build_.flag(true), build_.flag(false)});
    const NodeId chosen = code_.item(top, 1);
    build_.in_module(root);
    const NodeId zeros = call("aten.zeros_like.default", {arg(scores)},
                              {{"dtype", build_.dtype(counts_in_floats_ ? kF32 : "torch.bool")}});
    const NodeId marks =
        call("aten.scatter.value",
             {arg(zeros), number(-1), arg(chosen), counts_in_floats_ ? build_.arg(1.0) : build_.flag(true)});
    const NodeId counts = call("aten.sum.dim_IntList", {arg(marks), code_.list({0})});
    call("aten.add_.Tensor", {arg(counters_[layer]), arg(counts)});
    build_.in_module(root + ".routed_experts");
    const NodeId keys = call("aten.reshape.default", {arg(chosen), code_.list({-1})});
    const NodeId sorted = call("aten.sort.stable", {arg(keys)}, {{"stable", build_.flag(true)}});
    const NodeId order = code_.item(sorted, 1);
    routing.order = order;
    routing.slot_token = call("aten.floor_divide.default", {arg(order), number(choices_)});
    const NodeId weights = call("aten.gather.default", {arg(scores), number(-1), arg(chosen)});
    const NodeId flat = call("aten.reshape.default", {arg(weights), code_.list({-1})});
    const NodeId slot_weight = call("aten.index.Tensor", {arg(flat), build_.list({arg(order)})});
    const NodeId slot_rows = call("aten.index.Tensor", {arg(x), build_.list({arg(routing.slot_token)})});
    exchange_counts(layer, counts);
    const std::string slots = build_.extent(slot_rows, 0);
    routing.slots = {slots, {slot_rows}};
    const NodeId send = code_.widened(code_.grow(routing.slots, dice_.below(3)));
    const NodeId arrived = exchange(send, routing.received, routing.sent, "dispatch");
    routing.arrived = {build_.extent(arrived, 0), {arrived}};
    build_.in_module(root + ".routed_experts.inner_experts");
    if (dice_.one_in(2)) routing.arrived.values.push_back(by_rank(routing, arrived));
    const NodeId computed = code_.widened(code_.grow(routing.arrived, 1 + dice_.below(4)));
    build_.in_module(root + ".routed_experts");
    const NodeId back = exchange(computed, routing.sent, routing.received, "combine");
    const NodeId column = call("aten.reshape.default", {arg(slot_weight), code_.list({-1, 1})});
    const NodeId weighted = call("aten.mul.Tensor", {arg(back), arg(column)});
    rows.values.push_back(restored(x, weighted, order, routing));
    return dice_.one_in(2) ? rows.values.back() : code_.grow(rows, 1 + dice_.below(2));
  }

  // Received rows come in groups, one from each rank.
  NodeId by_rank(const Routing& routing, NodeId rows) {
    const NodeId n = call("aten.sym_size.int", {arg(rows), number(0)});
    switch (dice_.below(4)) {
      case 0: {
        const NodeId weight = code_.weight_for(kResidualWidth, kResidualWidth);
        auto layer = [&](NodeId w) { return arg(call("aten.unsqueeze.default", {arg(w), number(0)})); };
        const NodeId weights =
            call("aten.cat.default", {build_.list({layer(weight), layer(weight)}), number(0)});
        return call("aten._grouped_mm.default", {arg(rows), arg(weights), arg(ends(routing))});
      }
      case 1: {
        const NodeId ranks =
            call("aten.repeat_interleave.Tensor", {arg(routing.arrived_counts)}, {{"output_size", arg(n)}});
        const NodeId table = code_.weight_for(12, kResidualWidth);
        return call("aten.mul.Tensor",
                    {arg(rows), arg(call("aten.embedding.default", {arg(table), arg(ranks)}))});
      }
      case 2: {
        // The rows, one by one.
        const StepBuilder::Keywords on_device = {{"device", build_.device("cuda:0")}};
        const NodeId positions =
            dice_.one_in(3)   ? call("aten.arange.default", {arg(n)}, on_device)
            : dice_.one_in(2) ? call("aten.arange.start", {number(0), arg(n)}, on_device)
                              : call("aten.arange.start_step", {number(0), arg(n), number(1)}, on_device);
        return call("aten.index.Tensor", {arg(rows), build_.list({arg(positions)})});
      }
      default: {
        const NodeId ranks =
            call("aten.repeat_interleave.Tensor", {arg(routing.arrived_counts)}, {{"output_size", arg(n)}});
        const NodeId column = call("aten.unsqueeze.default", {arg(ranks), number(1)});
        return call("aten.masked_fill.Scalar",
                    {arg(rows), arg(call("aten.eq.Scalar", {arg(column), number(1)})), build_.arg(0.5)});
      }
    }
  }
  NodeId by_rank_gradient(const Routing& routing, NodeId a, NodeId b) {
    const NodeId columns = call("aten.t.default", {arg(code_.widened(a))});
    return call("aten._grouped_mm.default", {arg(columns), arg(code_.widened(b)), arg(ends(routing))});
  }
  NodeId ends(const Routing& routing) {
    return call("aten.cumsum.default", {arg(routing.arrived_counts), number(0)},
                {{"dtype", build_.dtype("torch.int32")}});
  }

  // Slots back to where they were, picked by the inverse of their order.
  NodeId picked_back(NodeId rows, NodeId order, NodeId slots) {
    return call("aten.index.Tensor", {arg(rows), build_.list({arg(inverse_of(order, slots))})});
  }
  NodeId written_back(NodeId like, NodeId rows, NodeId order, NodeId slots) {
    const NodeId empty =
        call("aten.new_empty.default", {arg(like), build_.list({arg(slots), number(kResidualWidth)})});
    return call("aten.index_put_.default", {arg(empty), build_.list({arg(order)}), arg(rows)});
  }
  NodeId inverse_of(NodeId order, NodeId slots) {
    const std::size_t way = undoes_.below(4);
    if (way == 0) return call("aten.argsort.default", {arg(order)});
    const NodeId numbers = call("aten.arange.default", {arg(slots)}, {{"device", build_.device("cuda:0")}});
    const NodeId into =
        call(undoes_.one_in(2) ? "aten.empty_like.default" : "aten.zeros_like.default", {arg(order)});
    if (way == 1) return call("aten.scatter.src", {arg(into), number(0), arg(order), arg(numbers)});
    return call(way == 2 ? "aten.index_put.default" : "aten.index_put_.default",
                {arg(into), build_.list({arg(order)}), arg(numbers)});
  }

  // Slots back to tokens: added to their rows, or put back to where they were and summed.
  NodeId restored(NodeId like, NodeId rows, NodeId order, const Routing& routing) {
    if (order && dice_.one_in(2)) {
      const NodeId tokens = call("aten.sym_size.int", {arg(like), number(0)});
      const NodeId slots = call("operator.mul", {arg(tokens), number(choices_)});
      const NodeId put =
          undoes_.one_in(2) ? picked_back(rows, order, slots) : written_back(like, rows, order, slots);
      const NodeId by_token =
          call("aten.reshape.default", {arg(put), code_.list({-1, choices_, kResidualWidth})});
      return call("aten.sum.dim_IntList", {arg(by_token), code_.list({1})});
    }
    const NodeId zeros = call("aten.zeros_like.default", {arg(like)});
    const NodeId column = call("aten.reshape.default", {arg(routing.slot_token), code_.list({-1, 1})});
    const NodeId index = call("aten.expand.default", {arg(column), code_.list({-1, kResidualWidth})});
    if (dice_.one_in(3))
      return call("torchtitan.deterministic_scatter_add.default", {arg(zeros), arg(index), arg(rows)});
    if (dice_.one_in(3))
      return call("aten.index_put.default",
                  {arg(zeros), build_.list({arg(routing.slot_token)}), arg(rows), build_.flag(true)});
    return call("aten.scatter_add.default", {arg(zeros), number(0), arg(index), arg(rows)});
  }

  void exchange_counts(std::size_t layer, NodeId counts) {
    Routing& routing = routings_[layer];
    const NodeId numbers = call("aten._to_copy.default", {arg(counts)}, {{"dtype", build_.dtype(kI64)}});
    const Arg ones = code_.list({1, 1});
    const NodeId launch =
        call("_c10d_functional.all_to_all_single.default", {arg(numbers), ones, ones, build_.text("1")});
    build_.node(launch).ep.token_count_exchange = build_.word("dispatch");
    const NodeId other = call("_c10d_functional.wait_tensor.default", {arg(launch)});
    routing.arrived_counts = other;
    // The second copy makes the host wait for both.
    const NodeId sent = copy_to_host(numbers, "input"), received = copy_to_host(other, "output");
    read_counts(sent, {symbol(layer, 0), symbol(layer, 1)}, routing.sent);
    read_counts(received, {symbol(layer, 2), symbol(layer, 3)}, routing.received);
  }

  NodeId copy_to_host(NodeId counts, std::string_view which) {
    StepBuilder::Keywords keywords = {{"dtype", build_.dtype(kI64)}, {"device", build_.device("cpu")}};
    if (which == "input") keywords.push_back({"non_blocking", build_.flag(true)});
    const NodeId host = call("aten._to_copy.default", {arg(counts)}, keywords);
    build_.node(host).ep.token_count_sync = build_.word("dispatch");
    return host;
  }

  void read_counts(NodeId host, const std::array<std::string, kExperts>& symbols,
                   std::array<NodeId, kExperts>& sizes) {
    const NodeId each = call("aten.unbind.int", {arg(host)});
    for (std::size_t i = 0; i < kExperts; ++i) {
      const NodeId one = code_.item(each, static_cast<std::int64_t>(i));
      sizes[i] = build_.call_binding("aten._local_scalar_dense.default", {arg(one)}, symbols[i]);
    }
  }

  NodeId exchange(NodeId rows, const std::array<NodeId, kExperts>& out,
                  const std::array<NodeId, kExperts>& in, std::string_view label) {
    auto splits = [&](const std::array<NodeId, kExperts>& s) { return build_.list({arg(s[0]), arg(s[1])}); };
    const NodeId launch = call("_c10d_functional.all_to_all_single.default",
                               {arg(rows), splits(out), splits(in), build_.text("1")});
    build_.node(launch).ep.token_exchange = build_.word(label);
    return call("_c10d_functional.wait_tensor.default", {arg(launch)});
  }

  void backward() {
    build_.in_backward();
    build_.in_module("loss");
    NodeId gradient = call("aten.cos.default", {arg(stream_)});
    for (std::size_t layer = layers_; layer-- > 0;) {
      build_.in_module(module(layer));
      RowPool rows = saved_[layer];
      rows.values.push_back(rows_of(gradient));
      if (is_grid() && dice_.one_in(2)) add_gradient(layer, grid_.partial(gradient));
      if (attentions_[layer])
        rows.values.push_back(
            attention_.backward(*attentions_[layer], code_.widened(dice_.pick(rows.values))));
      const NodeId g = code_.widened(code_.grow(rows, 1 + dice_.below(4)));
      NodeId out = is_moe_[layer] ? route_back(layer, g) : g;
      add_gradient(layer, code_.partial(rows));
      if (dice_.one_in(2)) add_gradient(layer, code_.partial(rows));
      if (shares_tokens_) {
        RowPool all = gathered_[layer];
        all.values.push_back(gathered(code_.widened(out)));
        add_gradient(layer, code_.partial(all));
      }
      RowPool last{"u0", {out}};
      out = stream_of(code_.widened(code_.grow(last, dice_.below(3))));
      build_.in_module(fmt::format("layers.{}", layer));
      gradient = call("aten.add.Tensor", {arg(gradient), arg(out)});
    }
    build_.in_module("tok_embeddings");
    if (shares_tokens_) gradient = gathered(gradient);
    results_.push_back(
        {call("aten.embedding_dense_backward.default",
              {arg(gradient), arg(tokens_), number(kVocabulary), number(-1), build_.flag(false)}),
         "grad", "tok_embeddings.weight"});
  }

  NodeId route_back(std::size_t layer, NodeId gradient) {
    Routing& routing = routings_[layer];
    const std::string root = module(layer);
    build_.in_module(root + ".routed_experts");
    const NodeId slot_rows =
        call("aten.index.Tensor", {arg(gradient), build_.list({arg(routing.slot_token)})});
    RowPool slots{routing.slots.extent, {slot_rows}};
    const NodeId send = code_.widened(code_.grow(slots, dice_.below(2)));
    const NodeId arrived = exchange(send, routing.received, routing.sent, "combine");
    build_.in_module(root + ".routed_experts.inner_experts");
    RowPool rows = routing.arrived;
    rows.values.push_back(arrived);
    const NodeId computed = code_.widened(code_.grow(rows, 1 + dice_.below(3)));
    add_gradient(layer, code_.partial(rows));
    if (dice_.one_in(3)) add_gradient(layer, by_rank_gradient(routing, arrived, computed));
    build_.in_module(root + ".routed_experts");
    const NodeId back = exchange(computed, routing.sent, routing.received, "dispatch");
    return restored(gradient, back, NodeId(), routing);
  }

  // A weight's gradient leaves the module: as it is, or summed over the ranks.
  void add_gradient(std::size_t layer, NodeId partial) {
    NodeId gradient = partial;
    if (dice_.one_in(2)) {
      // Collectives send dense tensors.
      const NodeId dense = call("aten.clone.default", {arg(partial)},
                                {{"memory_format", build_.memory_format("torch.contiguous_format")}});
      const bool has_halves = build_.number(dense, 0).value_or(1) % kRanks == 0;
      const NodeId launch = has_halves && dice_.one_in(3)
                                ? call("_c10d_functional.reduce_scatter_tensor.default",
                                       {arg(dense), build_.text("sum"), number(kRanks), build_.text("0")})
                            : dice_.one_in(4) ? call("_c10d_functional.all_gather_into_tensor.default",
                                                     {arg(dense), number(kRanks), build_.text("0")})
                                              : call("_c10d_functional.all_reduce.default",
                                                     {arg(dense), build_.text("sum"), build_.text("0")});
      gradient = call("_c10d_functional.wait_tensor.default", {arg(launch)});
    }
    results_.push_back({gradient, "grad", fmt::format("layers.{}.gradient{}", layer, results_.size())});
  }

  Dice dice_;
  Dice own_;     // of what few steps have: the others do not depend on it
  Dice undoes_;  // of inverses, in the same way
  StepBuilder build_;
  RowCode code_;
  TokenLayout layout_;
  GridCalls grid_;
  AttentionCalls attention_;
  bool attends_ = false;
  std::vector<std::optional<Attention>> attentions_;  // by layer
  std::size_t layers_ = 1;
  std::vector<bool> is_moe_;
  std::int64_t choices_ = 1;  // experts per token
  std::optional<std::size_t> odd_call_;
  bool shares_tokens_ = false, asserts_ = false, cuts_result_ = false;
  std::vector<RowPool> gathered_;  // of the forward pass, by layer
  bool counts_in_floats_ = false;  // no part of a sum of floats is an exact integer: refused
  std::vector<std::string> names_;
  NodeId embedding_, tokens_, embedded_, stream_, loss_;
  std::vector<NodeId> counters_;
  std::vector<Routing> routings_;  // by layer
  std::vector<RowPool> saved_;     // of the forward pass, by layer
  std::vector<StepBuilder::Result> results_;
};

}  // namespace

RandomStep make_random_step(std::uint64_t seed, std::optional<std::size_t> layers) {
  return StepGenerator(seed, layers).run();
}

}  // namespace epweave
