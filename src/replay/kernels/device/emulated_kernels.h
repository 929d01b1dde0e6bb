// How the emulated device runs a kernel: a loop over its indices. Each is compiled twice, for the
// sake of the fused multiply-add; wider vectors would only take time to compile.
#pragma once

#include <cstring>
#include <vector>

#include "replay/kernels/host/levels.h"
#include "replay/kernels/tasks/task_list.h"

namespace epweave::replay::device {

using namespace tasks;  // NOLINT: what a device runs

template <class Task>
[[gnu::always_inline]] inline void run_threads(const Task& task, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) task.run(i);
}

// Blocks of threads: each phase for all threads in turn.
template <class Task>
[[gnu::always_inline]] inline void run_blocks(const Task& task, std::int64_t blocks) {
  typename Task::Shared shared;
  std::vector<typename Task::Registers> registers(Task::kThreads);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const typename Task::Part part = task.part_of(static_cast<std::uint32_t>(block));
    if (!task.has_work(part)) continue;
    for (int t = 0; t < Task::kThreads; ++t)
      task.start(part, t, shared, registers[static_cast<std::size_t>(t)]);
    for (decltype(Task::chunks(part)) chunk = 0; chunk < Task::chunks(part); ++chunk) {
      if (!task.has_steps(part, chunk)) continue;
      for (int t = 0; t < Task::kThreads; ++t)
        task.template phase<0>(part, chunk, t, shared, registers[static_cast<std::size_t>(t)]);
      if constexpr (Task::kPhases == 2)
        for (int t = 0; t < Task::kThreads; ++t)
          task.template phase<1>(part, chunk, t, shared, registers[static_cast<std::size_t>(t)]);
    }
    for (int t = 0; t < Task::kThreads; ++t) task.store(part, t, registers[static_cast<std::size_t>(t)]);
  }
}

// The same of rows: each step for all threads in turn.
template <class Task>
[[gnu::always_inline]] inline void run_rows(const Task& task, std::int64_t blocks) {
  typename Task::Shared shared{};
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t step = 0; step < task.steps(); ++step)
      for (int t = 0; t < Task::kThreads; ++t) task.step(step, block, t, shared);
}

template <class Task>
[[gnu::always_inline]] inline void run_body(const Task& task, std::int64_t count) {
  if constexpr (is_block_task<Task>)
    run_blocks(task, count);
  else if constexpr (is_row_task<Task>)
    run_rows(task, count);
  else
    run_threads(task, count);
}

template <class Task>
void run_base(const Task& task, std::int64_t count) {
  run_body(task, count);
}
#if defined(__x86_64__)
template <class Task>
EPWEAVE_AVX2 void run_avx2(const Task& task, std::int64_t count) {
  run_body(task, count);
}
#endif

template <class Task>
void run_emulated(const void* bytes, std::int64_t count) {
  Task task;
  std::memcpy(static_cast<void*>(&task), bytes, sizeof task);
  switch (cpu::level()) {
#if defined(__x86_64__)
    case cpu::Level::kAvx512:
    case cpu::Level::kAvx2:
      return run_avx2(task, count);
#endif
    default:
      return run_base(task, count);
  }
}

// The kernels of EPWEAVE_DEVICE_BLOCK_TASKS and EPWEAVE_DEVICE_ROW_TASKS, compiled apart.
void run_emulated_product(TaskKind kind, const void* task, std::int64_t blocks);
void run_emulated_rows(TaskKind kind, const void* task, std::int64_t blocks);

}  // namespace epweave::replay::device
