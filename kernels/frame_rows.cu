// The inner passes for up to 32 rows. Rows go through the tensor core in tiles of eight, its columns.
// A block owns 16 places of the residual (after `output` or after `down`; with SPLIT after both, for half of the rows,
// its weights then read by two blocks at about the same time): it adds, rounds to bfloat16 and mails the sum, so a
// reader has nothing to add and nothing to scale before it multiplies. The
// sum of squares comes from the tensor core too: the diagonal of x x^T. Norms are multiplied into the weights.
// Attention: one row and key/value head for each pair of warps, with its cache in shared memory.
constexpr bool SPLIT = NT >= 2;
constexpr int KEPT = PASSES - 1, PAIRS = (NT + 1) / 2, WIDEST = 52, OWNERS = 64;
static_assert(
    HID == 1024 && FFN == 3072 && WIDTH == 2048 && WARPS == 8 && PART == 2048 && CODES == 2048 && NT <= 4,
    "cut for these");

struct Stream {   // this block's chunks in the order of their use
  const u8 *all, *owned, *heads, *at;   // all [LAYERS][10]: qkv 4, gate-up 6; owned [LAYERS][10]: output 4, down 6
  int pass, layer, i;
  bool outputs, downs;
  __device__ Stream(const Arguments &a, int b) {
    all = a.layers + (size_t)b * LAYERS * 10 * CHUNK, owned = a.owned + (size_t)(b % OWNERS) * LAYERS * 10 * CHUNK;
    heads = a.heads + (size_t)b * 2 * CHUNK, at = a.projection + (size_t)(b % OWNERS) * 4 * CHUNK;
    outputs = SPLIT || b < OWNERS, downs = SPLIT || b >= OWNERS;
    pass = -1, layer = 0, i = outputs ? 0 : 4;
  }
  __device__ __forceinline__ const u8 *next() {
    if (pass < 0) {
      if (i < 4) return at + i++ * CHUNK;
      pass = 0, i = 0;
    }
    if (layer < LAYERS) {
      if (i == 4 && !outputs) i = 8;
      if (i == 14 && !downs) i = 20;
      if (i == 20 || (pass == 0 && layer == LAYERS - 1 && i >= 4)) i = 0, layer++;
    }
    if (layer == LAYERS) {
      if (pass && i < 2) return heads + ((size_t)(pass - 1) * BLOCKS * 2 + i++) * CHUNK;
      if (++pass >= PASSES) {
        pass = PASSES, i = 2;
        return nullptr;
      }
      layer = 0, i = 0;
    }
    const int l = layer * 10, k = i++;
    return k < 4 ? all + (l + k) * CHUNK
        : k < 8  ? owned + (l + k - 4) * CHUNK
        : k < 14 ? all + (l + k - 4) * CHUNK
                 : owned + (l + k - 10) * CHUNK;
  }
};
__device__ void copy_ahead(const Arguments &a, u8 *room, u64 *full, u64 *empty, int b) {
  Stream stream(a, b);
  int at = 0;
  u32 phase = 1;
  while (const u8 *from = stream.next()) {
    await_barrier(empty + at, phase);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(full + at)), "r"(CHUNK)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_at(room + at * CHUNK)),
                 "l"(from), "r"(CHUNK), "r"(shared_at(full + at))
                 : "memory");
    if (++at == PLACES) at = 0, phase ^= 1;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) frame_rows(const Arguments a) {
  extern __shared__ __align__(128) u8 room[];
  u16 *const mailbox = held((u16 *)a.mail);
  const int tid = threadIdx.x, lane = tid & 31, w = __shfl_sync(~0u, tid >> 5, 0), b = blockIdx.x, g = lane >> 2,
            q = lane & 3, rows = a.rows, tiles = (rows + 7) >> 3;
  constexpr int CACHE = LAYERS * 2 * KEPT * 256;
  u8 *cache = room + PLACES * CHUNK;                       // [PAIRS][LAYERS][key, value][KEPT][256 bytes], swizzled
  u8 *spare = cache + PAIRS * CACHE;                       // [PAIRS][key, value][256]: the last position
  float *partial = (float *)(spare + PAIRS * 512);         // [2][8 warps][8 rows][WIDEST]: desks, in turn
  float *squares = partial + 2 * WARPS * 8 * WIDEST;       // [2][8][8]
  float *small = squares + 2 * 64;                         // [128]
  u16 *queries = (u16 *)(small + 128);                     // [8][128]
  u16 *head_norms = queries + WARPS * 128;                 // [LAYERS][queries, keys][128]
  u64 *full = (u64 *)(head_norms + LAYERS * 256), *empty = full + PLACES;
  for (int i = tid; i < PAIRS * (CACHE + 512) / 16; i += THREADS + 32) ((uint4 *)cache)[i] = make_uint4(0, 0, 0, 0);
  for (int i = tid; i < LAYERS * 256; i += THREADS + 32) head_norms[i] = (u16)pair(a.head_norms[i], 0.f);
  if (tid == 0) {
    for (int i = 0; i < PLACES; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(full + i)));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(shared_at(empty + i)));
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
#ifdef LOST   // testing: a block that never comes
  if (b == LOST) return;
