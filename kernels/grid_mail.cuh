// What the blocks of a one-launch kernel need to work together: 128 blocks, 8 warps each that multiply, one that
// copies.
//
//   mail    values travel between blocks through global memory that was filled with ones before the launch. A word that
//           is still all ones has not arrived; bfloat16 and float32 results never look like that. The data is its own
//           flag: no barrier, no fence, and every place is written once in a launch.
//   ring    the copying warp fills places in shared memory by bulk copies, ahead of use, whatever the others wait for,
//           because weights depend on nothing. A warp moves its part to registers and gives the place back.
//   product y[n, row] = sum_k W[n, k] x[row, k] on tensor cores, 16 outputs and 8 rows at a time. Each warp has its
//   part
//           of k; the parts are summed in shared memory, always in the same order.
//
// Letters: n output, k input, t tile of 8 rows. Lanes: g = lane / 4 (row in its tile), q = lane % 4 (part of 32 k).
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;
typedef unsigned short u16;
template <int V>
struct IC {
  static constexpr int value = V;
};

// WARPS and PART (bytes of a chunk for one warp) come with the compilation.
constexpr int BLOCKS = 128, THREADS = WARPS * 32, CHUNK = WARPS * PART;
#ifndef CHAIN_ONLY
#define CHAIN_ONLY 0  // measuring: 1 for no weight traffic, results are garbage
#endif
constexpr u32 HOLLOW = 0xffffffffu;

// Every wait is bounded: a block that is lost becomes an error of the launch instead of a hang. Counted and not timed,
// as time goes on while another process has the GPU. A look at the mail takes at least 0.3 us, so this is a second or
// more; a try at a barrier at least 20 ns.
constexpr u32 LOOKS_MAX = 1u << 22, TRIES_MAX = 1u << 25;
struct Patience {
  u32 looks = 0;
  __device__ __forceinline__ void spend() {
#ifndef UNBOUNDED  // measuring: what the bound costs
    if (++looks == LOOKS_MAX) __trap();
#endif
  }
};

__device__ __forceinline__ u32 shared_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
// Kept in a register: an argument is read from the constant cache again and again otherwise, and there it is displaced
// by instructions; a miss costs a microsecond while weights stream.
template <class T>
__device__ __forceinline__ T *held(T *p) {
  __shared__ T *volatile kept;  // by way of memory, or the compiler sees through it
  if (threadIdx.x == 0) kept = p;
  __syncthreads();
  return kept;
}
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pair(float a, float b) {
  u32 v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
  return v;
}
__device__ __forceinline__ uint4 peek(const void *p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ uint2 peek2(const void *p) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u32 peek1(const void *p) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void post(void *p, u32 v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ void post2(void *p, u32 a, u32 b) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(a), "r"(b) : "memory");
}
#ifdef STREAM_ONLY  // measuring: nothing is waited for, results are garbage
__device__ __forceinline__ bool missing(u32 v) { return false; }
#else
__device__ __forceinline__ bool missing(u32 v) { return v == HOLLOW; }
#endif
__device__ __forceinline__ bool hollow(uint4 v) { return missing(max(max(v.x, v.y), max(v.z, v.w))); }
__device__ __forceinline__ uint4 await4(const void *p) {
  Patience patience;
  uint4 v = peek(p);
  while (hollow(v)) v = peek(p), patience.spend();
  return v;
}
__device__ __forceinline__ uint2 await2(const void *p) {
  Patience patience;
  uint2 v = peek2(p);
  while (missing(max(v.x, v.y))) v = peek2(p), patience.spend();
  return v;
}
__device__ __forceinline__ u32 await1(const void *p) {
  Patience patience;
  u32 v = peek1(p);
  while (missing(v)) v = peek1(p), patience.spend();
  return v;
}
__device__ __forceinline__ float warp_sum(float s) {
#pragma unroll
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  return s;
}
__device__ __forceinline__ void multiply(float (&c)[4], uint4 a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void meet() {  // all that multiply; a warp that only copies is not among them
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
__device__ __forceinline__ void await_barrier(u64 *barrier, u32 parity) {
  asm volatile(
      "{\n .reg .pred p, q;\n .reg .u32 n;\n mov.u32 n, %2;\n"
      " L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @p bra D;\n"
      " sub.u32 n, n, 1;\n setp.ne.u32 q, n, 0;\n @q bra L;\n trap;\n D:\n}" ::"r"(shared_at(barrier)), "r"(parity),
      "n"(TRIES_MAX) : "memory");
}
__device__ __forceinline__ uint4 matrix(u32 at) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ uint4 matrix_turned(u32 at) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

#ifndef EIGHT
#define EIGHT 0  // 1: weights of eight bits, each output with its own scale
#endif
// Four fragments of a warp's part of a chunk. Eight-bit weights: sign, four bits of exponent, three of mantissa, no
// zero; widened to bfloat16 by moving bits, their scale includes what the exponent is off by.
__device__ __forceinline__ void read_fragments(uint4 *a, u32 at) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (EIGHT) {
      u32 u, v;
      asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(u), "=r"(v) : "r"(at + i * 256) : "memory");
      const u32 value = 0x07f007f0u, sign = 0x80008000u, off = 0x40004000u;
      a[i].x = ((u >> 4) & value) | off | (u & sign), a[i].y = ((u << 4) & value) | off | ((u << 8) & sign);
      a[i].z = ((v >> 4) & value) | off | (v & sign), a[i].w = ((v << 4) & value) | off | ((v << 8) & sign);
    } else {
      asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(a[i].x), "=r"(a[i].y), "=r"(a[i].z), "=r"(a[i].w)
                   : "r"(at + i * 512)
                   : "memory");
    }
  }
}
constexpr int LANE = EIGHT ? 8 : 16;  // bytes of a fragment for one lane

// Gives a place of the ring back, once what was read from it is in the registers of the whole warp: the copy that fills
// the place next does not wait for reads that are on their way, and an arrival does not wait for them either (measured:
// with 16 rows a quarter of the launches multiplied by weights of another layer). So the arrival is made to depend on
// what was read: `address` is one in global memory, whose highest bit is never set, which the compiler cannot know.
__device__ __forceinline__ void give_back(u64 *empty, const uint4 *read, const void *address, int lane) {
  const u32 never = (read[0].x ^ read[1].x ^ read[2].x ^ read[3].x) & (u32)((u64)address >> 32) & 0x80000000u;
  const int off = __any_sync(~0u, never != 0);
  if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(empty + off)) : "memory");
}
