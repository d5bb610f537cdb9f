// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0

// Package lathe calls lathe.h: contexts, buffers on the device, problems and plans. Errors are
// lathe's own sentences. Close what was made with a context before the context.
package lathe

// #cgo pkg-config: lathe
// #include <lathe.h>
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// do calls f and takes its error: the text is the thread's.
func do(f func() C.lathe_status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if f() == C.LATHE_OK {
		return nil
	}
	return errors.New(C.GoString(C.lathe_last_error()))
}

// An Element is what tensors have here.
type Element interface{ float32 | int32 | int64 }

func dtypeOf[T Element]() (C.lathe_dtype, C.DLDataType) {
	switch any(*new(T)).(type) {
	case int32:
		return C.LATHE_I32, C.DLDataType{code: C.kDLInt, bits: 32, lanes: 1}
	case int64:
		return C.LATHE_I64, C.DLDataType{code: C.kDLInt, bits: 64, lanes: 1}
	}
	return C.LATHE_F32, C.DLDataType{code: C.kDLFloat, bits: 32, lanes: 1}
}

// A Context is one device and one cache. Any goroutine may use it.
type Context struct{ raw *C.lathe_context }

// NewContext takes the device that LATHE_DEVICE names.
func NewContext() (*Context, error) {
	c := &Context{}
	return c, do(func() C.lathe_status { return C.lathe_context_create(&c.raw, nil) })
}
func (c *Context) Close() { C.lathe_context_destroy(c.raw) }

// A Buffer has elements on the device.
type Buffer[T Element] struct {
	context *Context
	data    unsafe.Pointer
	count   int
}

func Allocate[T Element](c *Context, count int) (*Buffer[T], error) {
	b := &Buffer[T]{context: c, count: count}
	bytes := C.size_t(count) * C.size_t(unsafe.Sizeof(*new(T)))
	return b, do(func() C.lathe_status { return C.lathe_malloc(c.raw, &b.data, bytes) })
}

func Upload[T Element](c *Context, values []T) (*Buffer[T], error) {
	b, err := Allocate[T](c, len(values))
	if err != nil || len(values) == 0 {
		return b, err
	}
	bytes := C.size_t(len(values)) * C.size_t(unsafe.Sizeof(values[0]))
	return b, do(func() C.lathe_status {
		return C.lathe_copy_to_device(c.raw, b.data, unsafe.Pointer(&values[0]), bytes, nil)
	})
}

func (b *Buffer[T]) Download() ([]T, error) {
	values := make([]T, b.count)
	if b.count == 0 {
		return values, nil
	}
	bytes := C.size_t(b.count) * C.size_t(unsafe.Sizeof(values[0]))
	return values, do(func() C.lathe_status {
		return C.lathe_copy_to_host(b.context.raw, unsafe.Pointer(&values[0]), b.data, bytes, nil)
	})
}
func (b *Buffer[T]) Close() { C.lathe_free(b.context.raw, b.data) }

// Shaped is the buffer as a contiguous tensor of as many elements.
func (b *Buffer[T]) Shaped(shape ...int64) Tensor {
	dtype, kind := dtypeOf[T]()
	return Tensor{b.data, b.count, dtype, kind, shape}
}

type Tensor struct {
	data  unsafe.Pointer
	count int
	dtype C.lathe_dtype
	kind  C.DLDataType
	shape []int64
}

// A Kernel is an operator of the caller's own text, for as long as it or a problem of it is open.
type Kernel struct{ raw *C.lathe_operator }

func ParseKernel(text, file string) (*Kernel, error) {
	k, words, name := &Kernel{}, C.CString(text), C.CString(file)
	defer C.free(unsafe.Pointer(words))
	defer C.free(unsafe.Pointer(name))
	return k, do(func() C.lathe_status {
		return C.lathe_operator_parse(&k.raw, words, C.size_t(len(text)), name)
	})
}
func (k *Kernel) Name() string { return C.GoString(C.lathe_operator_describe(k.raw).name) }
func (k *Kernel) Close()       { C.lathe_operator_destroy(k.raw) }

