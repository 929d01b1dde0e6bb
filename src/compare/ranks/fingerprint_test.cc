#include "compare/ranks/fingerprint.h"

#include <catch2/catch.hpp>

#include "analysis/rank_view.h"
#include "io/file.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

constexpr std::string_view kStep = R"(epweave text 1
device cuda:0
info global_meshes = {"dense": {"axes": ["fsdp", "tp"], "shape": [2, 2]}}
info world_size = 4
info rank = 0
info torch = "2.15.0"
info options = {"tokens": 1024}
info seed = 42
group 23 ranks=[0, 2] description=mesh_fsdp axes=[fsdp]
group 25 ranks=[0, 1] description=mesh_tp axes=[tp]
symbol s0 range=[1, 8] hint=4 size_like
graph
  %p = placeholder : f32[4, 4] role=parameter fqn=emb.weight more{global_shape=[8, 4]}
  %x = placeholder : f32[s0, 4] role=user which=tokens
  %g = _c10d_functional.all_gather_into_tensor.default(%p, 2, "23") : f32[8, 4] @emb
  %w = _c10d_functional.wait_tensor.default(%g) : f32[8, 4] @emb
  %t = aten.permute.default(%w, [1, 0]) : f32[4, 8]{1, 4} @emb
  %y = aten.mm.default(%x, %t) : f32[s0, 8] @emb
  %z = aten.mul.Scalar(%y, 0.5) : f32[s0, 8] @emb
  output([%z])
)";

