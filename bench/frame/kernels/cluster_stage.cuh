// A stage of a one-launch decoder for up to 64 rows: y[row, n] = sum_k x[row, k] W[n, k], by clusters of two blocks.
//
//   split     a block of a pair has half of k for all outputs of the pair (so it reads half of the rows' inputs), a warpgroup
//             half of that. The warpgroups add their sums and the block sends the other block its outputs: partial sums travel
//             through the cluster's shared memory and count themselves on the receiver's barrier. That way is narrow (about 10
//             bytes a tick), so each sum goes once. The receiver adds them, always in the same order.
//   rows      are the 64 rows of the tensor core, 16 a warp, outputs its columns. Inputs go from mail to registers (a word of
//             ones has not arrived: ask again) and are used from there: nothing in a block meets.
//   regions   partial sums of stages with many outputs arrive in `even`, of others in `odd`, in turn: whoever sends to a region
//             again has seen sums of the stage between, which its receiver sent after it had read the region.
//
// Compile-time: NT (tiles of 8 rows in memory: 1, 2, 4, 8), PLACES.
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
// Pieces of 32 k of both warpgroups in a chunk, for n outputs.
constexpr int PLACE = 24576;
constexpr int chunk_pieces(int n) { return n * 128 * 8 <= PLACE ? 8 : n * 128 * 4 <= PLACE ? 4 : n * 128 * 2 <= PLACE ? 2 : 1; }

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

#ifdef TRACE   // measuring: ticks of one warp between points, [kind of stage][point]
__shared__ u32 ticks[64];
__shared__ u32 tick;
#define MARK(kind, point) if (threadIdx.x == 0) { const u32 now = clock(); ticks[(kind) * 8 + (point)] += now - tick, tick = now; }
#else
#define MARK(kind, point)
#endif

struct Team {
  u32 ring, squares;   // in shared memory
  float4 *desk;        // [8 warps][6][32]: what a warp gives to the other warpgroup
  u64 *full, *empty;
  int rows, w, lane, g, q, wg, rank, place;
  u32 phase, far;      // from this block's shared memory to the other's

  // N outputs of the cluster; sums arrive in `region`, STRIDE floats a row. PIECES: of 32 k, for each warpgroup.
  // `row_at(row)`: this block's inputs of a row.
  template <int N, int PIECES, bool SQUARES, int STRIDE, class RowAt>
  __device__ __forceinline__ void product(Region &region, RowAt row_at) {
    constexpr int MINE = N / 2, IN_CHUNK = chunk_pieces(N);
    constexpr int KIND = N == 64 ? 0 : N == 96 ? 2 : N == 32 ? 4 : PIECES == 16 ? 1 : 3;
    MARK(KIND, 0)
    static_assert(PIECES % 8 == 0 && N % 16 == 0, "two slots of four pieces; a lane gets four neighbours of 16 outputs");
    if (w == 0 && lane == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(region.full)), "r"(rows * (MINE + (SQUARES ? 2 : 0)) * 4) : "memory");
    const int r0 = (w & 3) * 16 + g, r1 = r0 + 8;
    const u16 *from0 = row_at(min(r0, rows - 1)) + wg * (PIECES * 32) + q * 8, *from1 = row_at(min(r1, rows - 1)) + wg * (PIECES * 32) + q * 8;
    float c[N / 2], s0[4] = {}, s1[4] = {};
    uint4 v[2][8];                                         // rows r0 and r1 of four pieces
    const u64 base = tile_at(ring + wg * (N * 64));
    auto ask = [&](uint4 (&u)[8], int piece) {
#pragma unroll
      for (int i = 0; i < 4; i++) u[2 * i] = peek(from0 + (piece + i) * 32), u[2 * i + 1] = peek(from1 + (piece + i) * 32);
    };
    auto lacks = [&](uint4 (&u)[8]) {
      u32 most = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) most = max(max(most, max(u[i].x, u[i].y)), max(u[i].z, u[i].w));
      return missing(most);
    };
    patient1(from1 + g * 32);                              // one word of each producer; then all
    __syncwarp();
    MARK(KIND, 1)
    ask(v[0], 0), ask(v[1], 4);
