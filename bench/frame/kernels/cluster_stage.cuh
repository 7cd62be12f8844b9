// A stage of a one-launch decoder for up to 64 rows: y[row, n] = sum_k x[row, k] W[n, k], by clusters of CL blocks.
//
//   split     a block of a cluster has its share of k for all outputs of the cluster (so it reads a CL-th of the rows' inputs),
//             and sends each block of the cluster that block's outputs: partial sums travel through the cluster's shared
//             memory and count themselves on the receiver's barrier. The receiver adds them, always in the same order.
//   rows      are the 64 rows of the tensor core (NT tiles of 8 in memory), outputs its columns. Inputs come from mail through
//             registers (a word of ones has not arrived: ask again) to shared memory, 256 of k at a time: a batch.
//   regions   partial sums of stages with many outputs arrive in `even`, of others in `odd`, in turn: whoever sends to a region
//             again has seen sums of the stage between, which its receiver sent after it had read the region.
//             `even` is a third place for inputs while an odd stage runs.
//
// Compile-time: CL (2 or 4), NT (1, 2, 4, 8), PLACES.
constexpr int ROWS = NT * 8, FIRST_A = NT * 128 + 16, BATCH_BYTES = 32 * FIRST_A, SLACK = 1024;
constexpr int QUADS = NT >= 4 ? NT / 4 : 1, SHARES = NT >= 4 ? 1 : 4 / NT;   // of a warp: groups of four rows; warps that share rows
constexpr int SPINS = 1 << 22;

__device__ __forceinline__ u32 peer(u32 at, u32 rank) {
  u32 r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
  return r;
}
__device__ __forceinline__ void send4(u32 at, u32 barrier, float a, float b, float c, float d) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(at), "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier) : "memory");
}
__device__ __forceinline__ void send1(u32 at, u32 barrier, float a) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(at), "f"(a), "r"(barrier) : "memory");
}
__device__ __forceinline__ bool passed(u64 *barrier, u32 parity) {
  u32 done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(shared_at(barrier)), "r"(parity) : "memory");
  return done;
}
__device__ __forceinline__ void wait_for(u64 *barrier, u32 parity) {
  int spins = 0;
  while (!passed(barrier, parity))
    if (++spins > SPINS) __trap();
}
__device__ __forceinline__ u32 patient1(const void *p) {
  u32 v;
  int spins = 0;
  do {
    v = peek1(p);
    if (++spins > SPINS) __trap();
  } while (missing(v));
  return v;
}
__device__ __forceinline__ void post4(void *p, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void fetch_line(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
__device__ __forceinline__ void meet_all() { asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
constexpr int chunk_steps(int n) { return n * 32 * 16 <= 16384 ? 16 : n * 32 * 8 <= 16384 ? 8 : n * 32 * 4 <= 16384 ? 4 : 2; }

// Nothing moves the sums across this.
template <int N> __device__ __forceinline__ void touch(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

struct Region {   // where sums arrive
  u32 at;
  u64 *full;
  u32 parity;
  const float *data;
};

struct Team {
  u32 ring, acts, spare, squares;   // in shared memory; `spare` is the even region
  u64 *full, *empty;
  int rows, w, lane, g, q, wg, rank, place;
  u32 phase;

  __device__ __forceinline__ void give_back(int at) {
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(empty + at)) : "memory");
  }
  __device__ __forceinline__ int quad(int i) const { return NT >= 4 ? w * QUADS + i / 4 : w % (2 * NT); }
  __device__ __forceinline__ int slice(int i) const { return NT >= 4 ? i % 4 : w / (2 * NT) * NT + i; }

  // N outputs of the cluster, MINE of them this block's; sums arrive in `region`, STRIDE floats a row.
  // SPLIT: the two warpgroups share k instead of the outputs. `row_at(row)`: this block's inputs of a row.
  template <int N, int BATCHES, bool SPLIT, bool SQUARES, int STRIDE, class RowAt>
  __device__ __forceinline__ void product(Region &region, RowAt row_at) {
    constexpr int MINE = N / CL, WIDE = SPLIT ? N : N / 2, STEPS = chunk_steps(N), CHUNKS = 16 / STEPS, SETS = CL * (SPLIT ? 2 : 1), DEPTH = NT == 8 || BATCHES < 3 ? BATCHES < 2 ? 1 : 2 : BATCHES % 4 ? 3 : NT == 4 ? 2 : 4;
    static_assert(!SPLIT || STEPS == 16, "a warpgroup takes half of each chunk");
    static_assert(!SQUARES || (!SPLIT && BATCHES <= DEPTH && BATCHES <= 2), "before a norm the sums come to `spare`");
    if (w == 0 && lane == 0) {
      const u32 bytes = rows * (SETS * MINE + (SQUARES ? CL * SHARES : 0)) * 4;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(region.full)), "r"(bytes) : "memory");
    }
    float c[WIDE / 2];
    uint4 v[DEPTH][NT];
    const u16 *from[QUADS];
    float sums[QUADS] = {};
    const int inner = lane & 7;
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
      const int row = quad(i * 4) * 4 + (lane >> 3);
      from[i] = row < rows ? row_at(row) + inner * 8 : nullptr;
    }
    auto ask = [&](uint4 (&u)[NT], int batch) {
#pragma unroll
      for (int i = 0; i < NT; i++) u[i] = from[i / 4] ? peek(from[i / 4] + (batch * 4 + slice(i)) * 64) : make_uint4(0, 0, 0, 0);
    };
#pragma unroll
    for (int i = 0; i < DEPTH; i++) ask(v[i], i);
    const u32 corner = (slice(0) * 8 + inner) * FIRST_A + (quad(0) * 4 + (lane >> 3) >> 3) * 128 + ((quad(0) * 4 + (lane >> 3)) & 7) * 16;
    u32 to = acts;
#pragma unroll 1
    for (int first = 0; first < BATCHES; first += DEPTH)
#pragma unroll
      for (int slot = 0; slot < DEPTH; slot++) {
        const int batch = first + slot;
        if (BATCHES % DEPTH && batch >= BATCHES) break;
        uint4 (&u)[NT] = v[slot];
        bool again = false;
#pragma unroll
        for (int i = 0; i < NT; i++) again |= hollow(u[i]);
        int spins = 0;
        while (again) {
          again = false;
#pragma unroll
          for (int i = 0; i < NT; i++)
            if (hollow(u[i])) u[i] = peek(from[i / 4] + (batch * 4 + slice(i)) * 64);
#pragma unroll
          for (int i = 0; i < NT; i++) again |= hollow(u[i]);
          if (++spins > SPINS) __trap();
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < NT; i++) {
          const int down = NT >= 4 ? (i % 4) * 8 * FIRST_A + (i / 4) * 64 : i * 8 * FIRST_A;   // a quad of rows further: 64 bytes, after an even quad
          asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to + corner + down), "r"(u[i].x), "r"(u[i].y), "r"(u[i].z), "r"(u[i].w) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (!SQUARES && batch + DEPTH < BATCHES) ask(u, batch + DEPTH);
        meet();
        u32 weights[CHUNKS];
        int places[CHUNKS];
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
          if (!CHAIN_ONLY) wait_for(full + place, phase);
          places[chunk] = place, weights[chunk] = ring + place * CHUNK + (SPLIT ? wg * (STEPS / 2) * N * 32 : wg * (WIDE * 16));
          if (++place == PLACES) place = 0, phase ^= 1;
        }
        __syncwarp();
        touch(c);
        group_begin();
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
          for (int step = 0; step < (SPLIT ? STEPS / 2 : STEPS); step++)
            Group<WIDE>::multiply(c, tile_at(to + (SPLIT ? wg * (STEPS / 2) * 2 * FIRST_A : 0) + (chunk * STEPS + step) * 2 * FIRST_A, FIRST_A), tile_at(weights[chunk] + step * N * 32, N * 16), batch || chunk || step);
        group_commit();
        if (SQUARES) {
#pragma unroll
          for (int i = 0; i < NT; i++) {
            const u32 d[4] = {u[i].x, u[i].y, u[i].z, u[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i / 4] += low(d[j]) * low(d[j]), sums[i / 4] += high(d[j]) * high(d[j]);
          }
        }
        group_wait<0>();
        touch(c);
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) give_back(places[chunk]);
        to = BATCHES <= 2 ? acts + BATCH_BYTES : to == acts ? acts + BATCH_BYTES : to == spare ? acts : spare;
      }
    if (SQUARES)
