// What is logged of values on the device (value_log.h) is what the CPU finds in them.
#include "replay/kernels/device/value_log.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "replay/kernels/device/both_devices.h"
#include "replay/values/compare.h"

namespace epweave::replay {
namespace {

// Any bits, NaNs of many kinds among those of floats; bools are 0 or 1.
Tensor any_bits(DType dtype, std::int64_t count) {
  HostMemory memory;
  Tensor made = make_tensor(memory, dtype, {count});
  std::uint64_t state = 1;
  for (std::size_t at = 0; at < made.storage->bytes(); ++at) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto byte = static_cast<unsigned char>(state >> 40);
    made.bytes()[at] = static_cast<std::byte>(dtype == DType::kBool ? byte & 1 : byte);
  }
  return made;
}

struct Logged {
  Tensor host;
  std::size_t hash = 0;
  std::vector<std::size_t> slices;  // by dimension
  std::size_t elements = 0;
};

// Logs all, and compares what was logged once it is taken.
class LogChecker {
 public:
  void add(const Tensor& host) {
    const Tensor tensor = device_.place(host).tensor();
    RankDevice& rank = device_.rank();
    Logged& logged = logged_.emplace_back(Logged{host, rank.log_hash(tensor)});
    for (std::size_t d = 0; d < host.rank(); ++d) logged.slices.push_back(rank.log_slices(tensor, d));
    if (host.element_bytes() <= 8) logged.elements = rank.log_elements(tensor);
  }
  void check() {
    const std::vector<std::uint64_t> log = device_.rank().take_log();
    for (const Logged& logged : logged_) {
      const Tensor& host = logged.host;
      INFO(fmt::format("{} [{}] strides [{}] offset {}", info(host.dtype).name, fmt::join(host.sizes, ", "),
                       fmt::join(host.strides, ", "), host.offset));
      CHECK(finish_hash(host.dtype, host.sizes, log.at(logged.hash)) == hash_tensor(host));
      std::uint64_t found = 0;
      if (has_nan(host)) found |= kLogNan;
      if (has_not_finite(host)) found |= kLogNotFinite;
      CHECK(log.at(logged.hash + 1) == found);
      for (std::size_t d = 0; d < host.rank(); ++d) {
        const HashedRows rows = rows_of_slices(host.dtype, host.sizes, d);
        std::vector<std::uint64_t> made;
        for (std::int64_t i = 0; i < rows.count; ++i)
          made.push_back(finish_slice(rows, log.at(logged.slices[d] + static_cast<std::size_t>(i))));
        CHECK(made == hash_slices(host, d));
      }
      if (host.element_bytes() > 8) continue;
      std::vector<std::byte> elements(static_cast<std::size_t>(host.numel()) * host.element_bytes());
      gather_elements(host, elements.data());
      if (!elements.empty())
        CHECK(std::memcmp(elements.data(), log.data() + logged.elements, elements.size()) == 0);
    }
    CHECK(device_.rank().take_log().empty());
  }

 private:
  OnDevice device_;
  std::vector<Logged> logged_;
};

}  // namespace

TEST_CASE("hashes of a device are the CPU's: of any size, in any strides") {
  LogChecker checker;
  for (const DType dtype :
       {DType::kBool, DType::kUint8, DType::kInt16, DType::kInt64, DType::kFloat8E4m3fn, DType::kBfloat16,
        DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    const Tensor all = any_bits(dtype, 20000);
    for (const std::int64_t n :
         {0, 1, 2, 3, 5, 7, 8, 9, 31, 64, 255, 256, 257, 511, 513, 1025, 4095, 4097, 8192, 19999})
      for (const std::int64_t offset : {0, 1}) checker.add(all.view({n}, {1}, offset));
    checker.add(all.view({}, {}, 3));
    checker.add(all.view({3, 0, 5}, {1, 1, 1}, 0));
    for (const std::int64_t width : {1, 4, 7, 33, 256, 600}) {
      checker.add(all.view({5, width}, {width, 1}, 0));      // dense
      checker.add(all.view({5, width}, {width + 3, 1}, 1));  // rows apart
      checker.add(all.view({width, 5}, {1, width}, 0));      // transposed
      checker.add(all.view({7, width}, {0, 1}, 2));          // broadcast
      checker.add(all.view({width, 7}, {1, 0}, 2));
      checker.add(all.view({3, width, 2}, {4 * width, 2, 2 * width}, 0));
      checker.add(all.view({2, 3, width, 4}, {12 * width, 4, 12, 1}, 0));
    }
  }
  checker.check();
}

TEST_CASE("hashes of a device: large tensors, whose chains are divided among blocks of threads") {
  LogChecker checker;
  const Tensor bytes = any_bits(DType::kUint8, (std::int64_t{9} << 20) + 5);
  checker.add(bytes);
  checker.add(bytes.view({(std::int64_t{9} << 20) + 4}, {1}, 1));
  const Tensor floats = any_bits(DType::kBfloat16, 3 << 20);
  checker.add(floats.view({3, 1 << 20}, {1 << 20, 1}, 0));
  checker.add(floats.view({1 << 15, 96}, {96, 1}, 0));
  checker.add(floats.view({1 << 10, 96, 32}, {32, 1 << 15, 1}, 0));
  checker.check();
}

TEST_CASE("hashes of a device tell one element apart") {
  OnDevice device;
  Tensor host = any_bits(DType::kInt32, 5000);
  std::set<std::uint64_t> hashes{hash_tensor(host)};
  for (const std::int64_t at : {0, 1, 63, 64, 1023, 1024, 4999}) {
    host.data<std::int32_t>()[at] ^= 1;
    const std::size_t place = device.rank().log_hash(device.rank().memory().place(host));
    const std::vector<std::uint64_t> log = device.rank().take_log();
    const std::uint64_t hash = finish_hash(host.dtype, host.sizes, log.at(place));
    CHECK(hash == hash_tensor(host));
    CHECK(hashes.insert(hash).second);
    host.data<std::int32_t>()[at] ^= 1;
  }
}

TEST_CASE("a log that is full is read and goes on") {
  OnDevice device;
  const Tensor host = any_bits(DType::kInt16, 1 << 18);
  const Tensor tensor = device.place(host).tensor();
  const std::vector<std::uint64_t> expected = hash_slices(host, 0);
  const HashedRows rows = rows_of_slices(host.dtype, host.sizes, 0);
  std::vector<std::size_t> places;
  for (int i = 0; i < 5; ++i) places.push_back(device.rank().log_slices(tensor, 0));
  // More than a log holds at a time.
  const Tensor many = any_bits(DType::kInt8, static_cast<std::int64_t>(device::kLogBytes / 8) + 3);
  const std::size_t of_many = device.rank().log_slices(device.place(many).tensor(), 0);
  const std::size_t last = device.rank().log_hash(tensor);
  const std::vector<std::uint64_t> log = device.rank().take_log();
  for (const std::size_t place : places)
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (finish_slice(rows, log.at(place + i)) != expected[i]) FAIL("slice " << i << " from " << place);
  const std::vector<std::uint64_t> slices = hash_slices(many, 0);
  const HashedRows rows_of_many = rows_of_slices(many.dtype, many.sizes, 0);
  for (std::size_t i = 0; i < slices.size(); ++i)
    if (finish_slice(rows_of_many, log.at(of_many + i)) != slices[i]) FAIL("slice " << i << " of many");
  CHECK(finish_hash(host.dtype, host.sizes, log.at(last)) == hash_tensor(host));
}

}  // namespace epweave::replay
