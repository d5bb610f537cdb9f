// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;

/**
 * lathe.h by the foreign function API: a context, float32 buffers on the device, plans. Closing it ends all that was made with it.
 * A call that fails throws with lathe's own sentence.
 */
final class Lathe implements AutoCloseable {
  private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;
  private static final ValueLayout.OfFloat FLOAT = ValueLayout.JAVA_FLOAT;
  private static final java.lang.foreign.AddressLayout POINTER = ValueLayout.ADDRESS;
  private static final MemorySegment NULL = MemorySegment.NULL;
  private static final int F32 = 0;
  private static final long TENSOR_BYTES = 48;

  private static final Linker LINKER = Linker.nativeLinker();
  private static final SymbolLookup LIBRARY = library();

  private static SymbolLookup library() {
    String prefix = System.getenv("LATHE_PREFIX");
    String path = prefix == null ? "liblathe.so" : prefix + "/lib/liblathe.so";
    return SymbolLookup.libraryLookup(path, Arena.global());
  }

  private static MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
    FunctionDescriptor type =
        result == null ? FunctionDescriptor.ofVoid(arguments) : FunctionDescriptor.of(result, arguments);
    return LINKER.downcallHandle(LIBRARY.find(name).orElseThrow(), type);
  }

  private static final MethodHandle LAST_ERROR = function("lathe_last_error", POINTER);
  private static final MethodHandle CONTEXT_CREATE = function("lathe_context_create", INT, POINTER, POINTER);
  private static final MethodHandle CONTEXT_DESTROY = function("lathe_context_destroy", null, POINTER);
  private static final MethodHandle MALLOC = function("lathe_malloc", INT, POINTER, POINTER, LONG);
  private static final MethodHandle FREE = function("lathe_free", INT, POINTER, POINTER);
  private static final MethodHandle TO_DEVICE =
      function("lathe_copy_to_device", INT, POINTER, POINTER, POINTER, LONG, POINTER);
  private static final MethodHandle TO_HOST =
      function("lathe_copy_to_host", INT, POINTER, POINTER, POINTER, LONG, POINTER);
  private static final MethodHandle SYNCHRONIZE = function("lathe_stream_synchronize", INT, POINTER, POINTER);
  private static final MethodHandle OPERATOR_PARSE =
      function("lathe_operator_parse", INT, POINTER, POINTER, LONG, POINTER);
  private static final MethodHandle OPERATOR_DESCRIBE = function("lathe_operator_describe", POINTER, POINTER);
  private static final MethodHandle OPERATOR_DESTROY = function("lathe_operator_destroy", null, POINTER);
  private static final MethodHandle PROBLEM_CREATE = function("lathe_problem_create", INT, POINTER, POINTER);
  private static final MethodHandle PROBLEM_DESTROY = function("lathe_problem_destroy", null, POINTER);
  private static final MethodHandle PROBLEM_TENSOR =
      function("lathe_problem_tensor", INT, POINTER, POINTER, INT, INT, POINTER);
  private static final MethodHandle PROBLEM_SET = function("lathe_problem_set_string", INT, POINTER, POINTER, POINTER);
  private static final MethodHandle PLAN_CREATE = function("lathe_plan_create", INT, POINTER, POINTER, POINTER);
  private static final MethodHandle PLAN_DESTROY = function("lathe_plan_destroy", null, POINTER);
  private static final MethodHandle PLAN_SLOT = function("lathe_plan_slot", INT, POINTER, POINTER, POINTER);
  private static final MethodHandle PLAN_SLOTS = function("lathe_plan_slot_count", LONG, POINTER);
  private static final MethodHandle PLAN_WORKSPACE =
      function("lathe_plan_workspace", INT, POINTER, POINTER, POINTER, POINTER);
  private static final MethodHandle PLAN_RUN =
      function("lathe_plan_run", INT, POINTER, POINTER, POINTER, LONG, POINTER);

  private static Object call(MethodHandle function, Object... arguments) {
    try {
      return function.invokeWithArguments(arguments);
    } catch (Throwable error) {
      throw new IllegalStateException(error);
    }
  }

  private static void check(MethodHandle function, Object... arguments) {
    if ((int) call(function, arguments) == 0) return;
    MemorySegment text = (MemorySegment) call(LAST_ERROR);
    throw new IllegalArgumentException(text.reinterpret(Long.MAX_VALUE).getString(0));
  }

  /** Calls create(out, arguments...) and returns what it made. */
  private static MemorySegment made(MethodHandle create, MemorySegment... arguments) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(POINTER);
      Object[] all = new Object[arguments.length + 1];
      all[0] = out;
      System.arraycopy(arguments, 0, all, 1, arguments.length);
      check(create, all);
      return out.get(POINTER, 0);
    }
  }

  private final MemorySegment context;
  private final Deque<Runnable> ends = new ArrayDeque<>(); // the last one made is the first one ended

  /** Takes the device that LATHE_DEVICE names. */
  Lathe() {
    context = made(CONTEXT_CREATE, NULL);
    ends.push(() -> call(CONTEXT_DESTROY, context));
  }

  @Override
  public void close() {
    while (!ends.isEmpty()) ends.pop().run();
  }

  record Buffer(MemorySegment data, int count) {}

  record Tensor(Buffer buffer, long... shape) {}

  private MemorySegment allocate(long bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(POINTER);
      check(MALLOC, context, out, bytes);
      return out.get(POINTER, 0);
    }
  }

  Buffer upload(float[] values) {
    MemorySegment data = allocate(4L * values.length);
    ends.push(() -> call(FREE, context, data));
    try (Arena arena = Arena.ofConfined()) {
      check(TO_DEVICE, context, data, arena.allocateFrom(FLOAT, values), 4L * values.length, NULL);
    }
    return new Buffer(data, values.length);
  }

  float[] download(Buffer buffer) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment values = arena.allocate(FLOAT, buffer.count());
      check(TO_HOST, context, values, buffer.data(), 4L * buffer.count(), NULL);
      return values.toArray(FLOAT);
    }
  }

  /** The kernels of a problem, compiled or loaded. */
  final class Plan {
    private final MemorySegment plan;

    private Plan(MemorySegment plan) {
      this.plan = plan;
      ends.push(() -> call(PLAN_DESTROY, plan));
    }

    /** Runs with contiguous tensors by their names, and waits for it. */
    void run(Map<String, Tensor> tensors) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment slots = arena.allocate(POINTER, (long) call(PLAN_SLOTS, plan));
        MemorySegment number = arena.allocate(LONG);
        tensors.forEach((name, tensor) -> {
          long count = 1;
          for (long extent : tensor.shape()) count *= extent;
          if (count != tensor.buffer().count()) throw new IllegalArgumentException(name + ": the buffer has another size");
          check(PLAN_SLOT, plan, arena.allocateFrom(name), number);
          slots.setAtIndex(POINTER, number.get(LONG, 0), view(arena, tensor));
        });
        check(PLAN_WORKSPACE, plan, slots, NULL, number);
        long bytes = number.get(LONG, 0);
        MemorySegment workspace = allocate(bytes);
        try {
          check(PLAN_RUN, plan, slots, workspace, bytes, NULL);
          check(SYNCHRONIZE, context, NULL);
        } finally {
          call(FREE, context, workspace);
        }
      }
    }

    /** DLPack's DLTensor: data, device, ndim, dtype, shape, strides, byte_offset. */
    private MemorySegment view(Arena arena, Tensor tensor) {
      MemorySegment view = arena.allocate(TENSOR_BYTES, 8);
      view.set(POINTER, 0, tensor.buffer().data());
      view.set(INT, 8, 2); // kDLCUDA
      view.set(INT, 16, tensor.shape().length);
      view.set(INT, 20, 2 | 32 << 8 | 1 << 16); // kDLFloat, 32 bits, 1 lane
      view.set(POINTER, 24, arena.allocateFrom(LONG, tensor.shape()));
      return view;
    }
  }

  /** Makes an operator of a kernel's text, and returns its name; it is there until this is closed. */
  String kernel(String text, String file) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(POINTER), words = arena.allocateFrom(text);
      check(OPERATOR_PARSE, out, words, words.byteSize() - 1, arena.allocateFrom(file)); // without its zero
      MemorySegment operator = out.get(POINTER, 0);
      ends.push(() -> call(OPERATOR_DESTROY, operator));
      MemorySegment info = (MemorySegment) call(OPERATOR_DESCRIBE, operator); // its first field is the name
      return info.reinterpret(POINTER.byteSize()).get(POINTER, 0).reinterpret(Long.MAX_VALUE).getString(0);
    }
  }

  /** Declares float32 tensors by their shapes; -1 stands for an extent that varies from run to run. */
  Plan plan(String operator, Map<String, long[]> tensors, Map<String, String> options) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment problem = made(PROBLEM_CREATE, arena.allocateFrom(operator));
      try {
        options.forEach((name, value) -> check(PROBLEM_SET, problem, arena.allocateFrom(name), arena.allocateFrom(value)));
        tensors.forEach((name, shape) -> check(PROBLEM_TENSOR, problem, arena.allocateFrom(name), F32, shape.length,
            arena.allocateFrom(LONG, shape)));
        return new Plan(made(PLAN_CREATE, context, problem));
      } finally {
        call(PROBLEM_DESTROY, problem);
      }
    }
  }
}