#endif
  if (w == WARPS) {
    if (lane == 0 && !CHAIN_ONLY) copy_ahead(a, room, full, empty, b);
    return;
  }
  const u32 N_LAYER = rows * (4096 + 2048 + HID + FFN + HID), first_mail = rows * HID;
  const u32 logit_mail = first_mail + PASSES * LAYERS * N_LAYER,
            code_mail = logit_mail + (PASSES - 1) * rows * CODES * 2;
  auto mail = [&](u32 place) { return mailbox + place; };
  const u32 first_place = shared_at(room) + w * PART + lane * LANE;
  int at = 0;
  u32 phase = 0, turn = 0;

  auto take = [&](auto count, uint4 *av) {                 // chunks of four fragments
    u64 *before_at = empty;
#pragma unroll
    for (int c = 0; c < decltype(count)::value; c++) {
      if (!CHAIN_ONLY) await_barrier(full + at, phase);
      read_fragments(av + c * 4, first_place + at * CHUNK);
      if (c) give_back(before_at, av + c * 4 - 4, mailbox, lane);
      before_at = empty + at;
      if (++at == PLACES) at = 0, phase ^= 1;
    }
    give_back(before_at, av + decltype(count)::value * 4 - 4, mailbox, lane);
  };
  // Products of MT tiles of outputs with all rows, tile after tile of rows; `row_at(row)` is where this warp's inputs
  // of a row begin; `finish(t)` sums the desk. Four blocks of 32 inputs at a time, the next four asked for meanwhile.
  auto product = [&](auto mt, auto blocks, auto squared, const uint4 *av, int begin, int end, auto row_at, auto before,
                     auto finish) {
    constexpr int MT = decltype(mt)::value, B = decltype(blocks)::value, STEPS = B / 4;
    uint4 v[4], ahead[4];
    if (begin >= end) return;
    const u16 *from = row_at(min(begin * 8 + g, rows - 1)) + q * 8;
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = peek(from + i * 32);
#pragma unroll 1
    for (int t = begin; t < end; t++) {
      const u32 word = before(t);
      const u16 *then = t + 1 < end ? row_at(min(t * 8 + 8 + g, rows - 1)) + q * 8 : from;
      float c[MT][4] = {}, s[4] = {};
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        bool again = false;
#pragma unroll
        for (int i = 0; i < 4; i++) again |= hollow(v[i]);
        Patience patience;
        while (again) {
          again = false;
          patience.spend();
#pragma unroll
          for (int i = 0; i < 4; i++) v[i] = peek(from + (step * 4 + i) * 32), again |= hollow(v[i]);
        }
        __syncwarp();
        const u16 *source = step + 1 < STEPS ? from + (step + 1) * 128 : then;
#pragma unroll
        for (int i = 0; i < 4; i++) ahead[i] = peek(source + i * 32);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int f = (step * 4 + i) * 2;
#pragma unroll
          for (int m = 0; m < MT; m++) multiply(c[m], av[f * MT + m], v[i].x, v[i].y);
#pragma unroll
          for (int m = 0; m < MT; m++) multiply(c[m], av[(f + 1) * MT + m], v[i].z, v[i].w);
          if (decltype(squared)::value) {
            multiply(s, make_uint4(v[i].x, 0, v[i].y, 0), v[i].x, v[i].y);
            multiply(s, make_uint4(v[i].z, 0, v[i].w, 0), v[i].z, v[i].w);
          }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = ahead[i];
      }
      from = then;
      const int desk = turn & 1;
      float *p = partial + ((desk * WARPS + w) * 8 + q * 2) * WIDEST + g;
#pragma unroll
      for (int m = 0; m < MT; m++) {
        p[m * 16] = c[m][0], p[m * 16 + 8] = c[m][2];
        p[WIDEST + m * 16] = c[m][1], p[WIDEST + m * 16 + 8] = c[m][3];
      }
      if (decltype(squared)::value && q == g >> 1) squares[desk * 64 + w * 8 + g] = g & 1 ? s[1] : s[0];
      meet();
      finish(t, desk, word);
      turn++;
    }
  };
  auto sum2 = [&](int desk, int row, int n) {
    const float *p = partial + (desk * WARPS * 8 + row) * WIDEST + n;
    float2 s = {0, 0};
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      const float2 v = *(const float2 *)(p + i * 8 * WIDEST);
      s.x += v.x, s.y += v.y;
    }
    return s;
  };
  auto scale = [&](int desk, int row) {
    float s = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) s += squares[desk * 64 + i * 8 + row];
    return rsqrtf(s * (1.f / HID) + 1e-6f);
  };
  auto nothing = [&](int t) { return 0u; };
  const int half = (tiles + 1) / 2, my_first = SPLIT && b >= OWNERS ? half : 0,
            my_last = SPLIT && b < OWNERS ? half : tiles, my_column = b % OWNERS * 16;
  // 16 outputs of an owner: residual `old(row)` plus the sum, rounded, to `m`
  auto own = [&](auto blocks, const uint4 *av, auto row_at, auto old, u32 m, int column) {
    product(
        IC<1>(), blocks, IC<0>(), av, my_first, my_last, row_at,
        [&](int t) {
          const int row = t * 8 + (tid >> 3);
          return tid < 64 && row < rows ? old(row, column + (tid & 7) * 2) : 0u;
        },
        [&](int t, int desk, u32 word) {
          const int row = t * 8 + (tid >> 3), n = (tid & 7) * 2;
          if (tid < 64 && row < rows) {
            const float2 s = sum2(desk, tid >> 3, n);
            post(mail(m + row * HID + column + n), pair(low(word) + s.x, high(word) + s.y));
          }
        });
  };

  if (SPLIT || b < OWNERS) {   // the backbone's hidden rows, projected
    uint4 av[16];
    take(IC<4>(), av);
    own(
        IC<8>(), av, [&](int row) { return a.hidden + row * WIDTH + w * 256; },
        [&](int row, int n) { return pair(a.bias[n], a.bias[n + 1]); }, 0, my_column);
  }
  for (int pass = 0; pass < PASSES; pass++) {
    const float4 cosine = *(const float4 *)(a.rotary + pass * 128 + (lane & 15) * 4);
    float4 sine = *(const float4 *)(a.rotary + pass * 128 + 64 + (lane & 15) * 4);
    if (lane < 16) sine = make_float4(-sine.x, -sine.y, -sine.z, -sine.w);
    auto start = [&](int row) -> const u16 * {             // the pass's input rows
      if (pass == 0) return mail(row * HID);
      const int code = pass == 1 || a.forced ? a.codes[row * 16 + pass - 1]
                                             : await1(mail(code_mail + ((pass - 2) * rows + row) * 2));
      return a.tables + ((size_t)(pass - 1) * CODES + (code & (CODES - 1))) * HID;
    };
    for (int l = 0; l < LAYERS; l++) {
      const u32 m_qkv = first_mail + (pass * LAYERS + l) * N_LAYER, m_att = m_qkv + rows * 4096,
                m_out = m_att + rows * 2048, m_act = m_out + rows * HID, m_down = m_act + rows * FFN;
      auto entry = [&](int row) -> const u16 * { return l ? mail(m_down - N_LAYER + row * HID) : start(row); };
      {
        uint4 av[16];
        take(IC<4>(), av);
        product(
            IC<2>(), IC<4>(), IC<1>(), av, 0, tiles, [&](int row) { return entry(row) + w * 128; }, nothing,
            [&](int t, int desk, u32) {
              const int row = t * 8 + (tid >> 4), n = (tid & 15) * 2;
              if (tid < 128 && row < rows) {
                const float2 s = sum2(desk, tid >> 4, n);
                const float r = scale(desk, tid >> 4);
                post(mail(m_qkv + row * 4096 + b * 32 + n), pair(s.x * r, s.y * r));
              }
            });
      }
      if (b + (w >> 1) * BLOCKS < rows * 8) {              // attention
        const int item = b + (w >> 1) * BLOCKS, row = item >> 3, kv = item & 7, head = kv * 2 + (w & 1), mine = w >> 1;
        const u16 *m = mail(m_qkv + row * 4096 + lane * 4);
        const uint2 wq = *(const uint2 *)(head_norms + l * 256 + lane * 4),
                    wk = *(const uint2 *)(head_norms + l * 256 + 128 + lane * 4);
        uint2 qv, kk, vv;
        Patience patience;
        do
          qv = peek2(m + head * 128), kk = peek2(m + 2048 + kv * 128), vv = peek2(m + 3072 + kv * 128),
          patience.spend();
        while (missing(max(qv.x, qv.y)) || missing(max(kk.x, kk.y)) || missing(max(vv.x, vv.y)));
        float y[4] = {low(qv.x), high(qv.x), low(qv.y), high(qv.y)},
              z[4] = {low(kk.x), high(kk.x), low(kk.y), high(kk.y)};
        const float sy = rsqrtf(warp_sum(y[0] * y[0] + y[1] * y[1] + y[2] * y[2] + y[3] * y[3]) * 0.0078125f + 1e-6f) *
            0.12751743f;   // 1 / sqrt(128), log2(e)
        const float sz = rsqrtf(warp_sum(z[0] * z[0] + z[1] * z[1] + z[2] * z[2] + z[3] * z[3]) * 0.0078125f + 1e-6f);
        const float fq[4] = {low(wq.x), high(wq.x), low(wq.y), high(wq.y)},
                    fk[4] = {low(wk.x), high(wk.x), low(wk.y), high(wk.y)};
        const float cs[4] = {cosine.x, cosine.y, cosine.z, cosine.w}, sn[4] = {sine.x, sine.y, sine.z, sine.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          y[i] *= sy * fq[i], z[i] *= sz * fk[i];
          y[i] = y[i] * cs[i] + __shfl_xor_sync(~0u, y[i], 16) * sn[i];
          z[i] = z[i] * cs[i] + __shfl_xor_sync(~0u, z[i], 16) * sn[i];
        }
        const u32 keys = shared_at(cache) + mine * CACHE + l * 2 * KEPT * 256, values = keys + KEPT * 256;
        const u32 last = shared_at(spare) + mine * 512;
        // row `pos` of a cache: 16 pieces of 16 bytes, piece c at c ^ (pos & 7)
        const u32 k_row = pass < KEPT ? keys + pass * 256 : last,
                  v_row = pass < KEPT ? values + pass * 256 : last + 256;
        const u32 spot = (((lane >> 1) ^ (pass & 7)) << 4) + (lane & 1) * 8;
        asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(k_row + spot), "r"(pair(z[0], z[1])), "r"(pair(z[2], z[3]))
                     : "memory");   // two warps write the same
        asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(v_row + spot), "r"(vv.x), "r"(vv.y) : "memory");
        u32 *qs = (u32 *)(queries + w * 128);  // word j of the query: tile j/8, then as the product reads it
        {
          const int j = lane * 2, t = j >> 3, r = j & 7;
          u32 *to = qs + (t >> 1) * 16 + (r & 3) * 4 + (t & 1) * 2 + (r >> 2);
          to[0] = pair(y[0], y[1]), to[4] = pair(y[2], y[3]);
        }
        __syncwarp();
        uint4 vf[8], kf[8], qf[4];  // all reads first, then the products
        {
          const int row = lane & 15, pos = (lane & 7) + (lane >> 4) * 8, side = (lane >> 3) & 1;
          const u32 k_base = row < KEPT ? keys + row * 256 : last,
                    v_base = pos < KEPT ? values + pos * 256 : last + 256;
#pragma unroll
          for (int t = 0; t < 4; t++) qf[t] = *(const uint4 *)(qs + t * 16 + q * 4);
#pragma unroll
          for (int t = 0; t < 8; t++) kf[t] = matrix(k_base + (((t * 2 + (lane >> 4)) ^ (row & 7)) << 4));
#pragma unroll
          for (int t = 0; t < 8; t++) vf[t] = matrix_turned(v_base + (((t * 2 + side) ^ (pos & 7)) << 4));
        }
        float s[2][4] = {};
#pragma unroll
        for (int t = 0; t < 4; t++) {
          multiply(s[0], kf[2 * t], qf[t].x, qf[t].y);
          multiply(s[1], kf[2 * t + 1], qf[t].z, qf[t].w);
        }
        float s0 = g <= pass ? s[0][0] + s[1][0] : -1e30f, s1 = g + 8 <= pass ? s[0][2] + s[1][2] : -1e30f,
              most = fmaxf(s0, s1);
#pragma unroll
        for (int o = 4; o < 32; o *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
        s0 = exp2f(s0 - most), s1 = exp2f(s1 - most);
        float all = s0 + s1;
#pragma unroll
        for (int o = 4; o < 32; o *= 2) all += __shfl_xor_sync(~0u, all, o);
        const float share = __fdividef(1.f, all);
        s0 *= share, s1 *= share;
        const u32 p0 = pair(__shfl_sync(~0u, s0, q * 8), __shfl_sync(~0u, s0, q * 8 + 4)),
                  p1 = pair(__shfl_sync(~0u, s1, q * 8), __shfl_sync(~0u, s1, q * 8 + 4));
        {
          u16 *to = queries + w * 128 + g;
          float c[8][4] = {};
#pragma unroll
          for (int t = 0; t < 8; t++) multiply(c[t], vf[t], p0, p1);
          __syncwarp();
#pragma unroll
          for (int t = 0; t < 8; t++) {
            const u32 both = pair(c[t][0], c[t][2]);
            if (q == 0) to[t * 16] = (u16)both, to[t * 16 + 8] = (u16)(both >> 16);
          }
        }
        __syncwarp();
        const uint2 o = *(const uint2 *)(queries + w * 128 + lane * 4);
        post2(mail(m_att + row * 2048 + head * 128 + lane * 4), o.x, o.y);
        __syncwarp();
      }
      if (pass == 0 && l == LAYERS - 1) break;
      if (SPLIT || b < OWNERS) {
        uint4 av[16];
        take(IC<4>(), av);
        own(
            IC<8>(), av, [&](int row) { return mail(m_att + row * 2048 + w * 256); },
            [&](int row, int n) { return await1(entry(row) + n); }, m_out, my_column);
      }
      {
        uint4 av[24];
        take(IC<6>(), av);
        product(
            IC<3>(), IC<4>(), IC<1>(), av, 0, tiles, [&](int row) { return mail(m_out + row * HID + w * 128); },
            nothing,
            [&](int t, int desk, u32) {
              const int r8 = tid / 12, row = t * 8 + r8, n = tid % 12;  // in fours: gate, gate, up, up
              if (tid < 96 && row < rows) {
                const float2 gate = sum2(desk, r8, n * 4), up = sum2(desk, r8, n * 4 + 2);
                const float r = scale(desk, r8), g0 = gate.x * r, g1 = gate.y * r;
                post(
                    mail(m_act + row * FFN + b * 24 + n * 2),
                    pair(__fdividef(g0, 1 + __expf(-g0)) * up.x * r, __fdividef(g1, 1 + __expf(-g1)) * up.y * r));
              }
            });
      }
      if (SPLIT || b >= OWNERS) {
        uint4 av[24];
        take(IC<6>(), av);
        own(
            IC<12>(), av, [&](int row) { return mail(m_act + row * FFN + w * 384); },
            [&](int row, int n) { return await1(mail(m_out + row * HID + n)); }, m_down, my_column);
      }
    }
    if (pass) {
      const u32 m_logits = logit_mail + (pass - 1) * rows * CODES * 2;
      uint4 av[8];
      take(IC<2>(), av);
      product(
          IC<1>(), IC<4>(), IC<1>(), av, 0, tiles,
          [&](int row) { return mail(first_mail + (pass + 1) * LAYERS * N_LAYER - rows * HID + row * HID + w * 128); },
          nothing,
          [&](int t, int desk, u32) {
            const int row = t * 8 + (tid >> 3), n = (tid & 7) * 2;
            if (tid < 64 && row < rows) {
              const float2 s = sum2(desk, tid >> 3, n);
              const float r = scale(desk, tid >> 3);
              post2(
                  mail(m_logits + (row * CODES + b * 16 + n) * 2), __float_as_uint(s.x * r), __float_as_uint(s.y * r));
            }
          });
      if ((b & 1) && (b >> 1) < rows) {
        const int row = b >> 1, code = sample(a, row, pass, (u8 *)mail(m_logits + row * CODES * 2), small, tid);
        if (tid == 0) {
          post(mail(code_mail + ((pass - 1) * rows + row) * 2), code);
          if (!a.forced) a.codes[row * 16 + pass] = code;
        }
        meet();
      }
    }
  }
}
