/*
 * cacheon_kernel.h: the C ABI "cacheon-c-abi-v1" between the CPU engine and a kernel bundle.
 *
 * A bundle names, for every op it offers, an `entry`. The shared object built from its C sources exports
 *
 *     <entry>_prepare   optional   once for every weight the op serves, before the first run
 *     <entry>_run       required   once for every call
 *     <entry>_destroy   optional   once for every prepared state, when the engine closes
 *
 * marked with CACHEON_EXPORT, and nothing else. No function returns anything: what a kernel says about itself
 * decides nothing, its outputs do. The build provides this header; a bundle does not carry it.
 *
 * How it is built (in a container without network, sources read-only; nothing of it can be changed by a bundle):
 *
 *     cc -std=gnu11 -O3 -march=x86-64-v3 -mtune=haswell -fPIC -fvisibility=hidden -fno-math-errno
 *        -ffp-contract=fast -fno-ident -ffile-prefix-map=<bundle>=. -Wall -Wextra -Wno-unused-parameter
 *        -I <this header's folder> -I <bundle> -shared -nostartfiles -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack
 *        -Wl,-z,defs -Wl,--build-id=none -Wl,-O1 <.c files in manifest order, each once> -lm
 *
 * The object has no initialisers and no finalisers; one that has them is refused.
 *
 * On x86-64 machines without AVX2 `-march=x86-64 -mtune=generic` stands in the second place; `__AVX2__` tells the two
 * apart. `-ffast-math` is never used: its start-up object changes the floating-point control word of the process.
 *
 * Rules for every function
 *   - One thread calls, one call at a time. A kernel starts no thread: the container denies it.
 *   - Nothing is ever called with a null pointer except where this header says so.
 *   - Read only what is described here, to the last element of the last row and no further: guard pages may follow.
 *   - Write every element of the output's rows; leave the gap between two rows of a strided output alone. Outputs
 *     hold arbitrary bits (NaN included) before the call.
 *   - Inputs and weights are read-only and, the weights apart, hold other values at the next call even where addresses
 *     and shapes are equal.
 *   - Results depend on the arguments only. Keep no pointer to an input, output or workspace after `run` returns.
 *   - Leave the floating-point control word (rounding, flush-to-zero, exception masks) as it was.
 *   - Non-finite outputs where the exact result is finite are wrong, wherever they stand.
 *
 * Alignment
 *   - Weights: 32 bytes. Workspace and arena: 64 bytes.
 *   - Activations and outputs: the alignment of float (4 bytes); serving buffers usually have 64. Use unaligned loads.
 *
 * Strides count elements (floats), from one row to the next, and are at least the row's length.
 *
 * Numbers are IEEE-754 binary32 unless stated. Every op is graded against a reference in binary64 on exactly the same
 * inputs and exactly dequantised weights, within bounds that are calibrated with honest kernels that quantise
 * activations to 8 bits per 32 values; a kernel may use less precision than the reference, not less than those.
 */
#ifndef CACHEON_KERNEL_H
#define CACHEON_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CACHEON_KERNEL_ABI 1
#define CACHEON_EXPORT __attribute__((visibility("default")))

/* Tokens in one call never exceed this: longer prompts are fed in pieces. */
#define CACHEON_MAX_TOKENS 128u

/* Bytes of the workspace given to every `run`. Contents are arbitrary at entry and lost at return. */
#define CACHEON_WORKSPACE_BYTES (2u << 20)

/* Weight encodings, numbered as in GGUF. */
#define CACHEON_F32 0u
#define CACHEON_Q4_1 3u
#define CACHEON_Q8_0 8u

/*
 * Q4_1: 32 values in 20 bytes. Value j (0..15) is the low nibble of q[j], value j+16 the high nibble;
 * w = d * nibble + m, with d and m IEEE-754 binary16.
 */
typedef struct {
    uint16_t d;
    uint16_t m;
    uint8_t q[16];
} cacheon_block_q4_1;

/* Q8_0: 32 values in 34 bytes; w = d * q[j], d IEEE-754 binary16. */
typedef struct {
    uint16_t d;
    int8_t q[32];
} cacheon_block_q8_0;

/* What the pass is. A prefill pass carries a whole prompt, a decode pass one token. */
#define CACHEON_PREFILL 1u
#define CACHEON_DECODE 2u

/*
 * One weight as it lies in the model file, row-major: `rows` output features of `cols` input features.
 * Quantised rows hold cols/32 blocks; cols is a multiple of 32. A norm weight has rows = 1 and dtype CACHEON_F32.
 * Ops without weights (attention.decode, activation.silu_and_mul) see data = NULL and zeros.
 */
typedef struct {
    const void *data;
    uint64_t bytes;     /* rows * row_bytes */
    uint64_t row_bytes; /* from one row to the next; no gaps */
    uint32_t rows;
    uint32_t cols;
    uint32_t dtype;
    uint32_t reserved; /* 0 */
} cacheon_weights;