std::string replace(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

Fingerprint of_text(const std::string& text) {
  return take_fingerprint(parse_text(text, "g.txt"), sha256_of_pieces);
}

std::vector<std::string> fields_that_differ(const Fingerprint& a, const Fingerprint& b) {
  std::vector<std::string> fields;
  for (const FingerprintMismatch& m : compare_fingerprints(a, b)) fields.push_back(m.field);
  return fields;
}

struct Change {
  std::string_view from, to;
  std::vector<std::string> fields;
};

TEST_CASE("R21: what a graph holds, changed alone, is named") {
  const std::string step(kStep);
  const Fingerprint before = of_text(step);
  for (const Change& change : std::vector<Change>{
           {"0.5", "0.25", {"graph"}},
           {"aten.mul.Scalar(%y, 0.5)", "aten.add.Scalar(%y, 0.5)", {"graph"}},
           {"f32[s0, 8] @emb\n  output", "f32[s0, 8] @head\n  output", {"graph"}},
           {"f32[s0, 8] @emb\n  output", "f32[s0, 8] @emb recompute=MUST_SAVE\n  output", {"graph"}},
           {"f32[s0, 8] @emb\n  output", "f32[s0, 8]<requires_grad> @emb\n  output", {"graph"}},
           {"f32[s0, 8] @emb\n  output", "f32[s0, 8]<subclass=DTensor> @emb\n  output", {"graph"}},
           {"f32[s0, 8] @emb\n  output", "f32[s0, 8] @emb hints(s0=4)\n  output", {"graph"}},
           {"f32[s0, 8] @emb\n  output", "f32[s0, 8] @emb py_type=torch.Tensor\n  output", {"graph"}},
           {"f32[s0, 8] @emb\n  output", "f32[s0, 8] @emb example=f32[8, 8]\n  output", {"graph"}},
           {"f32[s0, 8] @emb\n  output", "f32[s0, 8] @emb meta{fsdp_bucket=3}\n  output", {"graph"}},
           {"(%p, 2, \"23\")", "(%p, 2, \"25\")", {"graph"}},
           {"which=tokens", "which=labels", {"inputs"}},
           {"fqn=emb.weight", "fqn=tok.weight", {"inputs"}},
           {"global_shape=[8, 4]", "global_shape=[16, 4]", {"inputs"}},
           {"graph\n  %p", "output loss\ngraph\n  %p", {"outputs"}},
           {"graph\n  %p", "output grad fqn=emb.weight\ngraph\n  %p", {"outputs"}},
           {"graph\n  %p", "output grad more{wrapper=\"DTensor\"}\ngraph\n  %p", {"outputs"}},
           {"device cuda:0", "device cpu", {"device"}},
           {"device cuda:0", "device xpu:0", {"device"}},
           {"device cuda:0", "device cuda:1", {}},
           {"range=[1, 8]", "range=[1, 16]", {"symbols"}},
           {"range=[1, 8]", "range=[2, 8]", {"symbols"}},
           {"hint=4", "hint=8", {"symbols"}},
           {" size_like", "", {"symbols"}},
           {"axes=[tp]", "axes=[cp]", {"groups"}},
           {"group 25 ranks=[0, 1]", "group 25 ranks=[0, 1, 2, 3]", {"groups"}},
           {"group 25 ranks=[0, 1] description=mesh_tp axes=[tp]\n", "", {"groups"}},
           {"[\"fsdp\", \"tp\"]", "[\"tp\", \"fsdp\"]", {"meshes"}},
           {"\"shape\": [2, 2]", "\"shape\": [4, 1]", {"meshes"}},
           {"world_size = 4", "world_size = 8", {"world_size"}},
           {"2.15.0", "2.15.1", {"torch"}},
           {"\"tokens\": 1024", "\"tokens\": 2048", {"options"}},
           {"seed = 42", "seed = 43", {"info.seed"}},
           {"info seed = 42\n", "", {"info.seed"}},
           {"info seed = 42\n", "info seed = 42\ninfo deterministic = True\n", {"deterministic"}},
           {"info seed = 42\n", "info seed = 42\ninfo model = \"llama3\"\n", {"model"}},
           {"info seed = 42\n", "info seed = 42\ninfo config = \"debug\"\n", {"configuration"}},
           {"info seed = 42\n", "info seed = 42\ninfo torchtitan = \"0.3.0\"\n", {"torchtitan"}},
           {"info seed = 42\n", "info seed = 42\ninfo stage = \"1_norm\"\n", {"stage"}},
           {"info seed = 42\n", "info seed = 42\ninfo rank_agnostic = True\n", {"ranks"}},
       }) {
    INFO(change.from << " -> " << change.to);
    CHECK(fields_that_differ(before, of_text(replace(step, change.from, change.to))) == change.fields);
  }
}

TEST_CASE("R21, R22: what ran over the graph, changed alone, is named") {
  const Graph graph = parse_text(kStep, "g.txt");
  const auto with = [&](const std::vector<PassRun>& passes, const std::string& producer) {
    Graph made = graph;
    made.passes = passes;
    made.version.producer = producer;
    return take_fingerprint(made, sha256_of_pieces);
  };
  const PassRun dce{.name = "dce", .tool = "epweave 1"},
      chunk{.name = "chunk", .options = "parts=2", .tool = "epweave 1"};
  const Fingerprint before = with({dce, chunk}, "exporter 1");
  PassRun four = chunk, newer = chunk;
  four.options = "parts=4";
  newer.tool = "epweave 2";
  CHECK(fields_that_differ(before, with({dce, four}, "exporter 1")) == std::vector<std::string>{"passes"});
  CHECK(fields_that_differ(before, with({chunk, dce}, "exporter 1")) == std::vector<std::string>{"passes"});
  CHECK(fields_that_differ(before, with({chunk}, "exporter 1")) == std::vector<std::string>{"passes"});
  CHECK(fields_that_differ(before, with({dce, newer}, "exporter 1")) == std::vector<std::string>{"tool"});
  CHECK(fields_that_differ(before, with({dce, chunk}, "exporter 2")) == std::vector<std::string>{"producer"});
}

TEST_CASE("R23, R24: rank, names of groups and nodes, and lines of code are not in it") {
  const std::string step(kStep);
  const Fingerprint before = of_text(step);
  std::string other =
      replace(step, "info rank = 0", "info rank = 1\ninfo trace_seconds = 7.5\ninfo name = \"here\"");
  other = replace(other, "group 23 ranks=[0, 2]", "group 24 ranks=[1, 3]");
  other = replace(other, "\"23\")", "\"24\")");
  other = replace(other, "group 25 ranks=[0, 1]", "group 7 ranks=[0, 1]");
  other = replace(replace(other, "%y = ", "%product = "), "(%y, 0.5)", "(%product, 0.5)");
  other = replace(other, "f32[s0, 8] @emb\n  output",
                  "f32[s0, 8] @emb src=\"a.py:1 in f: x\" meta{stack_trace=\"a.py\", "
                  "hook=opaque(\"<Hook at 0x7f>\", \"Hook\")}\n  output");
  CHECK(fields_that_differ(before, of_text(other)).empty());
}

TEST_CASE("R23: how long the tracer's passes took is not in it, what they are is") {
  const auto with = [](const std::string& pass, const std::string& seconds) {
    const std::string run =
        "info passes_run = [{\"pass\": \"" + pass + "\", \"options\": {}, \"seconds\": " + seconds + "}]";
    return of_text(replace(std::string(kStep), "info seed = 42", "info seed = 42\n" + run));
  };
  CHECK(with("dce", "0.075") == with("dce", "1.5"));
  CHECK(fields_that_differ(with("dce", "0.075"), with("cse", "0.075")) ==
        std::vector<std::string>{"info.passes_run"});
}

TEST_CASE("a long entry of the info is a hash") {
  const std::string step(kStep), longer(1000, 'x');
  const auto with = [&](const std::string& text) {
    return of_text(replace(step, "info seed = 42", "info seed = 42\ninfo calling = \"" + text + "\""));
  };
  CHECK(with("short").at("info.calling") == "short");
  CHECK(with(longer).at("info.calling") == sha256_hex(longer));
  CHECK(fields_that_differ(with(longer), with(longer + "y")) == std::vector<std::string>{"info.calling"});
}

TEST_CASE("R21: a missing field is a mismatch") {
  const Fingerprint before = of_text(std::string(kStep));
  for (const auto& [field, value] : before) {
    Fingerprint less = before;
    less.erase(field);
    CHECK(fields_that_differ(less, before) == std::vector<std::string>{field});
    CHECK(fields_that_differ(before, less) == std::vector<std::string>{field});
  }
}

}  // namespace
}  // namespace epweave
