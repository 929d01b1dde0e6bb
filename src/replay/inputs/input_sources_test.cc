// Inputs from files and by recipes: what is taken, what is refused.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ir/text/text.h"
#include "replay/inputs/inputs.h"
#include "replay/inputs/shards.h"
#include "replay/values/evaluate.h"
#include "replay/values/random_numbers.h"

namespace epweave::replay {
namespace {

Graph parse_step(const std::string& text) {
  return parse_text("epweave text 1\n" + text, "test");
}

// The message of the InputError that `run` throws; empty if it throws none.
template <class Run>
std::string refusal_of(const Run& run) {
  try {
    run();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "epweave.XXXXXX").string();
    EPWEAVE_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

std::string bytes_of(std::uint64_t number) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &number, 8);
  return bytes;
}
std::string file_of(const std::string& header, std::size_t data_bytes) {
  return bytes_of(header.size()) + header + std::string(data_bytes, '\1');
}

HostMemory memory;

Tensor make_floats(const Extents& sizes, const std::function<float(std::int64_t)>& number) {
  Tensor tensor = make_tensor(memory, DType::kFloat32, sizes);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] = number(i);
  return tensor;
}

std::string encode(std::vector<TensorToStore> tensors) {
  std::string bytes;
  encode_safetensors(std::move(tensors), [&](std::string_view piece) { bytes += piece; });
  return bytes;
}

std::vector<double> read(const Value& value) {
  const Tensor& tensor = value.tensor();
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.numel()) * tensor.element_bytes());
  gather_elements(tensor, bytes.data());
  std::vector<double> numbers;
  for (std::size_t at = 0; at < bytes.size(); at += tensor.element_bytes())
    numbers.push_back(load_number(&bytes[at], tensor.dtype));
  return numbers;
}

std::vector<double> count_from(double first, std::size_t count) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(first + static_cast<double>(i));
  return numbers;
}

}  // namespace

TEST_CASE("a safetensors header says where tensors lie") {
  const StoredTensors tensors = parse_safetensors_header(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"shape":[],"data_offsets":[0,4],"dtype":"F32"},"none":{"dtype":"I64","shape":[0,4611686018427387904],"data_offsets":[16,16]}}   )",
      16);
  REQUIRE(tensors.size() == 3);
  CHECK(tensors.at("a") == StoredTensor{DType::kFloat32, {}, 0, 4});
  CHECK(tensors.at("b") == StoredTensor{DType::kBfloat16, {2, 3}, 4, 16});
  CHECK(tensors.at("none").sizes == Extents{0, 4611686018427387904});
  CHECK(parse_safetensors_header("{}", 0).empty());
}