/*
 * Memory for a prepared state: `bytes` zeroed bytes at `base`, of which the kernel takes as many as it wants from the
 * start and adds them to `used`. It belongs to this weight and op alone. After `prepare` returns it becomes read-only.
 * `bytes` is at least twice the weight's bytes and at least 64 KiB. A prepare that leaves used > bytes, or that runs
 * beyond its deadline, fails the bundle. No other memory may be kept.
 */
typedef struct {
    void *base;
    uint64_t bytes;
    uint64_t used;
} cacheon_arena;

/*
 *     void <entry>_prepare(const cacheon_weights *weights, cacheon_arena *arena, const void **state);
 *
 * Sets *state to what `run` shall be given: an address inside the arena, or NULL (the initial value).
 * Called once per weight for linear.quantized and norm.rmsnorm, once for the others. The descriptor lives only during
 * the call; the bytes at weights->data live, unchanged, until after `destroy`.
 */
typedef void (*cacheon_prepare_fn)(const cacheon_weights *weights, cacheon_arena *arena, const void **state);

/*
 *     void <entry>_destroy(const void *state);
 */
typedef void (*cacheon_destroy_fn)(const void *state);

/*
 * Slot linear.quantized: out[t][r] = sum over c of W[r][c] * x[t][c].
 *
 *     void <entry>_run(const void *state, const cacheon_linear *call, const float *x, float *out, void *workspace);
 *
 * Domain: dtype Q4_1 or Q8_0 (capability `quant`: "q4_1", "q8_0"); num_tokens 1..CACHEON_MAX_TOKENS; rows >= 1 and any;
 * cols a multiple of 32, 32..16384. In this model cols is 576 or 1536 and rows 192, 576, 1536 or 49152. Phase prefill
 * has num_tokens >= 1 (the output head is called for the last token only), phase decode has num_tokens = 1.
 */
typedef struct {
    cacheon_weights weights; /* the same that `prepare` saw */
    uint32_t phase;
    uint32_t num_tokens;
    uint64_t x_stride;
    uint64_t out_stride;
} cacheon_linear;
typedef void (*cacheon_linear_fn)(const void *state, const cacheon_linear *call, const float *x, float *out,
                                  void *workspace);

/*
 * Slot attention.decode: causal attention of one new token over everything cached, itself included.
 *
 *     void <entry>_run(const void *state, const cacheon_attention *call, const float *q, const float *k,
 *                      const float *v, float *out, void *workspace);
 *
 * q and out: [num_q_heads][head_dim], contiguous. k and v: [kv_len][num_kv_heads][head_dim], contiguous heads, rows
 * kv_stride apart; q and k are already rotated. Query head h reads key/value head h / (num_q_heads / num_kv_heads).
 * For each head: p = softmax over i < kv_len of scale * (q . k[i]); out = sum of p[i] * v[i].
 *
 * Domain: num_q_heads a multiple of num_kv_heads, 1..64; head_dim a multiple of 8, 8..256; kv_len 1..8192. In this
 * model 9, 3 and 64. Scores may be large: subtract the maximum. kv_len floats per head fit the workspace.
 */
typedef struct {
    uint32_t kv_len;
    uint32_t num_q_heads;
    uint32_t num_kv_heads;
    uint32_t head_dim;
    uint64_t kv_stride;
    float scale;
    uint32_t reserved; /* 0 */
} cacheon_attention;
typedef void (*cacheon_attention_fn)(const void *state, const cacheon_attention *call, const float *q, const float *k,
                                     const float *v, float *out, void *workspace);

/*
 * Slot activation.silu_and_mul: out[t][i] = x[t][i] / (1 + exp(-x[t][i])) * x[t][width + i].
 *
 *     void <entry>_run(const void *state, const cacheon_silu *call, const float *x, float *out, void *workspace);
 *
 * x rows hold 2 * width values (gate, then up). Domain: width >= 1 and any; num_tokens 1..CACHEON_MAX_TOKENS.
 */
typedef struct {
    uint32_t num_tokens;
    uint32_t width;
    uint64_t x_stride;
    uint64_t out_stride;
} cacheon_silu;
typedef void (*cacheon_silu_fn)(const void *state, const cacheon_silu *call, const float *x, float *out,
                                void *workspace);

/*
 * Slot norm.rmsnorm: out[t][i] = x[t][i] / sqrt(mean over j of x[t][j]^2 + eps) * weight[i].
 *
 *     void <entry>_run(const void *state, const cacheon_rmsnorm *call, const float *x, const float *weight, float *out,
 *                      void *workspace);
 *
 * Domain: width >= 1 and any; num_tokens 1..CACHEON_MAX_TOKENS; eps > 0. x and out never overlap.
 */
typedef struct {
    uint32_t num_tokens;
    uint32_t width;
    uint64_t x_stride;
    uint64_t out_stride;
    float eps;
    uint32_t reserved; /* 0 */
} cacheon_rmsnorm;
typedef void (*cacheon_rmsnorm_fn)(const void *state, const cacheon_rmsnorm *call, const float *x, const float *weight,
                                   float *out, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
