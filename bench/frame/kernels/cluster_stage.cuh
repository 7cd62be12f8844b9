// A stage of a one-launch decoder for up to 64 rows: y[row, n] = sum_k x[row, k] W[n, k], by clusters of CL blocks.
//
//   split     a block of a cluster has its share of k for all outputs of the cluster (so it reads a CL-th of the rows' inputs), a
//             warpgroup half of that; each sends every block of the cluster that block's outputs: partial sums travel through
//             the cluster's shared memory and count themselves on the receiver's barrier. The receiver adds them, always in
//             the same order.
//   rows      are the 64 rows of the tensor core, 16 a warp, outputs its columns. Inputs go from mail to registers (a word of
//             ones has not arrived: ask again) and are used from there: nothing in a block meets.
//   regions   partial sums of stages with many outputs arrive in `even`, of others in `odd`, in turn: whoever sends to a region
//             again has seen sums of the stage between, which its receiver sent after it had read the region.
//
// Compile-time: CL (2 or 4), NT (tiles of 8 rows in memory: 1, 2, 4, 8), PLACES.
constexpr int ROWS = NT * 8, SPINS = 1 << 22;

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
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(shared_at(barrier)), "r"(parity) : "memory");
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
// Pieces of 32 k of both warpgroups in a chunk of up to 16 KB, for n outputs.
constexpr int chunk_pieces(int n) { return n * 128 * 8 <= 16384 ? 8 : n * 128 * 4 <= 16384 ? 4 : n * 128 * 2 <= 16384 ? 2 : 1; }

// Nothing moves the sums across this.
template <int N> __device__ __forceinline__ void touch(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

template <int N> __device__ __forceinline__ void touch(uint4 (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(v[i].x), "+r"(v[i].y), "+r"(v[i].z), "+r"(v[i].w)::"memory");
}

struct Region {   // where sums arrive
  u32 at;
  u64 *full;
  u32 parity;
  const float *data;
};

struct Team {
  u32 ring, squares;   // in shared memory
  u64 *full, *empty;
  int rows, w, lane, g, q, wg, rank, place;
  u32 phase;

  __device__ __forceinline__ void give_back(int at) {
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(empty + at)) : "memory");
  }
  // N outputs of the cluster; sums arrive in `region`, STRIDE floats a row. PIECES: of 32 k, for each warpgroup.
  // `row_at(row)`: this block's inputs of a row.
  template <int N, int PIECES, bool SQUARES, int STRIDE, class RowAt>
  __device__ __forceinline__ void product(Region &region, RowAt row_at) {
    constexpr int MINE = N / CL, SETS = CL * 2, IN_CHUNK = chunk_pieces(N);
    static_assert(PIECES % 8 == 0 && N % 16 == 0, "two slots of four pieces; a lane gets four neighbours of 16 outputs");
    if (w == 0 && lane == 0) {
      const u32 bytes = rows * (SETS * MINE + (SQUARES ? SETS : 0)) * 4;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(region.full)), "r"(bytes) : "memory");
    }
    const int r0 = (w & 3) * 16 + g, r1 = r0 + 8;
    const bool has0 = r0 < rows, has1 = r1 < rows;
    const u16 *from0 = has0 ? row_at(r0) + wg * (PIECES * 32) + q * 8 : nullptr, *from1 = has1 ? row_at(r1) + wg * (PIECES * 32) + q * 8 : nullptr;
    float c[N / 2], sum0 = 0, sum1 = 0;
    uint4 v[2][8];                                         // row 0, row 1 of each piece
    auto ask = [&](uint4 (&u)[8], int piece) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        u[2 * i] = has0 ? peek(from0 + (piece + i) * 32) : make_uint4(0, 0, 0, 0);
        u[2 * i + 1] = has1 ? peek(from1 + (piece + i) * 32) : make_uint4(0, 0, 0, 0);
      }
    };
    ask(v[0], 0);
    ask(v[1], 4);
