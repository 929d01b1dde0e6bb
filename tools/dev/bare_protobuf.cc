// bare_protobuf FILE: what protobuf alone takes to parse the bytes of an epweave graph and to
// serialise the message, in milliseconds, on one line: the floor beside which scripts/dev/bench.py
// puts reading and writing. Of five times each the least.
#include <fmt/format.h>
#include <google/protobuf/arena.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "epweave.pb.h"

namespace {

template <class Work>
double least_ms(const Work& work) {
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    least = std::min(least, taken.count());
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fmt::print(stderr, "usage: bare_protobuf FILE\n"), 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  google::protobuf::Arena arena;
  auto* const message = google::protobuf::Arena::CreateMessage<epweave::proto::File>(&arena);
  if (bytes.empty() || !message->ParseFromString(bytes))
    return fmt::print(stderr, "{}: not a graph in binary form\n", argv[1]), 3;
  const double parse = least_ms([&] {
    google::protobuf::Arena of_one;
    google::protobuf::Arena::CreateMessage<epweave::proto::File>(&of_one)->ParseFromString(bytes);
  });
  std::string out;
  const double serialise = least_ms([&] { message->SerializeToString(&out); });
  fmt::print("{:.2f} {:.2f}\n", parse, serialise);
  return 0;
}