TEST_CASE("damaged and hostile safetensors headers are refused") {
  struct Case {
    std::string header;
    std::string message;
  };
  const std::string deep(100'000, '[');
  const Case cases[] = {
      {"", "does not begin"},
      {" {}", "does not begin"},
      {"[]", "does not begin"},
      {"{", "not valid JSON"},
      {"{}{}", "not valid JSON"},
      {"{\"\xff\":{}}", "not valid JSON"},
      {R"({"a":1})", "not an object of objects"},
      {R"({"a":[]})", "not an object of objects"},
      {R"({"a":{}})", "lacks dtype, shape or data_offsets of tensor `a`"},
      {R"({"a":{"b":{}}})", "an object where none belongs"},
      {R"({"a":)" + deep, "not an object of objects"},
      {R"({"a":{"shape":)" + deep, "entry `shape`"},
      {R"({"__metadata__":{"a":1}})", "metadata that is not text"},
      {R"({"__metadata__":{},"__metadata__":{}})", "the name `__metadata__` twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "the name `a` twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "entry `dtype`"},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "dtype F31"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":"x"}})", "entry `more`"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "entry `shape`"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "entry `shape`"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", "entry `shape`"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}})",
       "no file can hold"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", "no file can hold"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "entry `data_offsets`"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "the bytes 4 to 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "its dtype and shape take 8"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", "begins at byte 2"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       "begins at byte 2"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "there is something behind them"},
      {R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "it is cut short"},
  };
  for (const Case& bad : cases) {
    INFO(bad.header.substr(0, 120));
    CHECK_THAT(refusal_of([&] { parse_safetensors_header(bad.header, 4); }), Catch::Contains(bad.message));
  }
}

TEST_CASE("what is no safetensors file is refused by its size before anything is read") {
  const Folder folder;
  const auto refusal = [&](const std::string& bytes) {
    return refusal_of([&] { SafetensorsFile(folder.write("x", bytes)); });
  };
  CHECK_THAT(refusal("1234567"), Catch::Contains("fewer than 8 bytes"));
  CHECK_THAT(refusal(bytes_of(100'000'001) + "{}"), Catch::Contains("the format allows 100000000"));
  CHECK_THAT(refusal(bytes_of(UINT64_MAX) + "{}"), Catch::Contains("the format allows 100000000"));
  CHECK_THAT(refusal(bytes_of(99'999'999) + "{}"), Catch::Contains("the file has 10"));
  CHECK_THAT(refusal_of([] { SafetensorsFile("/nowhere/x.safetensors"); }), Catch::Contains("cannot open"));
  CHECK_THAT(refusal_of([] { SafetensorsFile("/tmp"); }), Catch::Contains("not a regular file"));
  CHECK(refusal(file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3)).empty());
}

TEST_CASE("tensors are written row-major, the widest elements first") {
  const Tensor matrix = make_floats({2, 3}, [](std::int64_t i) { return static_cast<float>(i); });
  const Tensor turned = matrix.view({3, 2}, {1, 3}, 0);
  Tensor wide = make_tensor(memory, DType::kInt64, {1});
  store_integer(wide, 0, -5);
  const std::string bytes = encode({{"turned", turned}, {"quote \" \n", wide}, {"alone", matrix}});
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  const std::string header = bytes.substr(8, length);
  CHECK(header.starts_with(R"({"quote \" \n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"alone":)"));
  const StoredTensors tensors = parse_safetensors_header(header, bytes.size() - 8 - length);
  CHECK(tensors.at("turned") == StoredTensor{DType::kFloat32, {3, 2}, 32, 56});
  const Folder folder;
  const SafetensorsFile file(folder.write("x", bytes));
  std::vector<float> numbers(6);
  file.read(file.tensors().at("turned"), 0, std::as_writable_bytes(std::span(numbers)));
  CHECK(numbers == std::vector<float>{0, 3, 1, 4, 2, 5});
  Tensor half = make_tensor(memory, DType::kComplex32, {1});
  CHECK_THAT(refusal_of([&] { encode({{"half", half}}); }), Catch::Contains("half of c32 cannot be written"));
}

namespace {

constexpr const char* kSharded = R"(info world_size = 4
graph
  %w = placeholder : f32[2, 3] role=parameter fqn=experts.w more{global_shape=[8, 3]}
  %m = placeholder : =mesh(["efsdp", "ep"], [2, 2], [[0, 1], [2, 3]], "cuda") role=parameter fqn=experts.w more{inner="device_mesh"}
  %x = placeholder : f32[2, 2]{1, 2} role=user which=x
  %y = placeholder : b8[2] role=user which=x
  output([%w])
)";

}  // namespace

