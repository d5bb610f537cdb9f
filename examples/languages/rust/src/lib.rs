// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
//! A safe crate over lathe.h: contexts, buffers on the device, kernels, problems and plans.
//!
//! What was made with a context borrows it and cannot outlive it. A tensor's buffer is checked
//! against its shape here, everything else by lathe, whose sentences errors are.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val};
use std::ptr::{null, null_mut};

type Handle = *mut c_void;
type Name = *const c_char;

/// DLPack's DLTensor.
#[repr(C)]
struct RawTensor {
    data: Handle,
    device: [c_int; 2],
    ndim: c_int,
    code_and_bits: [u8; 2],
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}
type Slots = *const *const RawTensor;
extern "C" {
    fn lathe_last_error() -> Name;
    fn lathe_context_create(out: *mut Handle, options: *const c_void) -> c_int;
    fn lathe_context_destroy(context: Handle);
    fn lathe_malloc(context: Handle, out: *mut Handle, bytes: usize) -> c_int;
    fn lathe_free(context: Handle, pointer: Handle) -> c_int;
    fn lathe_copy_to_device(c: Handle, to: Handle, from: Handle, n: usize, s: Handle) -> c_int;
    fn lathe_copy_to_host(c: Handle, to: Handle, from: Handle, n: usize, s: Handle) -> c_int;
    fn lathe_stream_synchronize(context: Handle, stream: Handle) -> c_int;
    fn lathe_operator_parse(out: *mut Handle, text: Name, bytes: usize, file: Name) -> c_int;
    fn lathe_operator_describe(op: Handle) -> *const Name; // whose first field is the name
    fn lathe_operator_destroy(op: Handle);
    fn lathe_problem_create(out: *mut Handle, op: Name) -> c_int;
    fn lathe_problem_destroy(problem: Handle);
    fn lathe_problem_tensor(p: Handle, name: Name, dtype: c_int, n: c_int, s: *const i64) -> c_int;
    fn lathe_problem_set_string(problem: Handle, option: Name, value: Name) -> c_int;
    fn lathe_plan_create(out: *mut Handle, context: Handle, problem: Handle) -> c_int;
    fn lathe_plan_destroy(plan: Handle);
    fn lathe_plan_slot(plan: Handle, name: Name, out: *mut usize) -> c_int;
    fn lathe_plan_slot_count(plan: Handle) -> usize;
    fn lathe_plan_workspace(plan: Handle, slots: Slots, shard: Handle, n: *mut usize) -> c_int;
    fn lathe_plan_run(plan: Handle, slots: Slots, work: Handle, n: usize, s: Handle) -> c_int;
}

/// What was wrong, the value found, the values allowed.
#[derive(Debug)]
pub struct Error(pub String);
pub type Result<T> = std::result::Result<T, Error>;

fn check(status: c_int) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the text is good until this thread's next failing call.
    let text = unsafe { CStr::from_ptr(lathe_last_error()) };
    Err(Error(text.to_string_lossy().into_owned()))
}

fn text(words: &str) -> Result<CString> {
    CString::new(words).map_err(|_| Error(format!("{words:?} has a NUL")))
}

/// Elements: lathe_dtype, and DLPack's code of the kind.
pub trait Element: Copy + Default {
    const DTYPE: c_int;
    const CODE: u8;
}
macro_rules! element {
    ($type:ty, $dtype:expr, $code:expr) => {
        impl Element for $type {
            const DTYPE: c_int = $dtype;
            const CODE: u8 = $code;
        }
    };
}
element!(f32, 0, 2);
element!(i32, 3, 0);
element!(i64, 4, 0);

/// What one of lathe's functions made, and the function that ends it.
struct Owned(Handle, unsafe extern "C" fn(Handle));
impl Owned {
    fn made(
        end: unsafe extern "C" fn(Handle),
        create: impl FnOnce(*mut Handle) -> c_int,
    ) -> Result<Owned> {
        let mut out = null_mut();
        check(create(&mut out)).map(|_| Owned(out, end))
    }
}
impl Drop for Owned {
    fn drop(&mut self) {
        unsafe { (self.1)(self.0) }
    }
}

/// One device and one cache. Any thread may use it: lathe locks inside.
pub struct Context(Owned);
unsafe impl Send for Context {}
unsafe impl Sync for Context {}

impl Context {
    /// The device that LATHE_DEVICE names.
    pub fn new() -> Result<Context> {
        let create = |out| unsafe { lathe_context_create(out, null()) };
        Owned::made(lathe_context_destroy, create).map(Context)
    }
    /// The elements are not set.
    fn allocate<T: Element>(&self, count: usize) -> Result<Buffer<'_, T>> {
        let mut data = null_mut();
        check(unsafe { lathe_malloc(self.0 .0, &mut data, count * size_of::<T>()) })?;
        Ok(Buffer { context: self, data, count, element: PhantomData })
    }
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<Buffer<'_, T>> {
        let buffer = self.allocate(values.len())?;
        let (from, bytes) = (values.as_ptr() as Handle, size_of_val(values));
        check(unsafe { lathe_copy_to_device(self.0 .0, buffer.data, from, bytes, null_mut()) })?;
        Ok(buffer)
    }
    pub fn zeros<T: Element>(&self, count: usize) -> Result<Buffer<'_, T>> {
        self.upload(&vec![T::default(); count])
    }
    pub fn plan(&self, problem: &Problem) -> Result<Plan<'_>> {
        let create = |out| unsafe { lathe_plan_create(out, self.0 .0, problem.0 .0) };
        Ok(Plan { context: self, plan: Owned::made(lathe_plan_destroy, create)? })
    }
}

