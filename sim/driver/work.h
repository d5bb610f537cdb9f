// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions put work into streams and wait for it.
#pragma once

#include "sim/driver/entry.h"

namespace sim::driver {

// Finds the stream that a handle means in this context: 0 and 1 mean the legacy one, 2 this
// thread's own. Returns CUDA_ERROR_INVALID_HANDLE if there is none.
CUresult resolve_stream(Driver& driver, Context& context, CUstream handle,
                        std::shared_ptr<Stream>* out);

// Returns the stream that a handle means in the _ptsz and _ptds twins of the calls, where 0 is the
// calling thread's own.
inline CUstream own(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

// Runs body(Driver&, Lock&, Stream&) with the stream that a handle means in the current context.
template <typename F>
CUresult with_stream(CUstream handle, F body) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    const CUresult result = resolve_stream(driver, context, handle, &stream);
    return result != CUDA_SUCCESS ? result : body(driver, lock, *stream);
  });
}

// Appends work in stream order, or adds a node if the stream is capturing. The work also waits for
// `after`. `completion`, if given, receives the work's completion (null while capturing).
CUresult submit(Driver& driver, Stream& stream, Action action,
                std::vector<CompletionPtr> after = {}, CompletionPtr* completion = nullptr,
                std::function<bool()> ready = nullptr);

// Calls a host function as the work of a stream: it may not call the driver.
CUresult run_host_function(CUhostFn function, void* data);

// Waits for the work. Then returns the context's state, or the error that the work itself ended
// with.
CUresult wait_for(Driver& driver, Lock& lock, Context& context, const CompletionPtr& completion);

// Returns all work enqueued so far in the context.
std::vector<CompletionPtr> everything(Context& context);
// Waits until all of it is over, and until what is being freed has been given back.
CUresult synchronize(Driver& driver, Lock& lock, Context& context);

// Runs `action` once everything enqueued so far in the context is over. Waits for that, unless the
// device is stalled on a value that a host thread may have yet to write.
CUresult after_everything(Driver& driver, Lock& lock, Context& context, Action action);

// Ends all work of a context at once with its error; what runs now is waited for.
void drop_work(Driver& driver, Lock& lock, Context& context);

// Perhaps, by the seed, lets other work of the device have a turn; surely if it is urgent and there
// is some. Returns the context's error, with which the caller's work has to end too.
CUresult give_way(Driver& driver, Context& context, bool urgent);

// Says whether all work that can run has run. Work that has long been running may be waiting for
// the host, and does not count.
bool is_at_rest(const Device& device);

// Starts the device's worker thread if need be and tells it of new work.
void wake(Driver& driver, Device& device);

}  // namespace sim::driver