TEST_CASE("inputs are taken from files") {
  const Graph graph = parse_step(kSharded);
  const World world = derive_world(graph);
  const Folder folder;
  const auto make = [&](std::vector<TensorToStore> tensors) {
    InputFiles files;
    files.add(folder.write("x", encode(std::move(tensors))));
    files.require_all_used({{graph, world.size}});
    InputData data(5);
    data.files = &files;
    return make_inputs(graph, world, KernelTable(), data);
  };
  const auto count = [](const Extents& sizes, float first) {
    return make_floats(sizes, [=](std::int64_t i) { return first + static_cast<float>(i); });
  };
  const auto flags = [&](int second) {
    Tensor tensor = make_tensor(memory, DType::kBool, {2});
    tensor.bytes()[0] = std::byte{1};
    tensor.bytes()[1] = static_cast<std::byte>(second);
    return tensor;
  };

  // A global tensor is cut: by ep first, each half then by efsdp. Two inputs are called `x`: their
  // nodes' names count.
  auto inputs = make({{"experts.w", count({8, 3}, 0)}, {"x", count({2, 2}, 7)}, {"y", flags(0)}});
  for (Rank rank = 0; rank < 4; ++rank) {
    CHECK(read(inputs[rank][0]) == count_from((rank % 2 * 2 + rank / 2) * 6, 6));
    CHECK(read(inputs[rank][2]) == count_from(7, 4));
    CHECK(inputs[rank][2].tensor().strides == Extents{1, 2});
    CHECK(read(inputs[rank][3]) == std::vector<double>{1, 0});
  }
  // A rank's own tensor goes before that of all; what is in no file is made.
  std::vector<TensorToStore> each{{"y", flags(1)}};
  for (int rank = 0; rank < 4; ++rank)
    each.push_back(
        {"rank" + std::to_string(rank) + "/experts.w", count({2, 3}, static_cast<float>(100 * rank))});
  inputs = make(std::move(each));
  CHECK(read(inputs[3][0]) == count_from(300, 6));
  CHECK(read(inputs[0][2])[1] == RandomNumbers(5, "x/0").uniform(1));

  const auto refusal = [&](std::vector<TensorToStore> tensors) {
    return refusal_of([&] { make(std::move(tensors)); });
  };
  CHECK_THAT(refusal({{"expert.w", count({8, 3}, 0)}}),
             Catch::Contains("tensor `expert.w` is no input of the graph") &&
                 Catch::Contains("did you mean `experts.w`?"));
  CHECK_THAT(refusal({{"rank4/experts.w", count({2, 3}, 0)}}), Catch::Contains("no input of the graph"));
  CHECK_THAT(refusal({{"experts.w", count({4, 3}, 0)}}),
             Catch::Contains("tensor `experts.w` is f32 [4, 3], input %w is f32 [2, 3], a shard of [8, 3]"));
  CHECK_THAT(refusal({{"x", flags(0)}}), Catch::Contains("tensor `x` is b8 [2], input %x is f32 [2, 2]"));
  CHECK_THAT(refusal({{"rank1/experts.w", count({2, 3}, 0)}}), Catch::Contains("but not for rank 0"));
  CHECK_THAT(refusal({{"y", flags(2)}}), Catch::Contains("a bool that is neither 0 nor 1"));

  InputFiles twice;
  twice.add(folder.write("a", encode({{"x", count({2, 2}, 0)}})));
  CHECK_THAT(refusal_of([&] {
               twice.add(folder.write("b", encode({{"x", count({2, 2}, 0)}})));
             }),
             Catch::Contains("/b: tensor `x` is in ") && Catch::Contains("/a too"));
}

namespace {

// Four ranks, [a0 b0, a0 b1, a1 b0, a1 b1]; `of_w`: what is recorded of the parameter.
Graph parse_placed(const std::string& type, const std::string& of_w) {
  const std::string mesh = R"( : =mesh(["a", "b"], [2, 2], [[0, 1], [2, 3]], "cuda"))";
  return parse_step("info world_size = 4\ngraph\n  %w = placeholder : f32[" + type +
                    "] role=parameter fqn=w more{" + of_w + "}\n  %w_mesh = placeholder" + mesh +
                    " role=parameter fqn=w more{inner=\"device_mesh\"}\n  output([%w])\n");
}

// Which elements of the global tensor, counted from 0, each rank has.
std::vector<std::vector<double>> elements_of_ranks(const Graph& graph, Extents global) {
  const Folder folder;
  InputFiles files;
  files.add(folder.write(
      "x",
      encode({{"w", make_floats(std::move(global), [](std::int64_t i) { return static_cast<float>(i); })}})));
  InputData data(5);
  data.files = &files;
  std::vector<std::vector<double>> elements;
  const World world = derive_world(graph);
  for (const RankInputs& inputs : make_inputs(graph, world, KernelTable(), data))
    elements.push_back(read(inputs[0]));
  return elements;
}

}  // namespace