/// Elements on the device.
pub struct Buffer<'a, T: Element> {
    context: &'a Context,
    data: Handle,
    count: usize,
    element: PhantomData<T>,
}
impl<T: Element> Buffer<'_, T> {
    pub fn download(&self) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.count];
        let (to, bytes) = (values.as_mut_ptr() as Handle, self.count * size_of::<T>());
        check(unsafe { lathe_copy_to_host(self.context.0 .0, to, self.data, bytes, null_mut()) })?;
        Ok(values)
    }
    /// The buffer as a contiguous tensor of as many elements.
    pub fn shaped<'b>(&'b self, shape: &'b [i64]) -> Result<Tensor<'b>> {
        let count = shape.iter().try_fold(1, |all: i64, &n| all.checked_mul(n.max(0)));
        if count != i64::try_from(self.count).ok() {
            return Err(Error(format!("{} elements have no shape {shape:?}", self.count)));
        }
        let raw = RawTensor {
            data: self.data,
            device: [2, 0], // kDLCUDA
            ndim: shape.len() as c_int,
            code_and_bits: [T::CODE, 8 * size_of::<T>() as u8],
            lanes: 1,
            shape: shape.as_ptr(),
            strides: null(),
            byte_offset: 0,
        };
        Ok(Tensor { raw, lent: PhantomData })
    }
}
impl<T: Element> Drop for Buffer<'_, T> {
    fn drop(&mut self) {
        unsafe { lathe_free(self.context.0 .0, self.data) };
    }
}

pub struct Tensor<'a> {
    raw: RawTensor,
    lent: PhantomData<&'a [i64]>,
}

/// A kernel of the caller's own, from its text: an operator while this or a problem of it lives.
pub struct Kernel(Owned);
impl Kernel {
    pub fn parse(words: &str, file: &str) -> Result<Kernel> {
        let (at, file) = (words.as_ptr() as Name, text(file)?);
        let create = |out| unsafe { lathe_operator_parse(out, at, words.len(), file.as_ptr()) };
        Owned::made(lathe_operator_destroy, create).map(Kernel)
    }
    pub fn name(&self) -> String {
        unsafe { CStr::from_ptr(*lathe_operator_describe(self.0 .0)) }.to_string_lossy().into()
    }
}

/// What is asked of an operator. It belongs to one thread at a time.
pub struct Problem(Owned);
impl Problem {
    pub fn new(operator: &str) -> Result<Problem> {
        let name = text(operator)?;
        let create = |out| unsafe { lathe_problem_create(out, name.as_ptr()) };
        Owned::made(lathe_problem_destroy, create).map(Problem)
    }
    /// -1 stands for an extent that varies from run to run.
    pub fn tensor<T: Element>(self, name: &str, shape: &[i64]) -> Result<Problem> {
        let (name, rank, at) = (text(name)?, shape.len() as c_int, shape.as_ptr());
        check(unsafe { lathe_problem_tensor(self.0 .0, name.as_ptr(), T::DTYPE, rank, at) })?;
        Ok(self)
    }
    pub fn set(self, option: &str, value: &str) -> Result<Problem> {
        let (option, value) = (text(option)?, text(value)?);
        check(unsafe { lathe_problem_set_string(self.0 .0, option.as_ptr(), value.as_ptr()) })?;
        Ok(self)
    }
}
/// The kernels of a problem, compiled or loaded.
pub struct Plan<'a> {
    context: &'a Context,
    plan: Owned,
}
impl Plan<'_> {
    /// Runs with tensors by their names, and waits for it.
    pub fn run(&self, tensors: &[(&str, Tensor)]) -> Result<()> {
        let mut slots = vec![null(); unsafe { lathe_plan_slot_count(self.plan.0) }];
        for (name, tensor) in tensors {
            let (name, mut slot) = (text(name)?, 0);
            check(unsafe { lathe_plan_slot(self.plan.0, name.as_ptr(), &mut slot) })?;
            slots[slot] = &tensor.raw as *const _;
        }
        let (at, mut bytes) = (slots.as_ptr(), 0);
        check(unsafe { lathe_plan_workspace(self.plan.0, at, null_mut(), &mut bytes) })?;
        let work = self.context.allocate::<i32>(bytes / 4 + 1)?;
        check(unsafe { lathe_plan_run(self.plan.0, at, work.data, bytes, null_mut()) })?;
        check(unsafe { lathe_stream_synchronize(self.context.0 .0, null_mut()) })
    }
}