// A Problem says what is asked of an operator. The first error is kept for Plan.
type Problem struct {
	raw *C.lathe_problem
	err error
}

func NewProblem(operator string) *Problem {
	p, name := &Problem{}, C.CString(operator)
	defer C.free(unsafe.Pointer(name))
	p.err = do(func() C.lathe_status { return C.lathe_problem_create(&p.raw, name) })
	return p
}

func (p *Problem) Set(option, value string) *Problem {
	name, text := C.CString(option), C.CString(value)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(text))
	if p.err == nil {
		p.err = do(func() C.lathe_status { return C.lathe_problem_set_string(p.raw, name, text) })
	}
	return p
}

// Declare names a tensor; -1 stands for an extent that varies from run to run.
func Declare[T Element](p *Problem, name string, shape ...int64) *Problem {
	dtype, _ := dtypeOf[T]()
	word, at := C.CString(name), (*C.int64_t)(&shape[0])
	defer C.free(unsafe.Pointer(word))
	if p.err == nil {
		p.err = do(func() C.lathe_status {
			return C.lathe_problem_tensor(p.raw, word, dtype, C.int(len(shape)), at)
		})
	}
	return p
}

// A Plan has the kernels of a problem, compiled or loaded.
type Plan struct {
	context *Context
	raw     *C.lathe_plan
}

// Plan makes a plan and ends the problem.
func (p *Problem) Plan(c *Context) (*Plan, error) {
	defer C.lathe_problem_destroy(p.raw)
	plan := &Plan{context: c}
	if p.err != nil {
		return plan, p.err
	}
	return plan, do(func() C.lathe_status { return C.lathe_plan_create(&plan.raw, c.raw, p.raw) })
}
func (p *Plan) Close() { C.lathe_plan_destroy(p.raw) }

// Run runs with tensors by their names, and waits for it. What C reads lies in C's memory.
func (p *Plan) Run(tensors map[string]Tensor) error {
	count := int(C.lathe_plan_slot_count(p.raw))
	at := (**C.DLTensor)(C.calloc(C.size_t(count), C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(at))
	slots := unsafe.Slice(at, count)
	for name, t := range tensors {
		elements := int64(1)
		for _, extent := range t.shape {
			elements *= extent
		}
		if elements != int64(t.count) {
			return fmt.Errorf("%s: a buffer of %d elements has no shape %v", name, t.count, t.shape)
		}
		shape := (*C.int64_t)(C.malloc(C.size_t(8 * len(t.shape))))
		view := (*C.DLTensor)(C.calloc(1, C.sizeof_DLTensor))
		defer C.free(unsafe.Pointer(shape))
		defer C.free(unsafe.Pointer(view))
		copy(unsafe.Slice((*int64)(unsafe.Pointer(shape)), len(t.shape)), t.shape)
		view.data, view.ndim, view.dtype, view.shape = t.data, C.int32_t(len(t.shape)), t.kind, shape
		view.device.device_type = C.kDLCUDA
		word, slot := C.CString(name), C.size_t(0)
		defer C.free(unsafe.Pointer(word))
		err := do(func() C.lathe_status { return C.lathe_plan_slot(p.raw, word, &slot) })
		if err != nil {
			return err
		}
		slots[slot] = view
	}
	bytes := C.size_t(0)
	err := do(func() C.lathe_status { return C.lathe_plan_workspace(p.raw, at, nil, &bytes) })
	if err != nil {
		return err
	}
	workspace, err := Allocate[int32](p.context, int(bytes+3)/4)
	if err != nil {
		return err
	}
	defer workspace.Close()
	err = do(func() C.lathe_status { return C.lathe_plan_run(p.raw, at, workspace.data, bytes, nil) })
	if err != nil {
		return err
	}
	return do(func() C.lathe_status { return C.lathe_stream_synchronize(p.context.raw, nil) })
}
