// check_onnx FILE...: whether libonnx's checker accepts each ONNX model. For tests; not installed.
// Prints what it finds wrong; exit code 1 if it finds anything.
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>

#include <cstdio>
#include <exception>
#include <fstream>

int main(int count, char** files) {
  int failures = 0;
  for (int i = 1; i < count; ++i) {
    try {
      std::ifstream in(files[i], std::ios::binary);
      onnx::ModelProto model;
      if (!model.ParseFromIstream(&in)) throw std::runtime_error("not an ONNX model");
      onnx::checker::check_model(model);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", files[i], error.what());
      ++failures;
    }
  }
  return failures == 0 ? 0 : 1;
}