TEST_CASE("shards lie as the recorded placements say") {
  using Ranks = std::vector<std::vector<double>>;
  struct Row {
    const char* type;
    const char* recorded;
    Extents global;
    Ranks expected;
  };
  // What torch's DTensor gives each rank of the mesh (scripts/dev/placements_torch_test.py).
  const Row rows[] = {
      // Along a replicas, whatever the axis is called.
      {"2",
       R"(global_shape=[4], placements=[["Replicate"], ["Shard", 0]])",
       {4},
       {{0, 1}, {2, 3}, {0, 1}, {2, 3}}},
      {"2",
       R"(global_shape=[4], placements=[["Shard", 0], ["Replicate"]])",
       {4},
       {{0, 1}, {0, 1}, {2, 3}, {2, 3}}},
      // One dimension on two axes: a first, or b first as FSDP over tensor parallelism has it.
      {"1", R"(global_shape=[4], placements=[["Shard", 0], ["Shard", 0]])", {4}, {{0}, {1}, {2}, {3}}},
      {"1",
       R"(global_shape=[4], placements=[["_StridedShard", 0, 2], ["Shard", 0]])",
       {4},
       {{0}, {2}, {1}, {3}}},
      {"1",
       R"(global_shape=[4], placements=[["Shard", 0], ["Shard", 0]], shard_order=[[0, [1, 0]]])",
       {4},
       {{0}, {2}, {1}, {3}}},
      // Rows that do not follow one another.
      {"4",
       R"(global_shape=[8], placements=[["_StridedShard", 0, 2], ["Replicate"]])",
       {8},
       {{0, 1, 4, 5}, {0, 1, 4, 5}, {2, 3, 6, 7}, {2, 3, 6, 7}}},
      {"2",
       R"(global_shape=[8], placements=[["_StridedShard", 0, 4], ["Shard", 0]])",
       {8},
       {{0, 2}, {4, 6}, {1, 3}, {5, 7}}},
      // Two dimensions, in and against the order of the axes.
      {"1, 2",
       R"(global_shape=[2, 4], placements=[["Shard", 0], ["Shard", 1]])",
       {2, 4},
       {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {"1, 2",
       R"(global_shape=[2, 4], placements=[["Shard", 1], ["Shard", 0]])",
       {2, 4},
       {{0, 1}, {4, 5}, {2, 3}, {6, 7}}},
  };
  for (const Row& row : rows) {
    INFO(row.recorded);
    CHECK(elements_of_ranks(parse_placed(row.type, row.recorded), row.global) == row.expected);
  }
  // What is made from a seed is cut in the same way.
  const Graph graph =
      parse_placed("1", R"(global_shape=[4], placements=[["_StridedShard", 0, 2], ["Shard", 0]])");
  const auto inputs = make_inputs(graph, derive_world(graph), KernelTable(), 5);
  const double of_rank[] = {0, 2, 1, 3};
  for (Rank rank = 0; rank < 4; ++rank)
    CHECK(read(inputs[rank][0])[0] ==
          RandomNumbers(5, "w").uniform(static_cast<std::uint64_t>(of_rank[rank])) * 0.25);
}

TEST_CASE("placements that say nothing, or something else than the type, are refused") {
  const std::pair<const char*, const char*> rows[] = {
      {R"(placements=[["Partial", "sum"], ["Shard", 0]])",
       "along axis 0 of its mesh ranks hold summands of it"},
      {R"(placements=[["RaggedShard"], ["Shard", 0]])", "its placement `RaggedShard` along axis 0"},
      {R"(placements=[["Shard"], ["Shard", 0]])",
       "its placement `Shard` along axis 0 of its mesh has wrong fields"},
      {R"(placements=[["Shard", 1], ["Shard", 0]])",
       "its placement `Shard` along axis 0 of its mesh has wrong fields"},
      {R"(placements=[["_StridedShard", 0, 0], ["Shard", 0]])", "its placement `_StridedShard` along axis 0"},
      {R"(placements=[["Shard", 0]])", "the file records 1 placements of it, and a mesh of 2 axes"},
      {R"(placements=[["Replicate"], ["Replicate"]])",
       "its type has the extents [2], its placements leave [4] of [4]"},
      {R"(placements=[["_StridedShard", 0, 4], ["Shard", 0]])", "cut unevenly"},
      {R"(placements=[["_StridedShard", 0, 4611686018427387904], ["_StridedShard", 0, 4611686018427387904]])",
       "cut unevenly"},
      {R"(placements=[["_StridedShard", 0, 9223372036854775807], ["Shard", 0]])", "cut unevenly"},
      {R"(placements=[["Shard", 0], ["Shard", 0]], shard_order=[[0, [1]]])",
       "its shard order leaves out axis 0"},
      {R"(placements=[["Shard", 0], ["Shard", 0]], shard_order=[[0, [1, 2]]])",
       "its shard order names axis 2 of a mesh of 2"},
      {R"(placements=[["Shard", 0], ["Shard", 0]], shard_order=[[0, [-1]]])",
       "its shard order names axis -1 of a mesh of 2"},
      {R"(placements=[3, ["Shard", 0]])", "its placement `` along axis 0"},
      {R"(placements=0)", "its recorded placements are no list"},
  };
  for (const auto& [recorded, message] : rows) {
    INFO(recorded);
    const Graph graph = parse_placed("2", std::string("global_shape=[4], ") + recorded);
    CHECK_THAT(refusal_of([&] { make_inputs(graph, derive_world(graph), KernelTable(), 5); }),
               Catch::Contains("input %w (role parameter) cannot be made: ") && Catch::Contains(message));
  }
}

TEST_CASE("a mesh with an axis of no ranks cuts nothing") {
  for (const char* shape : {"[0, 2]", "[-2, 2]", "[2, 0]"}) {
    INFO(shape);
    const Graph graph = parse_step(std::string(R"(info world_size = 4
graph
  %w = placeholder : f32[2] role=parameter fqn=w more{global_shape=[4], placements=[["Shard", 0], ["Shard", 0]]}
  %w_mesh = placeholder : =mesh(["a", "b"], )") +
                                   shape + R"(, [0, 1], "cuda") role=parameter fqn=w more{inner="device_mesh"}
  output([%w])
)");
    CHECK_THAT(refusal_of([&] { make_inputs(graph, derive_world(graph), KernelTable(), 5); }),
               Catch::Contains("the file records 2 placements of it, and a mesh of 0 axes"));
  }
}

TEST_CASE("a shard takes no memory before its runs are asked for, and an empty one has none") {
  constexpr std::int64_t kMany = 1'000'000'000'000;
  const Cuts cuts{{{0, {2, 2}, kMany}, {0, {2, 1}, 1}}, {}};
  CHECK(cut_shard({4 * kMany}, {kMany}, cuts).problem.empty());
  CHECK(cut_shard({0}, {0}, cuts).runs_of(1).at(0).empty());
  const auto refuse = [](auto...) { FAIL("it has no element"); };
  for_each_run(cut_shard({kMany, 0}, {kMany, 0}, {}).runs_of(0), {kMany, 0}, refuse);
  for_each_run(cut_shard({0, kMany}, {0, kMany}, {}).runs_of(0), {0, kMany}, refuse);
}

TEST_CASE("an input of a negative extent is refused") {
  const Graph graph =
      parse_step("graph\n  %w = placeholder : f32[-2] role=parameter fqn=w\n  output([%w])\n");
  CHECK_THAT(refusal_of([&] { make_inputs(graph, derive_world(graph), KernelTable(), 5); }),
             Catch::Contains("input %w (role parameter) cannot be made: it has the extents [-2]"));
}

// Of each rank, each input drawn at random.
std::vector<RankInputs> draw_inputs(const std::string& text) {
  const Graph graph = parse_step(text);
  InputData data(5);
  const Recipe recipe = parse_recipe(R"({"inputs": [{"name": "x", "make": "uniform"}]})", "r.json");
  data.recipe = &recipe;
  return make_inputs(graph, derive_world(graph), KernelTable(), data);
}

TEST_CASE("ranks that hold the same of a user's number of no dimension get the same") {
  const auto inputs = draw_inputs(R"(info world_size = 4
graph
  %x = placeholder : f32[] role=user which=x more{global_shape=[], placements=[["Replicate"], ["Replicate"]]}
  %m = placeholder : =mesh(["a", "b"], [2, 2], [[0, 1], [2, 3]], "cuda") role=user which=x more{inner="device_mesh"}
  output([%x])
)");
  for (Rank rank = 1; rank < 4; ++rank) CHECK(read(inputs[rank][0]) == read(inputs[0][0]));
}

TEST_CASE("ranks that hold the same of a user's tensor get the same numbers") {
  const auto inputs = draw_inputs(R"(info world_size = 4
graph
  %x = placeholder : f32[2] role=user which=x more{global_shape=[4], placements=[["Shard", 0], ["Replicate"]]}
  %m = placeholder : =mesh(["a", "b"], [2, 2], [[0, 1], [2, 3]], "cuda") role=user which=x more{inner="device_mesh"}
  output([%x])
)");
  CHECK(read(inputs[0][0]) == read(inputs[1][0]));
  CHECK(read(inputs[2][0]) == read(inputs[3][0]));
  CHECK(read(inputs[0][0]) != read(inputs[2][0]));
}

TEST_CASE("a recipe names a generator for each input") {
  const Graph graph = parse_step(R"(info world_size = 2
graph
  %w = placeholder : f32[2, 2] role=parameter fqn=layers.0.router.w
  %v = placeholder : f32[2, 2] role=parameter fqn=layers.0.w
  %ids = placeholder : i64[6] role=user which=ids
  %positions = placeholder : i32[6] role=user which="kwargs.positions"
  %c = placeholder : f64[2] role=buffer fqn=count
  output([%w])
)");
  const World world = derive_world(graph);
  const auto make = [&](const std::string& text) {
    const Recipe recipe = parse_recipe(text, "r.json");
    InputData data(0);
    data.recipe = &recipe;
    return make_inputs(graph, world, KernelTable(), data);
  };
  const auto inputs = make(R"({"document": 4, "inputs": [
      {"role": "parameter", "name": "*.router.*", "make": "uniform", "scale": 0.5},
      {"name": "ids", "dtype": "i64", "dims": 1, "make": "integers", "from": -1, "below": 2},
      {"role": "buffer", "make": "constant", "value": 2.5}]})");
  CHECK(read(inputs[0][0])[3] == RandomNumbers(0, "layers.0.router.w").uniform(3) * 0.5);
  CHECK(read(inputs[0][1])[3] == RandomNumbers(0, "layers.0.w").uniform(3) * 0.25);  // as it ships: fan-in
  for (double id : read(inputs[0][2])) CHECK((id == -1 || id == 0 || id == 1));
  CHECK(read(inputs[0][2]) != read(inputs[1][2]));  // each rank has its own tokens
  CHECK(read(inputs[1][3]) == std::vector<double>{0, 1, 2, 3, 0, 1});
  CHECK(read(inputs[1][4]) == std::vector<double>{2.5, 2.5});
  CHECK_THAT(refusal_of([&] { make("{}"); }),
             Catch::Contains("input %ids (role user) cannot be made: no row"));
}

TEST_CASE("activations that a pipeline stage is given for tokens are numbers, and labels count the tokens") {
  const auto inputs = draw_inputs(R"(info world_size = 2
graph
  %h = placeholder : f32[1, 2, 4] role=user which=tokens
  %labels = placeholder : i64[1, 2] role=user which=labels
  %n = placeholder : i64[] role=user which=global_valid_tokens
  output([%h])
)");
  const std::vector<double> numbers = read(inputs[0][0]);
  REQUIRE(numbers.size() == 8);
  for (double x : numbers) CHECK((x >= -1 && x < 1 && x != 0));
  CHECK(read(inputs[0][2]) == std::vector<double>{4});
}

TEST_CASE("recipes that say nothing are refused with the row") {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "not valid JSON"},
      {"[]", "not an object"},
      {R"({"input": []})", "unknown key `input`; did you mean `inputs`?"},
      {R"({"inputs": {}})", "`inputs` is a list"},
      {R"({"document": 0})", "at least 1"},
      {R"({"inputs": [{"name": "x"}]})", "row 1 of `inputs` does not say what to `make`"},
      {R"({"inputs": [{"make": "uniforn"}]})", "unknown generator `uniforn`; did you mean `uniform`?"},
      {R"({"inputs": [{"make": "gain"}, {"make": "gain", "scale": 2}]})",
       "row 2 of `inputs` has an unknown key of `gain` `scale`"},
      {R"({"inputs": [{"make": "uniform", "scale": "large"}]})", "a `scale` that is not a number"},
      {R"({"inputs": [{"make": "uniform", "dims": -1}]})", "`dims`"},
      {R"({"inputs": [{"make": "uniform", "dtype": "f31"}]})", "unknown dtype `f31`"},
      {R"({"inputs": [{"make": "integers"}]})", "`below` must be above `from`"},
      {R"({"inputs": [{"make": "integers", "below": 1e30}]})", "a `below` that is not a whole number"},
      {R"({"inputs": [{"make": "tokens", "first": -1}]})", "`first`"},
  };
  for (const auto& [text, message] : cases) {
    INFO(text);
    const std::string refusal = refusal_of([&text = text] { parse_recipe(text, "r.json"); });
    CHECK_THAT(refusal, Catch::StartsWith("r.json: ") && Catch::Contains(message));
  }
}

}  // namespace epweave::replay