#pragma unroll 1
    for (int first = 0; first < PIECES; first += 8) {
      int places[8];
#pragma unroll
      for (int slot = 0; slot < 2; slot++) {
        uint4 (&u)[8] = v[slot];
        int spins = 0;
        while (lacks(u)) {
          ask(u, first + slot * 4);
          if (++spins > SPINS) __trap();
        }
        __syncwarp();
        MARK(KIND, 2)
        u64 tiles[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int piece = slot * 4 + i;
          if (piece % IN_CHUNK == 0) {
            if (!CHAIN_ONLY) wait_for(full + place, phase);
            places[piece] = place;
            if (++place == PLACES) place = 0, phase ^= 1;
          }
          tiles[i] = base + places[piece / IN_CHUNK * IN_CHUNK] * (PLACE / 16) + piece % IN_CHUNK * (N * 8);
        }
        __syncwarp();
        MARK(KIND, 3)
        touch(c), touch(u);
        group_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const uint4 x = u[2 * i], y = u[2 * i + 1];
          Group<N>::multiply(c, x.x, y.x, x.y, y.y, tiles[i], first || slot || i);
          Group<N>::multiply(c, x.z, y.z, x.w, y.w, tiles[i] + 2, 1);
        }
        group_commit();
        if (SQUARES)                                       // the diagonal of x x^T
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const uint4 x = u[2 * i], y = u[2 * i + 1], a = make_uint4(x.x, y.x, x.y, y.y), b = make_uint4(x.z, y.z, x.w, y.w);
            ::multiply(s0, a, x.x, x.y), ::multiply(s1, a, y.x, y.y);
            ::multiply(s0, b, x.z, x.w), ::multiply(s1, b, y.z, y.w);
          }
        group_wait<0>();
        touch(c), touch(u);
        if (first + 8 < PIECES) ask(u, first + 8 + slot * 4);
        if (lane == 0)
#pragma unroll
          for (int i = 0; i < 4; i++)
            if ((slot * 4 + i + 1) % IN_CHUNK == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(empty + places[(slot * 4 + i) / IN_CHUNK * IN_CHUNK])) : "memory");
        MARK(KIND, 4)
      }
    }
    // The first warpgroup adds both shares of rows r0, the second those of r1.
    float4 *give = desk + w * 192 + lane;
    const float4 *take = desk + (w ^ 4) * 192 + lane;
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
      const int o = 8 * j;
      give[j * 32] = wg ? make_float4(c[o], c[o + 1], c[o + 4], c[o + 5]) : make_float4(c[o + 2], c[o + 3], c[o + 6], c[o + 7]);
    }
    const u32 barrier = shared_at(region.full);
    if (SQUARES && q == g >> 1) {
      const u32 at = squares + ((rank * 2 + wg) * ROWS + r0) * 4;
      const float sum0 = g & 1 ? s0[1] : s0[0], sum1 = g & 1 ? s1[3] : s1[2];
      if (r0 < rows) {
        send1(at + far, barrier + far, sum0);
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(sum0) : "memory");
      }
      if (r1 < rows) {
        send1(at + far + 32, barrier + far, sum1);
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + 32), "f"(sum1) : "memory");
      }
    }
    asm volatile("bar.sync %0, 64;" ::"r"(2 + (w & 3)) : "memory");
    const int row = wg ? r1 : r0;
    if (row < rows) {
      const u32 at = region.at + (rank * ROWS + row) * STRIDE * 4;
#pragma unroll
      for (int j = 0; j < N / 16; j++) {
        const int o = 8 * j, to = MINE == 8 ? q >> 1 : 16 * j / MINE, offset = MINE == 8 ? (q & 1) * 4 : 16 * j % MINE + q * 4;
        const float4 t = take[j * 32];
        float4 s = wg ? make_float4(c[o + 2], c[o + 3], c[o + 6], c[o + 7]) : make_float4(c[o], c[o + 1], c[o + 4], c[o + 5]);
        s.x += t.x, s.y += t.y, s.z += t.z, s.w += t.w;
        if (to == rank) asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at + offset * 4), "f"(s.x), "f"(s.y), "f"(s.z), "f"(s.w) : "memory");
        else send4(at + offset * 4 + far, barrier + far, s.x, s.y, s.z, s.w);
      }
    }
    __syncwarp();
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    MARK(KIND, 5)
    wait_for(region.full, region.parity);
    MARK(KIND, 6)
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
    for (int i = 0; i < 4; i++) s += squares[i * ROWS + row];
    return rsqrtf(s * (1.f / width) + 1e-6f);
  }
};