#pragma unroll
      for (int i = 0; i < QUADS; i++) {
        float s = sums[i];
#pragma unroll
        for (int o = 1; o < 8; o *= 2) s += __shfl_xor_sync(~0u, s, o);
        const int row = quad(i * 4) * 4 + (lane >> 3), set = rank * SHARES + (NT >= 4 ? 0 : w / (2 * NT));
        if (inner < CL && row < rows) send1(peer(squares + (set * ROWS + row) * 4, inner), peer(shared_at(region.full), inner), s);
      }
    const int r0 = (w & 3) * 16 + g, set = SPLIT ? rank * 2 + wg : rank;
    const u32 mine = region.at + (set * ROWS + r0) * STRIDE * 4;
    if ((w & 3) * 16 < ROWS)
#pragma unroll
      for (int j = 0; j < WIDE / 16; j++) {
        const int to = MINE == 8 ? 2 * j + (q >> 1) : (SPLIT ? 0 : wg * (CL / 2)) + 16 * j / MINE, offset = MINE == 8 ? (q & 1) * 4 : 16 * j % MINE + q * 4;
        const u32 at = peer(mine + offset * 4, to), barrier = peer(shared_at(region.full), to);
        if (r0 < rows) send4(at, barrier, c[8 * j], c[8 * j + 1], c[8 * j + 4], c[8 * j + 5]);
        if (r0 + 8 < rows) send4(at + 8 * STRIDE * 4, barrier, c[8 * j + 2], c[8 * j + 3], c[8 * j + 6], c[8 * j + 7]);
      }
    wait_for(region.full, region.parity);
    region.parity ^= 1;
  }
  // Four outputs of a row, summed.
  template <int SETS, int STRIDE> __device__ __forceinline__ float4 sum4(const Region &region, int row, int n) const {
    float4 s = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < SETS; i++) {
      const float4 v = *(const float4 *)(region.data + (i * ROWS + row) * STRIDE + n);
      s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
    }
    return s;
  }
  __device__ __forceinline__ float scale(const float *squares, int row, int width) const {
    float s = 0;
#pragma unroll
    for (int i = 0; i < CL * SHARES; i++) s += squares[i * ROWS + row];
    return rsqrtf(s * (1.f / width) + 1e-6f);
  }
};