#pragma unroll 1
    for (int first = 0; first < PIECES; first += 8) {
      int begun[8];
#pragma unroll
      for (int slot = 0; slot < 2; slot++) {
        uint4 (&u)[8] = v[slot];
        bool again = false;
#pragma unroll
        for (int i = 0; i < 8; i++) again |= hollow(u[i]);
        int spins = 0;
        while (again) {
          again = false;
#pragma unroll
          for (int i = 0; i < 8; i++)
            if (hollow(u[i])) u[i] = peek((i & 1 ? from1 : from0) + (first + slot * 4 + (i >> 1)) * 32);
#pragma unroll
          for (int i = 0; i < 8; i++) again |= hollow(u[i]);
          if (++spins > SPINS) __trap();
        }
        __syncwarp();
        u32 weights[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int piece = slot * 4 + i;
          if (piece % IN_CHUNK == 0) {
            if (!CHAIN_ONLY) wait_for(full + place, phase);
            begun[piece] = place;
            if (++place == PLACES) place = 0, phase ^= 1;
          }
          weights[i] = ring + begun[piece / IN_CHUNK * IN_CHUNK] * CHUNK + (piece % IN_CHUNK * 2 + wg) * (N * 64);
        }
        __syncwarp();
        touch(c), touch(u);
        group_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const uint4 x = u[2 * i], y = u[2 * i + 1];
          Group<N>::multiply(c, x.x, y.x, x.y, y.y, tile_at(weights[i], N * 16), first || slot || i);
          Group<N>::multiply(c, x.z, y.z, x.w, y.w, tile_at(weights[i] + N * 32, N * 16), 1);
        }
        group_commit();
        if (SQUARES)
#pragma unroll
          for (int i = 0; i < 8; i++) {
            const u32 d[4] = {u[i].x, u[i].y, u[i].z, u[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++) (i & 1 ? sum1 : sum0) += low(d[j]) * low(d[j]) + high(d[j]) * high(d[j]);
          }
        group_wait<0>();
        touch(c), touch(u);
#pragma unroll
        for (int i = 0; i < 4; i++)
          if ((slot * 4 + i + 1) % IN_CHUNK == 0) give_back(begun[(slot * 4 + i) / IN_CHUNK * IN_CHUNK]);
        if (first + 8 < PIECES) ask(u, first + 8 + slot * 4);
      }
    }
    const int set = rank * 2 + wg;
    if (SQUARES) {
#pragma unroll
      for (int o = 1; o < 4; o *= 2) sum0 += __shfl_xor_sync(~0u, sum0, o), sum1 += __shfl_xor_sync(~0u, sum1, o);
      if (q < CL) {
        const u32 at = peer(squares + (set * ROWS + r0) * 4, q), barrier = peer(shared_at(region.full), q);
        if (has0) send1(at, barrier, sum0);
        if (has1) send1(at + 32, barrier, sum1);
      }
    }
    const u32 mine = region.at + (set * ROWS + r0) * STRIDE * 4;
    if (has0)
#pragma unroll
      for (int j = 0; j < N / 16; j++) {
        const int column = 16 * j + q * 4, to = MINE % 16 ? column / MINE : 16 * j / MINE, offset = MINE % 16 ? column % MINE : 16 * j % MINE + q * 4;
        const u32 at = peer(mine + offset * 4, to), barrier = peer(shared_at(region.full), to);
        send4(at, barrier, c[8 * j], c[8 * j + 1], c[8 * j + 4], c[8 * j + 5]);
        if (has1) send4(at + 8 * STRIDE * 4, barrier, c[8 * j + 2], c[8 * j + 3], c[8 * j + 6], c[8 * j + 7]);
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
    for (int i = 0; i < CL * 2; i++) s += squares[i * ROWS + row];
    return rsqrtf(s * (1.f / width) + 1e-6f);
  }
};
