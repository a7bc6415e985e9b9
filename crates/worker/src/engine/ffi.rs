//! The C ABI of `include/cacheon_kernel.h`, field for field.

use std::ffi::c_void;

/// `cacheon_weights`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub(super) data: *const c_void,
    pub(super) bytes: u64,
    pub(super) row_bytes: u64,
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) dtype: u32,
    pub(super) reserved: u32,
}

impl Weights {
    pub(super) const NONE: Self =
        Self { data: std::ptr::null(), bytes: 0, row_bytes: 0, rows: 0, cols: 0, dtype: 0, reserved: 0 };
}

/// `cacheon_arena`
#[repr(C)]
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) base: *mut c_void,
    pub(super) bytes: u64,
    pub(super) used: u64,
}

/// `cacheon_linear`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    pub(super) weights: Weights,
    pub(super) phase: u32,
    pub(super) num_tokens: u32,
    pub(super) x_stride: u64,
    pub(super) out_stride: u64,
}

/// `cacheon_attention`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    pub(super) kv_len: u32,
    pub(super) num_q_heads: u32,
    pub(super) num_kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) kv_stride: u64,
    pub(super) scale: f32,
    pub(super) reserved: u32,
}

/// `cacheon_silu`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Silu {
    pub(super) num_tokens: u32,
    pub(super) width: u32,
    pub(super) x_stride: u64,
    pub(super) out_stride: u64,
}

/// `cacheon_rmsnorm`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RmsNorm {
    pub(super) num_tokens: u32,
    pub(super) width: u32,
    pub(super) x_stride: u64,
    pub(super) out_stride: u64,
    pub(super) eps: f32,
    pub(super) reserved: u32,
}

pub(super) type PrepareFn = unsafe extern "C" fn(*const Weights, *mut Arena, *mut *const c_void);
pub(super) type LinearFn =
    unsafe extern "C" fn(*const c_void, *const Linear, *const f32, *mut f32, *mut c_void);
pub(super) type AttentionFn = unsafe extern "C" fn(
    *const c_void,
    *const Attention,
    *const f32,
    *const f32,
    *const f32,
    *mut f32,
    *mut c_void,
);
pub(super) type SiluFn = unsafe extern "C" fn(*const c_void, *const Silu, *const f32, *mut f32, *mut c_void);
pub(super) type RmsNormFn =
    unsafe extern "C" fn(*const c_void, *const RmsNorm, *const f32, *const f32, *mut f32, *mut c_void);
pub(super) type DestroyFn = unsafe extern "C" fn(*const c_void);

/// The `run` function of an op, by slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunFn {
    Linear(LinearFn),
    Attention(AttentionFn),
    Silu(SiluFn),
    RmsNorm(RmsNormFn),
}

const _: () = {
    assert!(size_of::<Weights>() == 40);
    assert!(size_of::<Arena>() == 24);
    assert!(size_of::<Linear>() == 64);
    assert!(size_of::<Attention>() == 32);
    assert!(size_of::<Silu>() == 24);
    assert!(size_of::<RmsNorm>() == 32);
};
